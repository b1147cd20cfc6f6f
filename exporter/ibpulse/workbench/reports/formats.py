"""A report as plain text, Markdown, HTML and JSON."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from ibpulse.base import document
from ibpulse.base.document import Section, align_rows, members_of, wrap
from ibpulse.base.text import escape_controls
from ibpulse.base.units import SECOND_NS
from ibpulse.core.events import Event
from ibpulse.core.jobs import JobRecord
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.recordings import Recording
from ibpulse.core.recordings.perfetto import TracedNode, write_trace
from ibpulse.core.statistics.steps.phases import Phase
from ibpulse.workbench.reports import table
from ibpulse.workbench.reports.comparison import Report, look_next, steps_json
from ibpulse.workbench.reports.run import Run

TEMPLATE = Path(__file__).parent / "report.html.j2"
MAX_WIDTH = 120
MARK = " *"
# cut names to leave room for two columns and their change
MAX_NAME = 24
# samples of a recording that a page has for Perfetto: about 8 MB before compression
MAX_TRACED = 250_000


def render_json(report: Report) -> str:
    """The report as one JSON object; unknown values are null."""
    options = report.options
    members = {
        "missing": table.missing_text(report),
        "options": {
            **members_of(options, "trim", "active_bytes_per_second"),
            "timescales_seconds": [scale / SECOND_NS for scale in options.timescales_ns],
            **members_of(options, "least_change", "level", "resamples", "seed", "gpu_active"),
        },
        "rows": [members_of(row, "key", "section", "label", "unit", "definition") for row in report.rows],
        "recordings": [_recording(report, name, run) for name, run in zip(report.names, report.runs, strict=True)],
        "changes": [
            {"base": report.names[0], "name": name, "level_of_each": changes.level, "values": changes.by_key}
            for name, changes in zip(report.names[1:], report.changes, strict=True)
        ],
        "steps": report.steps and steps_json(report.steps),
        "look_next": look_next(report),
    }
    return document.render_json("ibpulse_report_version", members)


def _recording(report: Report, name: str, run: Run) -> dict[str, Any]:
    keys = [row.key for row in report.rows]
    intervals: dict[str, tuple[Any, Any]] = {
        key: run.spreads[key].interval(report.options.level) for key in keys if key in run.spreads
    }
    if run.missing_ratio:
        least = {row.key: run.values[row.key] for row in report.rows if row.at_least}
        intervals |= {key: (value, None) for key, value in least.items() if value is not None}
    return {
        "name": name,
        "file": str(run.path),
        **members_of(run.meta, "host", "source", "reason", "labels", "complete", "simulated"),
        "interval_seconds": run.meta.interval_ns / SECOND_NS,
        "begin": _instant(run.start_ns),
        "end": _instant(run.end_ns),
        "cut_before_seconds": run.cut_seconds[0],
        "cut_after_seconds": run.cut_seconds[1],
        "recorded": [way for way, there in zip(DIRECTIONS, run.recorded, strict=True) if there],
        "resampled": {"unit": run.units or None, "count": run.unit_count, "mean_seconds": run.unit_seconds},
        "values": {key: run.values[key] for key in keys},
        "intervals": intervals,
        **members_of(run, "ports", "compared"),
        "jobs": [_job(record) for record in run.jobs],
        "jobs_left_out": run.meta.jobs_left_out,
        "events": [_event(event) for event in run.events],
        **members_of(run, "events_left_out", "merged_samples", "assumed_rates", "limits", "limit_remarks"),
        "phases": [_phase(run, phase) for phase in run.phases],
        "phase_remarks": run.phase_remarks,
    }


def _phase(run: Run, phase: Phase) -> dict[str, Any]:
    interval_ns = run.meta.interval_ns
    return {
        "kind": phase.kind,
        "begin": _instant(run.start_ns + phase.first * interval_ns),
        "end": _instant(run.start_ns + phase.end * interval_ns),
        "uncertainty_seconds": phase.uncertainty * interval_ns / SECOND_NS,
        **members_of(phase, "certain", "doubt", "silent_seconds"),
        "transmitted_bytes": phase.transmitted,
        "received_bytes": phase.received,
    }


def _job(record: JobRecord) -> dict[str, Any]:
    """A job with its ports in the covered part; a time that is not known or still to come is null."""
    return {
        **record.job.claim.members,
        "basis": record.job.basis,
        "began": None if record.began_ns is None else _instant(record.began_ns),
        "began_uncertainty_seconds": record.began_uncertainty_ns / SECOND_NS,
        "ended": None if record.ended_ns is None else _instant(record.ended_ns),
        "ended_uncertainty_seconds": record.ended_uncertainty_ns / SECOND_NS,
        "had": [
            {
                "ports": [str(port) for port in each.ports],
                "from": None if each.since is None else _instant(each.since.time_ns),
                "to": None if each.until is None else _instant(each.until.time_ns),
            }
            for each in record.holdings
        ],
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "time": _instant(event.time_ns),
        "uncertainty_seconds": event.uncertainty_ns / SECOND_NS,
        **members_of(event, "kind", "subject", "text", "before", "after", "details"),
    }


def _instant(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def render_markdown(report: Report) -> str:
    """The report as one table; significant changes are bold."""
    heads = table.columns(report)
    lines = [_row("", [escape(head) for head in heads]), _row("---", ["---:"] * len(heads))]
    for section in table.sections(report):
        lines.append(_row(f"**{escape(section.title)}**", [""] * len(heads)))
        lines += [_row(escape(line.label), [_cell(cell) for cell in line.cells]) for line in section.lines]
    for notes in (*table.moment_sections(report), *table.step_notes(report)):
        lines += _list(notes)
    abouts = [f"- {escape(table.about(run))}" for run in report.runs]
    abouts += [f"- {escape(remark)}" for remark in table.remarks(report)]
    for notes in table.next_notes(report):
        abouts += _list(notes)
    head = [line for text in table.warnings(report) for line in (f"**{escape(text)}**", "")]
    return "\n".join(["# Report", "", *head, *lines, "", *abouts]) + "\n"


def _list(notes: Section) -> list[str]:
    return ["", f"**{escape(notes.title)}**", "", *(f"- {escape(line.strip())}" for line in notes.lines)]


def escape(text: str) -> str:
    """The text with the special characters of Markdown and HTML escaped."""
    text = escape_controls(text)
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text


def _cell(cell: table.Cell) -> str:
    text = escape(cell.text)
    return f"**{text}** \\*" if cell.differs else text


def _row(label: str, texts: Sequence[str]) -> str:
    return f"| {' | '.join([label, *texts])} |"


@dataclass(frozen=True, slots=True)
class PagePicture:
    """A picture of the recordings for a page, as PNG in light and dark colours, and a caption."""

    light: bytes
    dark: bytes
    caption: str = ""


def render_page(
    report: Report, picture: PagePicture | None = None, recordings: Sequence[Recording] = (), ports: Sequence[str] = ()
) -> str:
    """The report as HTML, with a picture below the heading if there is one, and short recordings for Perfetto."""
    named = zip(report.names, recordings, strict=False)
    return document.render_page(
        ", ".join(report.names),
        TEMPLATE,
        traces=[
            (f"{name}.perfetto.gz", _data_url("application/gzip", _trace(each, ports)))
            for name, each in named
            if each.bytes_per_second.size <= MAX_TRACED
        ],
        picture=picture
        and (_data_url("image/png", picture.light), _data_url("image/png", picture.dark), picture.caption),
        warnings=table.warnings(report),
        abouts=[table.about(run) for run in report.runs],
        columns=table.columns(report),
        sections=table.sections(report),
        notes=[
            *table.moment_sections(report),
            *table.step_notes(report),
            Section(lines=table.remarks(report)),
            *table.next_notes(report),
        ],
    )


def _trace(recording: Recording, ports: Sequence[str]) -> bytes:
    return gzip.compress(b"".join(write_trace([TracedNode(recording.meta, [recording], ports)])), mtime=0)


def _data_url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def render_text(report: Report) -> str:
    """The report in lines of at most 120 characters; columns that do not fit next to the first run follow below."""
    heads = [_short(escape_controls(head)) for head in table.columns(report)]
    found = table.sections(report)
    heading = [wrap(text) for text in (*table.warnings(report), *map(table.about, report.runs))]
    parts = ["\n".join(heading)]
    parts += [_table(heads, found, chosen) for chosen in _groups(heads, found)]
    parts += map(_notes, (*table.moment_sections(report), *table.step_notes(report)))
    parts.append("\n".join(map(wrap, table.remarks(report))))
    parts += map(_notes, table.next_notes(report))
    return "\n\n".join(parts) + "\n"


def _notes(notes: Section) -> str:
    return "\n".join([wrap(f"{notes.title}:"), *(wrap(line, "  ", 4) for line in notes.lines)])


def _short(head: str) -> str:
    return head if len(head) <= MAX_NAME else "…" + head[1 - MAX_NAME :]


def _groups(heads: Sequence[str], found: Sequence[table.TableSection]) -> list[list[int]]:
    """Groups of columns that fit next to each other: the first run in each group, with as many others as possible."""
    groups: list[list[int]] = [[0]]
    for other in range(1, len(heads), 2):
        pair = [other, other + 1]
        if len(groups[-1]) > 1 and max(map(len, _aligned(heads, found, [*groups[-1], *pair]))) > MAX_WIDTH:
            groups.append([0])
        groups[-1] += pair
    return groups


def _marked(cell: table.Cell) -> str:
    return cell.text + MARK if cell.differs else cell.text


def _table(heads: Sequence[str], found: Sequence[table.TableSection], chosen: Sequence[int]) -> str:
    rows = iter(_aligned(heads, found, chosen))
    lines = [next(rows)]
    for section in found:
        lines += ["", section.title, *islice(rows, len(section.lines))]
    return "\n".join(lines)


def _aligned(heads: Sequence[str], found: Sequence[table.TableSection], chosen: Sequence[int]) -> list[str]:
    """The heads and the lines of all sections, in columns of the same width."""
    lines = (line for section in found for line in section.lines)
    rows = [[f"  {line.label}", *(_marked(line.cells[column]) for column in chosen)] for line in lines]
    return align_rows([["", *(heads[column] for column in chosen)], *rows], left=range(len(chosen) + 1))
