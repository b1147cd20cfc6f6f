"""Runs known schedules under the real daemon and compares its metrics with the truth.

The counters are computed at the moment of each read (a FUSE tree), so the only errors are those of the exporter and of
the machine's clock. The truth is the exact integral of the schedule, computed by code independent of the exporter.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.processes import compete
from ibpulse.units import format_duration
from tests.fusefabric.client import FuseFabric, why_not
from tests.running import Metrics, Running

PORTS = 8
SECONDS = 60
SETTLE_SECONDS = 3
# the interval follows the read times of 3 s, every 2 s; how long it must stay the same, and how often that is tried
STEADY_SECONDS = 10
TRIES = 12
WAYS = ("transmit", "receive")
BYTES = ("transmit_bytes", "receive_bytes")
SCALES_MS = (10, 100)
# its edges fall on all parts of a sample alike: of a wave in step with the samples, duty cycle and variation depend
# on the moment of the reads, which no truth knows
WAVE = {"rate_bytes_per_second": 20e9, "period_ns": 187_300_000, "duty": 0.37}
# from 20 us to 0.9 ms, and what the server of the tree adds
SLOW = {"quickest_seconds": 20e-6, "delay_seconds": 0.9e-3}


@dataclass(frozen=True)
class Case:
    """A schedule to measure; `busy` if other processes compute without pause."""

    workload: str
    options: Mapping[str, Any] = field(default_factory=dict)
    reads: Mapping[str, float] = field(default_factory=dict)
    busy: bool = False


# the cases of each column of the page
COLUMNS = (
    (
        Case("constant", {"rate_bytes_per_second": 20e9}),
        Case("square", WAVE),
        Case("dense"),
        Case("moe"),
        Case("expert-parallel"),
    ),
    (Case("square", WAVE, reads=SLOW),),
    (Case("square", WAVE, reads=SLOW, busy=True),),
)


def measure() -> dict[str, list[str]]:
    """The range of the errors in each column, by the name of the number."""
    if reason := why_not():
        raise SystemExit(f"the exact fabric cannot be mounted: {reason}")
    columns = [find_ranges(cases) for cases in COLUMNS]
    return {name: [column.get(name, "-") for column in columns] for name in columns[0]}


def find_ranges(cases: Iterable[Case]) -> dict[str, str]:
    """The least and the largest error of each number in some cases."""
    errors = defaultdict(list)
    for case in cases:
        found = list(run(case))
        print(case, *(f"{name}: {shown(name, error)}" for name, error in found), sep="\n  ", flush=True)
        for name, error in found:
            errors[name].append(error)
    return {
        name: " to ".join(dict.fromkeys(shown(name, error) for error in (min(found), max(found))))
        for name, found in errors.items()
    }


def shown(name: str, error: float) -> str:
    """An error as text, relative for rates and bytes."""
    if name == "time observed":
        return f"{error:.0%}".replace("%", " %")
    if name == "interval":
        return f"{1000 * error:g} ms"
    if name == "duty cycle" or name.startswith("CV"):
        return signed(error, 3)
    return f"{signed(100 * error, 3 if name == 'bytes' else 2)} %"


def signed(value: float, digits: int) -> str:
    """A number with its sign, which is + for 0."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def run(case: Case) -> Iterator[tuple[str, float]]:
    """Run a schedule under the daemon; yields the error of each number."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch, ExitStack() as stack:
        place = Path(scratch)
        fabric = stack.enter_context(FuseFabric(place / "sys", case.workload, case.options, ports=PORTS))
        set_all(fabric, factor=0.0)
        daemon = stack.enter_context(Running(fabric.root, place / "ring", interval="10ms"))
        if case.busy:
            stack.enter_context(compete())
        # byte totals are read in silence, because a scrape does not say at which sample they end
        before = daemon.metrics()
        begins_ns = set_all(fabric, **case.reads)
        settled = wait_until_steady(daemon)
        time.sleep(SECONDS)
        metrics = daemon.metrics()
        ends_ns = set_all(fabric, factor=0.0)
        time.sleep(SETTLE_SECONDS)
        after = daemon.metrics()
        spans = zip(begins_ns, ends_ns, strict=True)
        flowed = sum(
            fabric.truth(begin, end, end - begin, rails=[rail]).total_bytes for rail, (begin, end) in enumerate(spans)
        )
        yield "bytes", (total(after, *BYTES) - total(before, *BYTES)) / flowed - 1
        seen = total(metrics, "observed_seconds") - total(settled, "observed_seconds")
        yield "time observed", seen / PORTS / (until(metrics) - until(settled))
        interval = sampling_interval(metrics)
        if sampling_interval(settled) != interval:
            print(f"the interval was {sampling_interval(settled)} s and is {interval} s: no truth is that of both")
            return
        yield "interval", interval
        yield from compare(fabric, metrics, round(interval * 1e9))


def set_all(fabric: FuseFabric, **rule: float) -> list[int]:
    """Give each device a rule; from when on it holds, in ns."""
    return [fabric.set(device.name, **rule) for device in fabric.devices]


def total(metrics: Metrics, *names: str) -> float:
    """The sum of counters over all ports."""
    return sum(sum(metrics.find(f"ibpulse_port_{name}_total").values()) for name in names)


def until(metrics: Metrics) -> int:
    """The wall second up to which the daemon has aggregated samples."""
    return int(metrics.value("ibpulse_aggregated_until_timestamp_seconds"))


def wait_until_steady(daemon: Running) -> Metrics:
    """The metrics once the sampling interval stays the same."""
    metrics = daemon.metrics()
    for _ in range(TRIES):
        before = metrics
        time.sleep(STEADY_SECONDS)
        metrics = daemon.metrics()
        if sampling_interval(metrics) == sampling_interval(before):
            break
    return metrics


def sampling_interval(metrics: Metrics) -> float:
    """That of the port which is sampled least often, in seconds."""
    return max(metrics.find("ibpulse_port_sampling_interval_seconds").values())


def compare(fabric: FuseFabric, metrics: Metrics, sample_ns: int) -> Iterator[tuple[str, float]]:
    """Compare the last window with the schedule's truth, in samples of all ports at one time."""
    end_ns = until(metrics) * 10**9 - fabric.wall_offset_ns
    begin_ns, window = end_ns - SECONDS * 10**9, format_duration(SECONDS * 10**9)
    span = (begin_ns, end_ns, sample_ns)
    truth = fabric.truth(*span)
    mean = sum(metrics.value(f"ibpulse_node_{way}_bytes_per_second", window=window) for way in WAYS)
    yield "mean", mean / truth.mean - 1
    active = metrics.value("ibpulse_node_bandwidth_active_mean_bytes_per_second", window=window)
    yield "mean when active", active / truth.active_mean - 1
    peak = metrics.value("ibpulse_node_bandwidth_peak_bytes_per_second", window=window)
    yield "peak of the node", peak / truth.peak - 1
    for rail in range(PORTS):
        for number, way in enumerate(WAYS):
            peak = metrics.port(f"{way}_peak_bytes_per_second", f"mlx5_{rail}", window=window)
            yield "peak of a port", peak / fabric.truth(*span, rails=[rail], directions=[number]).peak - 1
    yield "duty cycle", metrics.value("ibpulse_node_duty_cycle_ratio", window=window) - truth.duty
    for scale_ms in SCALES_MS:
        # not published where samples are longer, or too few were captured
        for cv in metrics.find("ibpulse_node_burstiness_cv", window=window, timescale=f"{scale_ms}ms").values():
            yield f"CV at {scale_ms} ms", cv - fabric.truth(begin_ns, end_ns, scale_ms * 1_000_000).cv
