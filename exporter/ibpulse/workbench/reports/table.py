"""Values as text, and the sentences around the table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from ibpulse.base.document import Section
from ibpulse.base.text import (
    NOT_KNOWN,
    SCALES,
    find_scale,
    first_names,
    moment_text,
    names_text,
    sentence_list,
    significant,
    simulated_text,
    statistic_text,
)
from ibpulse.base.units import SECOND_NS, format_duration, format_rate
from ibpulse.core.events import Event
from ibpulse.core.jobs import Holding, JobRecord
from ibpulse.core.limits import CANNOT_KNOW
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.statistics.steps.phases import BARRIER, CHECKPOINT, FIRST_STEP, FIRST_TRAFFIC, Phase
from ibpulse.workbench.reports.comparison import Change, Report, look_next, step_remarks, step_rows, verdict
from ibpulse.workbench.reports.rows import ReportRow, Unit, Value
from ibpulse.workbench.reports.run import PortLine, Run

TOO_MUCH = "bursts, gaps, steps, peaks and the signature would be those of other traffic and are not shown"
LITTLE = "numbers of bursts, gaps and steps are lower bounds, and rows that need every sample are not shown"
BEFORE_AFTER = ("before", "after")
MAX_MOMENTS = 20
NAMED_PORTS = 16
NAMED_JOBS = 4
MIN_DOUBT_SECONDS = 0.1


def missing_text(report: Report) -> str:
    """One sentence on the recordings that miss many samples, and one on those that miss few; empty without any."""
    runs = [(name, run) for name, run in zip(report.names, report.runs, strict=True) if run.missing_ratio > 0]
    sentences = []
    for consequence, too_much in ((TOO_MUCH, True), (LITTLE, False)):
        shares = [
            f"{max(100 * run.missing_ratio, 0.01):.3g} % of {name}"
            for name, run in runs
            if run.too_much_missing == too_much
        ]
        if shares:
            verb = "is" if len(shares) == 1 else "are"
            sentences.append(f"{sentence_list(shares)} {verb} missing on at least one rail: {consequence}.")
    return " ".join(sentences)


def cut_off_remarks(run: Run) -> Iterator[str]:
    """Why a quantile of the lengths of bursts or gaps is unknown although there are some."""
    for what in ("burst", "gap"):
        unknown = [
            words for key, words in (("p50", "median"), ("p95", "p95")) if not run.values[f"{what}_seconds_{key}"]
        ]
        if run.values[f"{what}s"] and unknown:
            yield (
                f"{what} length, {' and '.join(unknown)}: unknown, because too many {what}s are cut off by missing "
                "data or by an end of the window."
            )


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, and whether it shows a significant change."""

    text: str
    differs: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A row: its label and its cells, one per column; `definition` is empty for a port."""

    label: str
    definition: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class TableSection:
    """Rows below a title."""

    title: str
    lines: tuple[Line, ...]


def columns(report: Report) -> tuple[str, ...]:
    """The column headings: the first run, then each run and its change."""
    first, *others = report.names
    return (first, *(head for name in others for head in (name, "change")))


def sections(report: Report) -> tuple[TableSection, ...]:
    """All rows as cells, section by section.

    Unless the report is brief, the last ones are the steps of two runs, and a line for each port.
    """
    found = [
        TableSection(title, tuple(_line(report, row) for row in rows))
        for title, rows in groupby(report.rows, key=lambda row: row.section)
    ]
    if report.options.brief:
        return tuple(found)
    if report.steps:
        lines = [Line(label, text, tuple(map(Cell, cells))) for label, text, *cells in step_rows(report.steps)]
        found.append(TableSection("Steps, before and after", tuple(lines)))
    return (*found, _port_section(report))


def _line(report: Report, row: ReportRow) -> Line:
    texts = [value_text(run, row, report.options.level) for run in report.runs]
    cells = [Cell(texts[0])]
    for text, changes in zip(texts[1:], report.changes, strict=True):
        cells += [Cell(text), _change_cell(changes.by_key.get(row.key))]
    return Line(row.label, row.definition, tuple(cells))


def _change_cell(change: Change | None) -> Cell:
    if change is None:
        return Cell("")
    if change.ratio is None:
        return Cell("others" if change.differs else "", change.differs)
    text = f"{100 * change.ratio:+.1f} %"
    if change.low is not None and change.high is not None:
        text += f" [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    return Cell(text, change.differs)


def value_text(run: Run, row: ReportRow, level: float) -> str:
    """A value as text, with half of its interval if it has one."""
    value = run.values[row.key]
    spread = run.spreads.get(row.key)
    if spread is None or not isinstance(value, float):
        least = "≥ " if row.at_least and value is not None and run.missing_ratio else ""
        return least + plain_text(value, row.unit)
    low, high = spread.interval(level)
    half = (high - low) / 2
    size, sign = find_scale(value, row.unit)
    if half <= size * 1e-4:
        return f"{significant(value / size)}{sign}"
    # two digits of the half interval, and no more digits of the value than that justifies
    decimals = max(0, min(4, 1 - math.floor(math.log10(half / size))))
    return f"{value / size:.{decimals}f} ±{half / size:.{decimals}f}{sign}"


def plain_text(value: Value, unit: Unit) -> str:
    """A value as text in a suitable unit."""
    if value is None:
        return NOT_KNOWN
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if isinstance(value, str):
        return value
    if unit not in SCALES:
        return str(value)
    return statistic_text(float(value), unit)


def _port_section(report: Report) -> TableSection:
    names = list(dict.fromkeys(port.port for run in report.runs for port in run.ports))
    # one owner of all ports is named once, in the list of jobs
    shared = [len({port.jobs for port in run.ports}) > 1 for run in report.runs]
    lines = []
    for name in names:
        found = [next((port for port in run.ports if port.port == name), None) for run in report.runs]
        texts = [_port_text(port, with_jobs) for port, with_jobs in zip(found, shared, strict=True)]
        cells = [Cell(texts[0]), *(cell for text in texts[1:] for cell in (Cell(text), Cell("")))]
        lines.append(Line(name, "", tuple(cells)))
    grouped = any(len(run.compared) > 1 for run in report.runs)
    whose = "the bytes of ports with the same jobs" if grouped else "all bytes"
    return TableSection(f"Ports: mean, share of {whose}", tuple(lines))


def _port_text(port: PortLine | None, with_jobs: bool) -> str:
    if port is None:
        return NOT_KNOWN
    state = " idle" if port.idle else " slow" if port.slow else ""
    if port.down_seconds:
        state += f", down {plain_text(port.down_seconds, 'seconds')}"
    if with_jobs:
        state += f", job {first_names(port.jobs, NAMED_JOBS)}" if port.jobs else ", no known job"
    return f"{plain_text(port.mean_bytes_per_second, 'rate')}, {plain_text(port.share_ratio, 'ratio')}{state}"


def moment_sections(report: Report) -> Iterator[Section]:
    """The jobs of each run that has any, its phases, and its first events with the number of those left out.

    Each line is the time after the beginning, the wall time, and a sentence. A brief report has only the signs of what
    limited the rails, which come first.
    """
    named = tuple(zip(report.names, report.runs, strict=True))
    for name, run in named:
        if run.limits:
            lines = [f"{text}." for text in (*(limit.text for limit in run.limits), *run.limit_remarks)]
            yield Section(f"What limited transmit of {name}", lines=[*lines, CANNOT_KNOW])
    if report.options.brief:
        return
    yield from (Section(f"Jobs of {name}", lines=_job_lines(run)) for name, run in named if run.jobs)
    yield from (Section(f"Phases of {name}", lines=_phase_lines(run)) for name, run in named)
    yield from (Section(f"Events of {name}", lines=_event_lines(run)) for name, run in named if run.events)


def _job_lines(run: Run) -> list[str]:
    """The first times from which a job has ports, and remarks on those left out."""
    every = [(holding, record) for record in run.jobs for holding in record.holdings]
    starts = [run.start_ns if each.since is None else max(run.start_ns, each.since.time_ns) for each, _ in every]
    order = sorted(range(len(every)), key=starts.__getitem__)
    lines = [_moment(run, starts[at], _job_text(run, *every[at])) for at in order[:MAX_MOMENTS]]
    lines += _more(len(every), "")
    if run.meta.jobs_left_out:
        lines.append(f"The recording left out {run.meta.jobs_left_out} jobs that were too many for it.")
    return lines


def _more(count: int, what: str) -> list[str]:
    hidden = count - MAX_MOMENTS
    return [f"{hidden} more{what}; --format=json lists them."] if hidden > 0 else []


def _job_text(run: Run, holding: Holding, record: JobRecord) -> str:
    claim = record.job.claim
    about = ", ".join(filter(None, (claim.scheduler, claim.namespace, claim.name)))
    ports = first_names([str(port) for port in holding.ports], NAMED_PORTS) or "ports that are not known"
    text = f"job {claim.id}{f' ({about})' if about else ''} has {ports}"
    if holding.since is not None and holding.since.time_ns >= run.start_ns:
        text += _doubt(holding.since)
    if holding.until is not None and holding.until.time_ns < run.end_ns:
        text += f" until +{(holding.until.time_ns - run.start_ns) / SECOND_NS:.2f} s{_doubt(holding.until)}"
    return text


def _doubt(event: Event) -> str:
    seconds = event.uncertainty_ns / SECOND_NS
    # a shorter time is not worth a word in a report of seconds
    return f" (or up to {plain_text(seconds, 'seconds')} earlier)" if seconds >= MIN_DOUBT_SECONDS else ""


def _phase_lines(run: Run) -> list[str]:
    lines = [
        _moment(run, run.start_ns + phase.first * run.meta.interval_ns, phase_text(phase, run.meta.interval_ns))
        for phase in run.phases[:MAX_MOMENTS]
    ]
    return [*(lines or ["None found."]), *_more(len(run.phases), " phases"), *run.phase_remarks]


def phase_text(phase: Phase, interval_ns: int) -> str:
    """A phase as a sentence, with the reason if it is a guess."""
    seconds = (phase.end - phase.first) * interval_ns / SECOND_NS
    silent, length = (_known_text(each, "seconds") for each in (phase.silent_seconds, seconds))
    texts = {
        FIRST_TRAFFIC: f"first traffic, after {silent} of silence",
        FIRST_STEP: f"first regular step, {length} long",
        BARRIER: f"quiet at a barrier: all rails silent for {silent}",
        CHECKPOINT: f"checkpoint: {_known_text(phase.transmitted, 'bytes')} to storage in {length}, "
        f"rails silent for {silent}",
    }
    unsure = phase.uncertainty * interval_ns / SECOND_NS
    doubts = [f"guess: {phase.doubt}"] if phase.doubt else []
    doubts += [f"± {plain_text(unsure, 'seconds')}"] if unsure >= MIN_DOUBT_SECONDS else []
    return texts[phase.kind] + (f" ({'; '.join(doubts)})" if doubts else "")


def _known_text(number: float, unit: Unit) -> str:
    return plain_text(None if math.isnan(number) else number, unit)


def _event_lines(run: Run) -> list[str]:
    lines = [_moment(run, event.time_ns, event.text + _doubt(event)) for event in run.events[:MAX_MOMENTS]]
    lines += _more(len(run.events), " events")
    if run.events_left_out:
        lines.append(f"The recording left out {run.events_left_out} events that were too many for it.")
    return lines


def _moment(run: Run, time_ns: int, text: str) -> str:
    at = datetime.fromtimestamp(time_ns / SECOND_NS, UTC)
    after = f"+{(time_ns - run.start_ns) / SECOND_NS:.2f} s"
    return f"{after:>10}  {f'{at:%H:%M:%S.%f}'[:-3]} UTC  {text}"


def step_notes(report: Report) -> tuple[Section, ...]:
    """The verdict on a change between two runs by their steps, and remarks."""
    if report.steps is None:
        return ()
    names = " and ".join(f"{word} ({name})" for word, name in zip(BEFORE_AFTER, report.names, strict=True))
    lines = verdict(report.steps), *step_remarks(report.steps)
    return (Section(f"Steps {names}", lines=lines),)


def next_notes(report: Report) -> tuple[Section, ...]:
    """Next steps, if there are two runs."""
    found = tuple(look_next(report))
    return (Section("Look at next", lines=found),) if found else ()


def warnings(report: Report) -> list[str]:
    """Sentences that stand before everything else."""
    found = [name for name, run in zip(report.names, report.runs, strict=True) if run.meta.simulated]
    simulated = simulated_text(", ".join(found) if len(found) < len(report.runs) else "") if found else ""
    return [text for text in (missing_text(report), simulated) if text]


def about(run: Run) -> str:
    """One line that identifies a run."""
    meta = run.meta
    length = plain_text((run.end_ns - run.start_ns) / SECOND_NS, "seconds")
    made = f"{meta.source}: {meta.reason}" if meta.reason else meta.source
    return (
        f"{run.path}: node {meta.host or '-'}, {made}, every {format_duration(meta.interval_ns)}; "
        f"{length} from {moment_text(run.start_ns)}, {_cut(run)}"
    )


def _cut(run: Run) -> str:
    before, after = run.cut_seconds
    if not before and not after:
        return "the whole recording"
    return f"without {plain_text(before, 'seconds')} before and {plain_text(after, 'seconds')} after"


def remarks(report: Report) -> list[str]:
    """Notes that explain the table."""
    options = report.options
    trimmed = "trimmed to the first and the last active sample" if options.trim else "not trimmed"
    found = [
        f"Windows are {trimmed}. Active is above {format_rate(int(options.active_bytes_per_second))}, transmit + "
        "receive of all described ports."
    ]
    for name, run in zip(report.names, report.runs, strict=True):
        found += [f"{name}: {remark}" for remark in _remarks_on(run)]
    if any(run.spreads for run in report.runs):
        found.append(f"± is half of the {100 * options.level:g} % interval, from {options.resamples} resamples.")
    return found + _on_changes(report)


def _remarks_on(run: Run) -> list[str]:
    found = []
    if not run.meta.complete:
        found.append("the recording was cut off before it was finished.")
    missing = [way for way, there in zip(DIRECTIONS, run.recorded, strict=True) if not there]
    if len(missing) == 1:
        found.append(f"{missing[0]} was not recorded; sums are those of the other direction.")
    if run.values["duty_cycle_ratio"] is None and any(run.recorded):
        found.append("counters change less often than they are read: statistics of single samples are unknown.")
    found += cut_off_remarks(run)
    if run.merged_samples:
        found.append(
            f"{run.merged_samples} samples are means of two to five, because one was above the line rate: a counter or "
            "its read was late."
        )
    if run.assumed_rates:
        found.append(
            f"the rate of {names_text(run.assumed_rates)} was never known; the line rate assumes "
            "that of the fastest other rail."
        )
    found += _on_comparison(run)
    if run.units == "step":
        found.append(f"resampled in {run.unit_count} whole steps.")
    elif run.units:
        found.append(f"resampled in {run.unit_count} blocks of {plain_text(run.unit_seconds, 'seconds')}.")
    else:
        found.append("too short for intervals: fewer than 20 steps or seconds; record at least 60 s to compare runs.")
    return found


def _on_comparison(run: Run) -> list[str]:
    found = []
    if len(run.compared) > 1:
        found.append("fairness, shares, idle and slow rails compare only ports that had the same jobs.")
    covered = (run.end_ns - run.start_ns) / SECOND_NS
    for group in run.compared:
        # half a sample
        if group.seconds < covered - run.meta.interval_ns / SECOND_NS / 2:
            names = first_names(list(group.ports), NAMED_PORTS)
            length = plain_text(group.seconds, "seconds")
            found.append(f"{names} had the same jobs at the same time for {length}, and are compared over that time.")
    return found


def _on_changes(report: Report) -> list[str]:
    compared = max((changes.rows for changes in report.changes), default=0)
    if not report.changes:
        return []
    if not compared:
        return ["No change is marked because there are no intervals."]
    base = report.names[0]
    return [
        f"Changes are relative to {base}. Their intervals hold for all {compared} rows together at "
        f"{100 * report.options.level:g} %. * marks a significant change: its interval excludes 0, and it is at "
        f"least {100 * report.options.least_change:g} %. Rows without an interval are never marked."
    ]
