"""Measures the highest peaks that a daemon exports while its reads are slow and starved, for docs/accuracy.md.

A square wave flows through eight ports of an exact fabric. A read takes from 20 us to 0.9 ms, and its counter is that
of any moment of it; other processes compete for the processors. The true peak is the height of the wave.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ibpulse.units import format_duration
from tests.fusefabric.client import FuseFabric, why_not
from tests.running import Running

PAGE = Path(__file__).parents[1] / "docs/accuracy.md"
TITLE = "## Peaks while reads are slow and starved"
HEIGHT = 20e9
WAVE = {"rate_bytes_per_second": HEIGHT, "period_ns": 200_000_000, "duty": 0.4}
PORTS = 8
READS = {"quickest_seconds": 20e-6, "delay_seconds": 0.9e-3}
SETTLE_SECONDS = 3
# the most that one window may hold
VALUES = 200_000
GOALS = (-0.05, 0.01)


@dataclass(frozen=True)
class Peak:
    """A peak as exported, the highest single rate that it was chosen from, and the truth; bytes per second."""

    what: str
    truth: float
    exported: float
    highest: float

    @property
    def error(self) -> float:
        """The part by which the exported peak is too high."""
        return self.exported / self.truth - 1

    def row(self) -> str:
        """The peak as a row of the table."""
        numbers = (f"{value / 1e9:,.2f} GB/s" for value in (self.truth, self.highest, self.exported))
        errors = (f"{100 * (value / self.truth - 1):+.2f} %" for value in (self.highest, self.exported))
        truth, highest, exported = numbers
        before, after = errors
        return f"| {self.what} | {truth} | {highest} | {before} | {exported} | {after} |"


@contextmanager
def starvation() -> Iterator[None]:
    """Two processes that compute all the time."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def measure(seconds: int) -> list[Peak]:
    """Run the wave for so many seconds and read the peaks."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch, ExitStack() as stack:
        place = Path(scratch)
        fabric = stack.enter_context(FuseFabric(place / "sys", "square", WAVE, ports=PORTS))
        for device in fabric.devices:
            fabric.set(device.name, **READS)
        daemon = stack.enter_context(Running(fabric.root, place / "ring"))
        stack.enter_context(starvation())
        time.sleep(SETTLE_SECONDS + seconds)
        return list(compare(daemon, seconds))


def compare(daemon: Running, seconds: int) -> Iterator[Peak]:
    """The exported peaks and the highest single rates of the same time."""
    metrics = daemon.metrics()
    end_ms = int(metrics.value("ibpulse_aggregated_until_timestamp_seconds")) * 1000
    window = format_duration(seconds * 10**9)
    span_ms = VALUES // (2 * PORTS) * 10
    parts = [
        read_rates(daemon, begin, min(begin + span_ms, end_ms))
        for begin in range(end_ms - seconds * 1000, end_ms, span_ms)
    ]
    rates = np.concatenate(parts, axis=1)
    node = metrics.value("ibpulse_node_bandwidth_peak_bytes_per_second", window=window)
    yield Peak("node, transmit + receive", 2 * PORTS * HEIGHT, node, float(np.nanmax(rates.sum(axis=0))))
    ways = [
        (metrics.port(f"{way}_peak_bytes_per_second", f"mlx5_{port}", window=window), float(np.nanmax(rates[row])))
        for port in range(PORTS)
        for row, way in ((2 * port, "transmit"), (2 * port + 1, "receive"))
    ]
    for what, choose in (("highest of the 16 peaks of ports", max), ("lowest of them", min)):
        exported, highest = choose(ways)
        yield Peak(what, HEIGHT, exported, highest)
    yield Peak("highest single rate of any port", HEIGHT, max(ways)[0], max(highest for _, highest in ways))


def read_rates(daemon: Running, begin_ms: int, end_ms: int) -> np.ndarray:
    """The rates of single samples, (series, samples), NaN where data is missing."""
    span = {"from": begin_ms, "to": end_ms}
    answer = daemon.ask("/api/v1/window", **span, statistic="mean", format="npy")
    answer.raise_for_status()
    found: np.ndarray = np.load(io.BytesIO(answer.content))
    return found


def section(seconds: int) -> str:
    """The section of the page."""
    peaks = measure(seconds)
    head = [
        f"{TITLE}\n",
        f"A square wave of 20 GB/s, 200 ms long and 40 % on, in both directions of {PORTS} ports for {seconds} s. "
        "Reads take from 20 µs to 0.9 ms (evenly by the logarithm, and what the FUSE server adds), and the counter is "
        "that of any moment of the read. Two other processes compute all the time. *Highest rate* is the highest "
        "single sample, *exported* is the peak in `/metrics`, which counts only the "
        "[certain part](traffic.md#how-certain-a-sample-is) of a sample. It may be 1 % too high and 5 % too low. "
        "Made by `python -m bench.peak_accuracy`.\n",
        "| | truth | highest rate | error | exported | error |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    worst = [peak.error for peak in peaks]
    verdict = "met" if GOALS[0] <= min(worst) and max(worst) <= GOALS[1] else "missed"
    return "\n".join([*head, *(peak.row() for peak in peaks), "", f"The goal was {verdict}.", ""])


def main() -> None:
    """Measure, and replace the section of the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.peak_accuracy", description=__doc__)
    parser.add_argument(
        "--seconds", type=int, choices=(10, 60, 300), default=300, help="Length of the measurement (default: 300)"
    )
    parser.add_argument("--print", action="store_true", help="Only print the section")
    given = parser.parse_args()
    if reason := why_not():
        parser.error(f"the exact fabric cannot be mounted: {reason}")
    text = section(given.seconds)
    print(text)
    if not given.print:
        PAGE.write_text(PAGE.read_text().split(TITLE)[0].rstrip("\n") + "\n\n" + text)


if __name__ == "__main__":
    main()
