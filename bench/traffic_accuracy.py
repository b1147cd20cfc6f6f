"""Compares every traffic statistic with its truth, for known signals sampled well and badly.

`python -m bench.traffic_accuracy` writes docs/traffic-accuracy.md. The samples are written to real ring files. The
values are those of `/api/v1/summary`, which come from the same code as `/metrics`.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.signals import (
    RAILS,
    SECONDS,
    Signal,
    everywhere,
    find_truth,
    played,
    poisson,
    ramp,
    shifted,
    slots,
    wave,
)
from bench.snapshots import build_fabric
from ibpulse.aggregator import AggregatorOptions
from ibpulse.aggregator.summary import Summary, summarize
from ibpulse.events import PortHistory
from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader
from ibpulse.simulate.fsdp import DENSE, MOE
from ibpulse.simulate.workloads import ExpertParallel

PAGE = Path(__file__).parents[1] / "docs/traffic-accuracy.md"
BEGIN_SECOND, WINDOW_SECONDS = 10, 60
SCALE = 4
# as in the runs that they are modelled on
IDLE = (6,)
REFRESH_NS = 10_000_000

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sampling:
    """Imperfections of the sampling; lost and late ticks are fractions of all ticks, chosen at random."""

    title: str
    lost: float = 0.0
    jitter_ns: int = 0
    late: float = 0.0
    late_ns: tuple[int, int] = (2_000_000, 4_900_000)
    resets: int = 0
    stride: int = 1
    cached: bool = False


SAMPLINGS = (
    Sampling("well"),
    Sampling("1 % missing", lost=0.01),
    Sampling("10 % missing", lost=0.1),
    Sampling("1 ms jitter", jitter_ns=1_000_000),
    Sampling("5 % late", late=0.05),
    Sampling("20 resets", resets=20),
    Sampling("cached", stride=3, cached=True),
)

SIGNALS = (
    Signal("constant, 20 GB/s per port and direction", everywhere(lambda seconds: 20e9 * seconds)),
    Signal("square, 100 ms, 40 % on", everywhere(wave(0.1, 0.4)), 0.1),
    Signal("square, 370 ms, 25 % on: edges between ticks", everywhere(wave(0.37, 0.25)), 0.37),
    Signal("square, 2 s, 75 % on", everywhere(wave(2.0, 0.75)), 2.0),
    Signal("eight rails, 800 ms, 30 % on, each an eighth later", shifted(0.8, 0.3), 0.1),
    Signal("ramp from 0 in every second", everywhere(ramp(1.0)), 1.0),
    Signal("bursts and gaps of random length, 30 and 80 ms on average", everywhere(poisson(0.03, 0.08))),
    played("dense: Qwen2.5-7B, FSDP, one idle rail", DENSE, idle=IDLE),
    played("MoE: Mixtral-8x7B, FSDP, one idle rail", MOE, idle=IDLE),
    played("expert-parallel", ExpertParallel()),
)

SLOTS_MS = {2: 0.04, 4: 0.09, 15: 0.35, 20: 0.51}
RELATIVE = ("mean", "mean when active", "peak", "burst length", "gap length", "bursts", "step period")

PREFACE = f"""\
# Accuracy of the traffic statistics

Written by `python -m bench.traffic_accuracy`; do not edit. [accuracy.md](accuracy.md) has the errors of a running
daemon; this page has the errors of the statistics themselves, with deliberate sampling faults.

Each signal is known at every instant. Its counters are written into a ring as the sampler would have read them, for
{RAILS} rails every 10 ms; the window is {WINDOW_SECONDS} s. *Truth* is computed from the exact bytes of exact bins by
code that the exporter does not share; for *bursts* and their lengths it excludes the first and the last run. The other
columns are errors: relative for rates, lengths, counts and the period, absolute (±0.000) for the rest. `-` means that
no value is published; `none` means that there is nothing to find and nothing was found.

- *well*: every counter is read on time
- *1 % missing*, *10 % missing*: that share of reads is missing, at random. Each costs two samples and cuts bursts
  (*bursts* then only counts those of known length, which are biased towards short ones)
- *1 ms jitter*: every read is up to 1 ms late; *5 % late*: one read in twenty is 2 to 4.9 ms late. Rates are divided by
  measured time, so only the edges of samples move. The worst case is a square wave whose edges coincide with the
  samples: the small part that a late read moves across an edge turns a silent sample into an active one, and gives
  active samples different heights
- *20 resets*: the counters of each rail restart at zero twenty times
- *cached*: the counters are refreshed every 10 ms at a different phase and sampled every 30 ms, as the exporter does
  with counters in the kernel's cache. Anything shorter than three samples is smoothed, and CVs below that are not
  published

Periods below 0.2 s are too fast for the bins of the period search, and rejected.
"""


def main() -> None:
    """Measure every signal under every sampling and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.traffic_accuracy", description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE, help="Output file (default: docs/traffic-accuracy.md)")
    output = parser.parse_args().output
    page = "\n".join([PREFACE, *map(section, SIGNALS), slot_section()])
    output.write_text(page)
    print(page)


def section(signal: Signal) -> str:
    """The table of one signal."""
    truth = find_truth(signal, BEGIN_SECOND * 10**9, (BEGIN_SECOND + WINDOW_SECONDS) * 10**9)
    found = [statistics(measure(signal, sampling)) for sampling in SAMPLINGS]
    head = ["| | truth |" + "".join(f" {sampling.title} |" for sampling in SAMPLINGS), "|---|---:|" + "---:|" * 7]
    rows = [f"| {name} | {shown(name, value)} | {errors(name, value, found)} |" for name, value in truth.items()]
    return "\n".join([f"## {signal.title}\n", *head, *rows, ""])


def errors(name: str, truth: float, found: list[dict[str, float]]) -> str:
    """The cells of one statistic."""
    return " | ".join(error(name, truth, one[name]) for one in found)


def error(name: str, truth: float, value: float) -> str:
    """One error as text."""
    if np.isnan(truth) or truth == value == 0:
        return "none" if value == 0 or np.isnan(value) else f"**{shown(name, value)}**"
    if np.isnan(value):
        return "-"
    return f"{100 * (value / truth - 1):+.2f} %" if name in RELATIVE and truth else f"{value - truth:+.3f}"


def shown(name: str, value: float) -> str:
    """A value with its unit."""
    if np.isnan(value):
        return "none"
    if name in ("mean", "mean when active", "peak"):
        return f"{value / 1e9:.1f} GB/s"
    if name in ("burst length", "gap length", "step period"):
        return f"{value:.4f} s"
    return f"{value:.0f}" if name == "bursts" else f"{value:.3f}"


def slot_section() -> str:
    """A table that shows how the CV depends on the time scale."""
    head = [
        "## The same load in slots of different lengths\n",
        "Busy for 55 % of the time at one rate, in slots of equal length with 10 % jitter. The rows differ only in the "
        "length of the slots. The CV at 10 ms depends on it, because it measures slots relative to samples.\n",
        "| slot | published CV at 10 ms | measured | exact | at 50 ms | at 100 ms |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    rows = []
    for slot_ms, published in SLOTS_MS.items():
        signal = slots(slot_ms)
        truth = find_truth(signal, BEGIN_SECOND * 10**9, (BEGIN_SECOND + WINDOW_SECONDS) * 10**9)
        found = statistics(measure(signal, SAMPLINGS[0]))
        cells = [published, found["CV at 10 ms"], truth["CV at 10 ms"], found["CV at 50 ms"], found["CV at 100 ms"]]
        rows.append(f"| {signal.title} |" + "".join(f" {value:.2f} |" for value in cells))
    return "\n".join([*head, *rows, ""])


def measure(signal: Signal, sampling: Sampling) -> Summary:
    """The summary of a window of a signal with a given sampling."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        ticks = SECONDS * 10**9 // signal.tick_ns
        ring = RingFile.create(Path(folder) / "ring", signal.tick_ns, ticks + 100)
        ring.begin_segment(1, 0)
        fill(ring, signal, sampling, ticks)
        reader = RingReader(ring)
        ports = build_fabric(RAILS).ports
        end_ns = (BEGIN_SECOND + WINDOW_SECONDS) * 10**9
        now_ns = SECONDS * 10**9
        try:
            return summarize(reader, ports, PortHistory(), AggregatorOptions(), WINDOW_SECONDS, end_ns, now_ns)
        finally:
            del reader
            ring.close()


def fill(ring: RingFile, signal: Signal, sampling: Sampling, ticks: int) -> None:
    """Write the records of every rail."""
    rng = np.random.default_rng(11)
    numbers = np.arange(1, ticks + 1)
    times = numbers * signal.tick_ns + rng.integers(0, sampling.jitter_ns + 1, ticks)
    times += np.where(rng.random(ticks) < sampling.late, rng.integers(*sampling.late_ns, ticks), 0)
    read = times - (times - 3_000_000) % REFRESH_NS if sampling.cached else times
    moved = np.floor(signal.flowed(np.maximum(read, 0)) / SCALE).astype(np.uint64)
    kept = (rng.random(ticks) >= sampling.lost) & (numbers % sampling.stride == 0)
    words = np.frombuffer(ring.words, dtype=np.uint64)
    for rail, port in enumerate(build_fabric(RAILS).ports):
        slot = ring.assign(str(port.id), SCALE, sampling.stride)
        counters = moved[:, rail].copy()
        for reset in rng.choice(ticks, sampling.resets, replace=False):
            counters[reset:] = moved[reset:, rail] - moved[reset, rail]
        begin = at.records_at(slot, ring.capacity)
        records = words[begin : begin + ring.capacity * at.RECORD_WORDS].reshape(ring.capacity, at.RECORD_WORDS)
        mine = numbers[kept] % ring.capacity
        for word in (at.R_BEFORE, at.R_BETWEEN, at.R_AFTER):
            records[mine, word] = times[kept]
        records[mine, at.R_TRANSMIT], records[mine, at.R_RECEIVE] = counters[kept, 0], counters[kept, 1]
        records[mine, at.R_TICK] = numbers[kept]
    ring.words[at.lane_at(0) + at.L_TICK] = ticks


def statistics(summary: Summary) -> dict[str, float]:
    """The statistics of a summary, by their names on the page."""
    node = summary.node
    numbers: dict[str, float | None] = {
        "mean": (node.transmit_bytes_per_second or 0.0) + (node.receive_bytes_per_second or 0.0),
        "mean when active": node.bandwidth_active_mean_bytes_per_second,
        "peak": node.bandwidth_peak_bytes_per_second,
        "duty cycle": node.duty_cycle_ratio,
        "burst length": node.bursts.mean_seconds,
        "gap length": node.gaps.mean_seconds,
        "bursts": float(node.bursts.count),
        "Jain index": node.rail_fairness_ratio,
        "step period": node.step_period_seconds,
    }
    for scale in ("10ms", "50ms", "100ms", "1s"):
        name = f"CV at {1000 if scale == '1s' else scale.removesuffix('ms')} ms"
        numbers[name] = node.burstiness_cv[scale]
    return {name: float("nan") if value is None else value for name, value in numbers.items()}


if __name__ == "__main__":
    main()
