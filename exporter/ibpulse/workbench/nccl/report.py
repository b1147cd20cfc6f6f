"""Achieved bandwidth against the hardware's bound and against a recording, as text and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ibpulse.base import document
from ibpulse.base.document import Section
from ibpulse.base.text import NOT_KNOWN, count_text, percent, size_text, statistic_text, time_text
from ibpulse.core.recordings import Recording
from ibpulse.workbench.nccl.grades import GradedResult, KnownHardware, Suspect, find_suspects, grade
from ibpulse.workbench.nccl.results import BenchmarkRun
from ibpulse.workbench.nccl.trains import WireComparison, compare_trains

_HEADINGS = ("collective", "size", "placement", "time", "busbw", "bound", "achieved", "tier", "grade", "wrong")


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """A run with its result rows, the comparison with a recording if there is one, and suspects."""

    run: BenchmarkRun
    rows: tuple[GradedResult, ...]
    hardware: KnownHardware
    wire: WireComparison | None = None
    suspects: tuple[Suspect, ...] = ()


def describe_benchmark(run: BenchmarkRun, hardware: KnownHardware) -> BenchmarkReport:
    """The report of a run without a recording."""
    return BenchmarkReport(run, tuple(grade(run, row, hardware) for row in run.measurements), hardware)


def compare_with_wire(
    report: BenchmarkReport, recording: Recording, threshold: float, mtu_bytes: int | None
) -> BenchmarkReport:
    """The report with the traffic of one of the run's nodes; `threshold` is the least rate of traffic, in bytes/s."""
    ranks, nodes = report.hardware.ranks or report.run.ranks, report.hardware.nodes or report.run.nodes
    wire = compare_trains(report.run, ranks, nodes, recording, threshold, mtu_bytes)
    good = {row.grade for row in report.rows} - {""} == {"good"}
    rails = [port for port in recording.meta.ports if port.rail]
    suspects = () if good else tuple(find_suspects(rails, [share for _, share in wire.rails]))
    return replace(report, wire=wire, suspects=suspects)


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
    if report.suspects:
        lines = [f"{one.rail}: {one.kind}: {one.evidence}" for one in report.suspects]
        sections.append(Section("suspects (guesses)", lines=lines))
    return document.render_text(sections)


def _hardware_text(hardware: KnownHardware) -> str:
    """The hardware that the bounds are computed from, as given or as of the recording."""
    rate, gpu_rate = _rate(hardware.rail_rate), _rate(hardware.gpu_rate)
    rails = NOT_KNOWN if hardware.rails is None else str(hardware.rails)
    return f"rails {rails}, rate {rate}, GPU links {gpu_rate}, algorithm {hardware.algorithm or NOT_KNOWN}"


def _cells(result: GradedResult) -> tuple[str, ...]:
    row, theory = result.row, result.theory
    low, high = result.ratios
    bounds = [_rate(each) for each in dict.fromkeys((theory.low, theory.high)) if each is not None]
    if theory.low is not None and theory.high is None:
        bounds.append("unknown")
    achieved = [_percent(each) for each in dict.fromkeys((low, high)) if each is not None]
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


def _percent(ratio: float) -> str:
    """A ratio in percent, which may be above 100."""
    return f"{100 * ratio:.1f} %"


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


def render_json(reports: Sequence[BenchmarkReport]) -> str:
    """The reports as JSON: rates in bytes per second, times in seconds, null for what is unknown."""
    return document.render_json("nccl_report_version", {"runs": [_as_json(report) for report in reports]})


def _as_json(report: BenchmarkReport) -> dict[str, object]:
    run = report.run
    return {
        "file": str(run.path).encode("utf-8", "backslashreplace").decode(),
        "format": run.form,
        "format_version": run.version or None,
        "ranks": run.ranks,
        "nodes": run.nodes,
        "groups": run.groups,
        "hardware": {
            "ranks": report.hardware.ranks,
            "nodes": report.hardware.nodes,
            "rails": report.hardware.rails,
            "rail_bytes_per_second": report.hardware.rail_rate,
            "gpu_bytes_per_second": report.hardware.gpu_rate,
            "algorithm": report.hardware.algorithm or None,
        },
        "device": run.device or None,
        "complete": run.complete,
        "remarks": list(run.remarks),
        "rows": [_row_as_json(row) for row in report.rows],
        "wire": None if report.wire is None else _wire_as_json(report.wire),
        "suspects": [{"rail": one.rail, "kind": one.kind, "evidence": one.evidence} for one in report.suspects],
    }


def _row_as_json(result: GradedResult) -> dict[str, object]:
    row = result.row
    names = ("size_bytes", "seconds", "algorithm_bytes_per_second", "bus_bytes_per_second", "wrong", "operations")
    return {
        "collective": row.collective or None,
        "placement": row.placement or None,
        **{name: getattr(row, name) for name in names},
        "algorithm": row.algorithm or None,
        "protocol": row.protocol or None,
        "bound_bytes_per_second": [result.theory.low, result.theory.high],
        "achieved_ratio": list(result.ratios),
        "tier": result.theory.tier or None,
        "unknown": list(result.theory.missing),
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
                "explanations": list(names),
            }
            for found, names in zip(alignment.found, wire.causes, strict=True)
        ],
        "expected_bytes": wire.expected_bytes,
        "recorded_bytes": wire.recorded_bytes,
        "missing_ratio": wire.missing_ratio,
        "rails": [{"rail": name, "share_ratio": share} for name, share in wire.rails],
    }
