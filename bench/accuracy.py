"""Runs known schedules under the real daemon, compares its metrics with the truth, and writes docs/accuracy.md.

The counters are computed at the moment of each read (a FUSE tree), so the only errors are those of the exporter and of
the machine's clock. The truth is the exact integral of the schedule, computed by code independent of the exporter.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import peak_accuracy
from bench.machine import describe
from ibpulse.aggregator.options import TIMESCALES_NS, WINDOWS_NS
from ibpulse.units import SECOND_NS, format_duration
from tests.fusefabric.client import FuseFabric, why_not
from tests.running import Metrics, Running, eventually

PAGE = Path(__file__).parents[1] / "docs/accuracy.md"
SETTLE_SECONDS = 3
PEAK_SECONDS = 300
WINDOWS = [window_ns // SECOND_NS for window_ns in WINDOWS_NS]


@dataclass(frozen=True)
class Case:
    """A schedule to measure."""

    title: str
    workload: str
    options: Mapping[str, float]
    interval_ms: int = 10
    ports: int = 8


CASES = (
    Case("constant, 20 GB/s per port and direction", "constant", {"rate_bytes_per_second": 20e9}),
    Case(
        "square, 200 ms, 40 % on at 20 GB/s",
        "square",
        {"rate_bytes_per_second": 20e9, "period_ns": 200e6, "duty": 0.4},
    ),
    Case("dense: Qwen2.5-7B, FSDP", "dense", {}),
    Case("MoE: Mixtral-8x7B, FSDP", "moe", {}),
    Case("expert-parallel", "expert-parallel", {}),
    Case("constant at 1 ms, 2 ports", "constant", {"rate_bytes_per_second": 20e9}, 1, 2),
    Case(
        "square at 1 ms, 20 ms, 50 % on, 2 ports",
        "square",
        {"rate_bytes_per_second": 20e9, "period_ns": 20e6, "duty": 0.5},
        1,
        2,
    ),
)


@dataclass(frozen=True)
class Line:
    """A measured value and its truth; the value is None where the daemon published none."""

    what: str
    truth: float
    measured: float | None
    unit: str

    def row(self) -> str:
        if self.measured is None:
            return f"| {self.what} | {self.truth:,.3f}{self.unit} | not published: too few samples | |"
        relative = self.measured / self.truth - 1 if self.truth else 0.0
        error = f"{self.measured - self.truth:+.3f}" if self.unit == "" else f"{100 * relative:+.2f} %"
        return f"| {self.what} | {self.truth:,.3f}{self.unit} | {self.measured:,.3f}{self.unit} | {error} |"


def main() -> None:
    """Measure every case and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__)
    parser.add_argument(
        "--seconds", type=int, choices=WINDOWS, default=60, help="Length of each measurement (default: 60)"
    )
    parser.add_argument("--output", type=Path, default=PAGE, help="Output file (default: docs/accuracy.md)")
    options = parser.parse_args()
    seconds = options.seconds
    if reason := why_not():
        parser.error(f"the exact fabric cannot be mounted: {reason}")
    sections = [*(section(case, seconds) for case in CASES), peak_accuracy.section(PEAK_SECONDS)]
    page = "\n".join([*preface(seconds), *sections])
    options.output.write_text(page)
    print(page)


def preface(seconds: int) -> Iterator[str]:
    """The top of the page."""
    yield "# Accuracy\n"
    yield "Written by `make accuracy`; do not edit.\n"
    yield (
        f"Each schedule ran for {seconds} s on an exact fabric: a FUSE tree whose counters are computed at the moment "
        "of the read. *Truth* is the exact integral of the schedule over the same whole seconds; *measured* is the "
        "value in `/metrics`. Bandwidth is transmit + receive over all rails; active is above 0.1 GB/s; CV is sigma/mu "
        "of the active samples of 10 ms.\n"
    )
    yield (
        "The time *observed* is shorter than the time measured because the server of the tree is slow and shares the "
        "machine: samples that were too late, or took too long to be timed accurately, are missing and enter no "
        "statistic. On plain files and on real devices nearly all samples are captured, see "
        "[benchmarks.md](benchmarks.md). Byte totals continue across missing samples; at a second's end they are those "
        "of the last sample before it.\n"
    )
    yield (
        "If a schedule changes within a sample, the wake-up delay shifts the beginning and end of that sample, so "
        "peaks of single samples and CV have the largest errors. The worst case is a change exactly at a sample: a "
        "read that is slightly late then turns a silent sample into an active one.\n"
    )
    yield from describe()
    yield ""


def section(case: Case, seconds: int) -> str:
    """The table of one case."""
    lines = measure(case, seconds)
    head = [f"## {case.title}\n", "| | truth | measured | error |", "|---|---:|---:|---:|"]
    return "\n".join([*head, *(line.row() for line in lines), ""])


def measure(case: Case, seconds: int) -> list[Line]:
    """Run a schedule under the daemon and compare."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        place = Path(scratch)
        options = {name: int(value) if name == "period_ns" else value for name, value in case.options.items()}
        with (
            FuseFabric(place / "sys", case.workload, options, ports=case.ports) as fabric,
            Running(fabric.root, place / "ring", interval=f"{case.interval_ms}ms") as daemon,
        ):
            first = daemon.metrics()
            begin_at = until(first) + SETTLE_SECONDS
            end_at = begin_at + seconds
            before = eventually(lambda: at_second(daemon, begin_at), 60.0, 0.05)
            after = eventually(lambda: at_second(daemon, end_at), seconds + 60.0, 0.05)
            offset_ns = fabric.wall_offset_ns
            return list(
                compare(case, fabric, before, after, (begin_at, end_at), offset_ns, format_duration(int(seconds * 1e9)))
            )


def until(metrics: Metrics) -> int:
    """The wall second up to which the daemon has aggregated samples."""
    return int(metrics.value("ibpulse_aggregated_until_timestamp_seconds"))


def at_second(daemon: Running, wall_second: int) -> Metrics | None:
    """The scrape aggregated exactly up to a wall second; None before."""
    metrics = daemon.metrics()
    found = until(metrics)
    if found > wall_second:
        raise RuntimeError(f"the scrape for second {wall_second} was missed; the machine is too busy")
    return metrics if found == wall_second else None


def compare(
    case: Case,
    fabric: FuseFabric,
    before: Metrics,
    after: Metrics,
    span: tuple[int, int],
    offset_ns: int,
    window: str,
) -> Iterator[Line]:
    """Compare the metrics for a span of wall seconds with the schedule's truth."""
    begin_ns, end_ns = (int(second * 1e9) - offset_ns for second in span)
    bin_ns = case.interval_ms * 1_000_000
    truth = fabric.truth(begin_ns, end_ns, bin_ns)
    node = {
        name: after.value(f"ibpulse_node_{name}", window=window)
        for name in ("bandwidth_active_mean_bytes_per_second", "bandwidth_peak_bytes_per_second", "duty_cycle_ratio")
    }
    mean = sum(after.value(f"ibpulse_node_{way}_bytes_per_second", window=window) for way in ("transmit", "receive"))
    moved = sum(
        sum(after.find(f"ibpulse_port_{way}_bytes_total").values())
        - sum(before.find(f"ibpulse_port_{way}_bytes_total").values())
        for way in ("transmit", "receive")
    )
    yield Line("bandwidth, mean", truth.mean / 1e9, mean / 1e9, " GB/s")
    active = node["bandwidth_active_mean_bytes_per_second"]
    yield Line("bandwidth, mean when active", truth.active_mean / 1e9, active / 1e9, " GB/s")
    yield Line("bandwidth, peak", truth.peak / 1e9, node["bandwidth_peak_bytes_per_second"] / 1e9, " GB/s")
    yield Line("duty cycle", truth.duty, node["duty_cycle_ratio"], "")
    if bin_ns in TIMESCALES_NS:
        scale = format_duration(bin_ns)
        cv = after.find("ibpulse_node_burstiness_cv", window=window, timescale=scale).values()
        yield Line(f"burstiness, CV at {scale}", truth.cv, next(iter(cv), None), "")
    yield Line("bytes", truth.total_bytes / 1e9, moved / 1e9, " GB")
    port = fabric.truth(begin_ns, end_ns, bin_ns, rails=[0], directions=[0])
    peak = after.port("transmit_peak_bytes_per_second", "mlx5_0", window=window)
    yield Line("mlx5_0 transmit, peak", port.peak / 1e9, peak / 1e9, " GB/s")
    seen = after.port("observed_seconds_total", "mlx5_0") - before.port("observed_seconds_total", "mlx5_0")
    yield Line("time observed", float(span[1] - span[0]), seen, " s")


if __name__ == "__main__":
    main()
