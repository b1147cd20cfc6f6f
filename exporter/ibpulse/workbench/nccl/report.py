"""Achieved bandwidth against the hardware's bound and against a recording, as text and as JSON.

The trains of a run of nccl-tests are found in a recording by bytes and order. A train is the traffic of one size and
placement: one operation to synchronise and iterations × aggregated timed ones, without a pause (NVIDIA/nccl-tests,
src/common.cu, BenchTime). With verification, the host initialises and compares in between, so trains stand apart by
silence. No file has times below one second, so nothing is matched by time.

Trains last and carry what the file says, up to one unknown factor on bytes (protocol, headers, algorithm). For each
factor that could explain the bytes, the cheapest assignment in order is found; the cheapest of all is the alignment.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.base import document
from ibpulse.base.document import Section, members_of
from ibpulse.base.text import NOT_KNOWN, count_text, names_text, percent, size_text, statistic_text, time_text
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Floats, Rows
from ibpulse.core.recordings import Recording
from ibpulse.core.recordings.limits import SignalChange, signal_changes
from ibpulse.core.statistics.steps.runs import find_runs
from ibpulse.workbench.nccl import results
from ibpulse.workbench.nccl.grades import GradedResult, KnownHardware, Suspect, find_suspects, grade

MIN_SAMPLES = 5
"""Shorter trains are not resolved: their duration would be uncertain by more than 40 %."""
MAX_PAIRS = 5_000_000
"""Trains times bursts; each takes 16 bytes."""
# cost of a train without a burst, in units of a natural logarithm: one of bytes or duration that is off by 16 %
UNMATCHED = 0.15
NO_RAIL = "it has no rail"


@dataclass(frozen=True, slots=True)
class Train:
    """The expected traffic of one row: payload bytes that a node sends with the first algorithm, and its seconds."""

    row: results.Measurement
    sent_bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Matched:
    """A train found in the recording: the indices of its first sample and of the one after its last.

    `ratio` is bytes on the wire divided by expected payload; `rail_bytes` has the bytes of each rail.
    """

    train: Train
    first: int
    end: int
    ratio: float
    rail_bytes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Alignment:
    """Trains found, out of `expected`; `short` were too short to be resolved. Both need the file's plan and ranks.

    `problem` says why nothing could be aligned.
    """

    found: tuple[Matched, ...] = ()
    expected: int = 0
    short: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class WireComparison:
    """A run against a recording: trains with their explanations, bytes of the whole run, and shares of the rails.

    `expected_bytes` is the payload of all rails in the whole run, None if unknown; `recorded_bytes` what they sent.
    """

    alignment: Alignment
    causes: tuple[tuple[str, ...], ...]
    expected_bytes: float | None
    recorded_bytes: float
    missing_ratio: float
    rails: tuple[tuple[str, float | None], ...]


def expected_trains(run: results.BenchmarkRun, ranks: int, nodes: int) -> list[Train]:
    """The trains of a run in order, of rows with a known time; bytes are those of the collective's first algorithm."""
    plan = run.plan
    trains = []
    for row in run.measurements:
        sent = results.first_bytes(row.collective, row.size_bytes, ranks, nodes)
        if plan and sent and row.seconds:
            operations = plan.iterations * plan.aggregated + 1
            trains.append(Train(row, sent * operations, row.seconds * operations))
    return trains


def total_bytes(run: results.BenchmarkRun, plan: results.RunPlan, ranks: int, nodes: int) -> float | None:
    """Payload bytes that a node sends in the whole run, with warm-up and verification; None if that is not known."""
    collective = run.measurements[0].collective
    if not results.ALGORITHMS.get(collective):
        return None

    def sent(size: float) -> float:
        return results.first_bytes(collective, size, ranks, nodes) or 0.0

    total, size = 0.0, plan.first_bytes
    while 0 < size <= plan.last_bytes:
        total += plan.warmups * sent(size)
        size *= 2
    operations = 1 + plan.iterations * plan.aggregated + plan.checks
    return total + sum(operations * sent(row.size_bytes) for row in run.measurements)


def find_bursts(recording: Recording, rows: list[int], active_bytes_per_second: float) -> tuple[Rows, Rows, Floats]:
    """Runs of samples in which the rails `rows` together send more than a threshold; a missing sample ends a run.

    The result is the index of the first sample of each, of the one after its last, and bytes (rails, runs).
    """
    rates = recording.bytes_per_second[rows, 0]
    amounts = rates * recording.seconds[rows, 0]
    active: Bools = rates.sum(axis=0) > active_bytes_per_second
    first, end = find_runs(active)
    sums = np.concatenate((np.zeros((len(rows), 1)), np.nancumsum(amounts, axis=1)), axis=1)
    return first, end, sums[:, end] - sums[:, first]


def align(
    run: results.BenchmarkRun, ranks: int, nodes: int, recording: Recording, rows: list[int], threshold: float
) -> Alignment:
    """The trains of a run in the transmitted traffic of the rails `rows` of a recording."""
    interval = recording.meta.interval_ns / 1e9
    trains = expected_trains(run, ranks, nodes)
    if not trains:
        return Alignment(problem="the file does not say how many operations it ran, or its bytes are not known")
    long = [train for train in trains if train.seconds >= MIN_SAMPLES * interval]
    short = len(trains) - len(long)
    first, end, rail_bytes = find_bursts(recording, rows, threshold)
    lasting = np.flatnonzero(end - first >= MIN_SAMPLES - 1)
    if not long or not lasting.size or len(long) * lasting.size > MAX_PAIRS:
        problem = f"{len(long)} trains and {lasting.size} bursts of at least {MIN_SAMPLES} samples"
        return Alignment(expected=len(trains), short=short, problem=f"cannot align {problem}")
    moved = rail_bytes[:, lasting].sum(axis=0)
    seconds = (end - first)[lasting].astype(np.float64) * interval
    expected = np.array([[train.sent_bytes, train.seconds] for train in long])
    low, high = results.header_factors()
    factors = [
        math.sqrt(low * high) * size for size in results.explanations(long[0].row.collective, ranks, nodes).values()
    ]
    assigned = (_assign(expected * (factor, 1), moved, seconds, interval) for factor in factors)
    best = min(assigned, key=lambda one: one[0])[1]
    found = []
    for train, place in zip(long, best, strict=True):
        if place is not None:
            at = int(lasting[place])
            rails = rail_bytes[:, at]
            ratio = float(rails.sum() / train.sent_bytes)
            found.append(Matched(train, int(first[at]), int(end[at]), ratio, tuple(map(float, rails))))
    return Alignment(tuple(found), len(trains), short)


def _assign(expected: Floats, moved: Floats, seconds: Floats, interval: float) -> tuple[float, list[int | None]]:
    """The cheapest assignment of trains to bursts in order, as the index of each train's burst, and its cost.

    A train costs the difference of logarithms of its bytes and of its duration, beyond one sample in total, or
    `UNMATCHED` without a burst. Bursts that no train needs, such as warm-up and verification, cost nothing.
    """
    table, costs = [np.zeros(moved.size + 1)], []
    for sent, lasts in expected:
        cost = np.abs(np.log(moved / sent))
        cost += np.maximum(0, np.abs(np.log(seconds / lasts)) - math.log1p(interval / lasts))
        matched = np.concatenate(([np.inf], table[-1][:-1] + cost))
        costs.append(cost)
        table.append(np.minimum.accumulate(np.minimum(matched, table[-1] + UNMATCHED)))
    places: list[int | None] = [None] * len(expected)
    end = moved.size
    for row in range(len(expected), 0, -1):
        while end and table[row][end] == table[row][end - 1]:
            end -= 1
        if end and table[row][end] == table[row - 1][end - 1] + costs[row - 1][end - 1]:
            end -= 1
            places[row - 1] = end
    return float(table[-1][-1]), places


def compare_trains(
    run: results.BenchmarkRun,
    ranks: int | None,
    nodes: int | None,
    recording: Recording,
    threshold: float,
    mtu_bytes: int | None,
) -> WireComparison:
    """A run against the recording of one of its nodes; `threshold` is the least rate of traffic, in bytes/s."""
    rows = [row for row, port in enumerate(recording.meta.ports) if port.rail]
    ports = [recording.meta.ports[row] for row in rows]
    expected, factors = None, {}
    alignment = Alignment(problem="ranks and nodes are unknown; give --ranks and --nodes" if rows else NO_RAIL)
    if ranks and nodes and not ranks % nodes:
        if rows:
            alignment = align(run, ranks, nodes, recording, rows, threshold)
        expected = total_bytes(run, run.plan, ranks, nodes) if run.plan else None
        factors = {row.collective: results.explanations(row.collective, ranks, nodes) for row in run.measurements}
    layers = {port.identity.link_layer for port in ports}
    headers = results.header_factors(layers.pop() if len(layers) == 1 else "", mtu_bytes)
    causes = (results.explain(found.ratio, factors[found.train.row.collective], headers) for found in alignment.found)
    sent = recording.bytes_per_second[rows, 0] * recording.seconds[rows, 0]
    moved = [sum(found.rail_bytes[rail] for found in alignment.found) for rail in range(len(ports))]
    return WireComparison(
        alignment,
        tuple(map(tuple, causes)),
        expected,
        float(np.nansum(sent)),
        float(np.isnan(sent).mean()) if sent.size else 1.0,
        tuple(
            (str(port.id), amount / sum(moved) if any(moved) else None)
            for port, amount in zip(ports, moved, strict=True)
        ),
    )


_HEADINGS = ("collective", "size", "placement", "time", "busbw", "bound", "achieved", "tier", "grade", "wrong")


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """A run with its result rows, the comparison with a recording if there is one, and suspects.

    `signals` is what the counters of congestion of the recorded node gained.
    """

    run: results.BenchmarkRun
    rows: tuple[GradedResult, ...]
    hardware: KnownHardware
    wire: WireComparison | None = None
    suspects: tuple[Suspect, ...] = ()
    signals: tuple[SignalChange, ...] = ()


def describe_benchmark(
    run: results.BenchmarkRun,
    hardware: KnownHardware,
    recording: Recording | None = None,
    threshold: float = 0.0,
    mtu_bytes: int | None = None,
) -> BenchmarkReport:
    """The report of a run, compared with the recording of one of its nodes if that is given.

    `threshold` is the least rate of traffic in bytes/s, `mtu_bytes` that of the rails, None if unknown.
    """
    rows = tuple(grade(run, row, hardware) for row in run.measurements)
    if recording is None:
        return BenchmarkReport(run, rows, hardware)
    ranks, nodes = hardware.ranks or run.ranks, hardware.nodes or run.nodes
    wire = compare_trains(run, ranks, nodes, recording, threshold, mtu_bytes)
    good = {row.grade for row in rows} - {""} == {"good"}
    rails = [row for row, port in enumerate(recording.meta.ports) if port.rail]
    ports = [recording.meta.ports[row] for row in rails]
    suspects = () if good else tuple(find_suspects(ports, [share for _, share in wire.rails]))
    signals = signal_changes(_during(recording, wire.alignment.found), rails)
    return BenchmarkReport(run, rows, hardware, wire, suspects, tuple(signals))


def _during(recording: Recording, trains: Sequence[Matched]) -> Recording:
    """The recording from the first to the last train, or all of it without any."""
    if not trains:
        return recording
    first, end = min(found.first for found in trains), max(found.end for found in trains)
    # a reading before and one after them
    more = SECOND_NS // recording.meta.interval_ns
    return recording.cut(max(0, first - more), min(recording.ticks, end + more))


def render_text(report: BenchmarkReport) -> str:
    """The report as lines of text."""
    run = report.run
    known = [
        run.form + (f" version {run.version}" if run.version else ""),
        *([count_text(run.ranks, "rank")] if run.ranks else []),
        *([count_text(run.nodes, "node")] if run.nodes else []),
        *([f"{run.groups} groups in parallel, rates are per group"] if run.groups > 1 else []),
        *([run.device] if run.device else []),
    ]
    notes = [f"note: {remark}" for remark in run.remarks]
    sections = [
        Section(", ".join((str(run.path), *known)), lines=[*notes, f"compared with {_hardware_text(report.hardware)}"]),
        Section("", _HEADINGS, [_cells(row) for row in report.rows], left=range(len(_HEADINGS))),
    ]
    missing = sorted({name for row in report.rows for name in row.theory.missing})
    if missing:
        sections.append(Section(lines=[f"Unknown, so bounds are missing or uncertain: {', '.join(missing)}"]))
    if report.wire:
        sections.append(_wire_section(report.wire))
    if report.signals:
        sections.append(_signal_section(report.signals))
    if report.suspects:
        lines = [f"{one.rail}: {one.kind}: {one.evidence}" for one in report.suspects]
        sections.append(Section("suspects (guesses)", lines=lines))
    return document.render_text(sections)


def _hardware_text(hardware: KnownHardware) -> str:
    """The hardware that the bounds are computed from, as given or as of the recording."""
    rate, gpu_rate = _rate(hardware.rail_bytes_per_second), _rate(hardware.gpu_bytes_per_second)
    rails = NOT_KNOWN if hardware.rails is None else str(hardware.rails)
    return f"rails {rails}, rate {rate}, GPU links {gpu_rate}, algorithm {hardware.algorithm or NOT_KNOWN}"


def _cells(result: GradedResult) -> tuple[str, ...]:
    row, theory = result.row, result.theory
    low, high = result.ratios
    bounds = [_rate(each) for each in dict.fromkeys((theory.low, theory.high)) if each is not None]
    if theory.low is not None and theory.high is None:
        bounds.append("unknown")
    achieved = [f"{100 * each:.1f} %" for each in dict.fromkeys((low, high)) if each is not None]
    return (
        row.collective or NOT_KNOWN,
        statistic_text(row.size_bytes, "bytes"),
        row.placement or NOT_KNOWN,
        NOT_KNOWN if row.seconds is None else time_text(row.seconds),
        _rate(row.bus_bytes_per_second),
        " to ".join(bounds) or NOT_KNOWN,
        " to ".join(achieved) or NOT_KNOWN,
        theory.tier or NOT_KNOWN,
        result.grade or f"({result.reason})",
        NOT_KNOWN if row.wrong is None else f"{row.wrong:g}",
    )


def _rate(value: float | None) -> str:
    return NOT_KNOWN if value is None else statistic_text(value, "rate")


def _wire_section(wire: WireComparison) -> Section:
    alignment = wire.alignment
    if alignment.problem:
        return Section(f"recording: not aligned: {alignment.problem}")
    trains = f"{len(alignment.found)} of {alignment.expected} trains found"
    title = f"recording: {trains}, {alignment.short} too short to resolve"
    heads = ("size", "placement", "samples", "wire / expected", "explanation")
    rows = [
        (
            statistic_text(found.train.row.size_bytes, "bytes"),
            found.train.row.placement or NOT_KNOWN,
            f"{found.first} to {found.end - 1}",
            f"{found.ratio:.4f}",
            " or ".join(names) or "unexplained",
        )
        for found, names in zip(alignment.found, wire.causes, strict=True)
    ]
    lines = [] if rows else ["no train found: another node, another run, or traffic that stayed on GPU links"]
    if wire.expected_bytes:
        lines.append(
            f"whole run: expected payload {size_text(wire.expected_bytes)}, recorded {size_text(wire.recorded_bytes)}, "
            f"{percent(wire.missing_ratio)} of samples missing"
        )
    lines += [f"rail {name}: {percent(share)} of the bytes of the trains" for name, share in wire.rails]
    return Section(title, heads if rows else (), rows, lines, left=(1, 4))


def _signal_section(changes: Sequence[SignalChange]) -> Section:
    rows = [
        (
            change.name,
            NOT_KNOWN if change.gained is None else f"{change.gained:,.0f}",
            change.unit,
            ", ".join(
                f"{word} on {names_text(rails)}"
                for word, rails in (("full", change.full), ("not known", change.unknown))
                if rails
            ),
        )
        for change in changes
    ]
    return Section("counters of congestion, all rails", ("counter", "change", "unit", ""), rows, left=(0, 2, 3))


def render_json(reports: Sequence[BenchmarkReport]) -> str:
    """The reports as JSON: rates in bytes per second, times in seconds, null for what is unknown."""
    return document.render_json("nccl_report_version", {"runs": [_as_json(report) for report in reports]})


def _as_json(report: BenchmarkReport) -> dict[str, object]:
    run = report.run
    return {
        "file": str(run.path).encode("utf-8", "backslashreplace").decode(),
        "format": run.form,
        "format_version": run.version or None,
        **members_of(run, "ranks", "nodes", "groups"),
        "hardware": report.hardware,
        "device": run.device or None,
        **members_of(run, "complete", "remarks"),
        "rows": [_row_as_json(row) for row in report.rows],
        "wire": report.wire and _wire_as_json(report.wire),
        **members_of(report, "suspects", "signals"),
    }


def _row_as_json(result: GradedResult) -> dict[str, object]:
    row = result.row
    return {
        "collective": row.collective or None,
        "placement": row.placement or None,
        **members_of(row, "size_bytes", "seconds", "algorithm_bytes_per_second", "bus_bytes_per_second"),
        **members_of(row, "wrong", "operations"),
        "algorithm": row.algorithm or None,
        "protocol": row.protocol or None,
        "bound_bytes_per_second": [result.theory.low, result.theory.high],
        "achieved_ratio": result.ratios,
        "tier": result.theory.tier or None,
        "unknown": result.theory.missing,
        "grade": result.grade or None,
        "reason": result.reason or None,
    }


def _wire_as_json(wire: WireComparison) -> dict[str, object]:
    alignment = wire.alignment
    ratios = [found.ratio for found in alignment.found]
    return {
        "problem": alignment.problem or None,
        "expected_trains": alignment.expected,
        "short_trains": alignment.short,
        "median_ratio": statistics.median(ratios) if ratios else None,
        "trains": [
            {
                "size_bytes": found.train.row.size_bytes,
                "placement": found.train.row.placement or None,
                "first_sample": found.first,
                "end_sample": found.end,
                "ratio": found.ratio,
                "explanations": names,
            }
            for found, names in zip(alignment.found, wire.causes, strict=True)
        ],
        **members_of(wire, "expected_bytes", "recorded_bytes", "missing_ratio"),
        "rails": [{"rail": name, "share_ratio": share} for name, share in wire.rails],
    }
