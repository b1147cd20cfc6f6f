"""Values as text, and the table of a report as cells that each format lays out. It must not compute a statistic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from ibpulse.reporters.changes import Change
from ibpulse.reporters.report import Report
from ibpulse.reporters.rows import Row, Unit
from ibpulse.reporters.run import PortLine, Run
from ibpulse.reporters.statistics import Value

NOT_KNOWN = "-"
DIGITS = 4
# unit: (size, sign), the largest first
SCALES: Mapping[Unit, tuple[tuple[float, str], ...]] = {
    "rate": ((1e9, " GB/s"), (1e6, " MB/s"), (1e3, " kB/s"), (1.0, " B/s")),
    "bytes": ((1e12, " TB"), (1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B")),
    "seconds": ((1.0, " s"), (1e-3, " ms"), (1e-6, " µs")),
    "ratio": ((0.01, " %"),),
    "number": ((1.0, ""),),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, and whether it says of a change that it matters."""

    text: str
    differs: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A row: its label and its cells, one per column; `definition` is empty for a port."""

    label: str
    definition: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Rows below a title."""

    title: str
    lines: tuple[Line, ...]


def columns(report: Report) -> tuple[str, ...]:
    """The heads of the columns: the first run, then each run and its change."""
    return (report.names[0], *(head for name in report.names[1:] for head in (name, "change")))


def sections(report: Report) -> tuple[Section, ...]:
    """All rows as cells, section by section; the last one has a line for each port."""
    found = [
        Section(title, tuple(_line(report, row) for row in rows))
        for title, rows in groupby(report.rows, key=lambda row: row.section)
    ]
    return (*found, _port_section(report))


def _line(report: Report, row: Row) -> Line:
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


def value_text(run: Run, row: Row, level: float) -> str:
    """A value as text, with half of its interval if it has one."""
    value = run.values[row.key]
    spread = run.spreads.get(row.key)
    if spread is None or not isinstance(value, float):
        return plain_text(value, row.unit)
    low, high = spread.interval(level)
    half = (high - low) / 2
    size, sign = _scale(value, row.unit)
    # two digits of the half interval, not more of the value than that says
    decimals = max(0, min(4, 1 - math.floor(math.log10(half / size)))) if half > size * 1e-4 else 4
    if half <= size * 1e-4:
        return f"{_significant(value / size)}{sign}"
    return f"{value / size:.{decimals}f} ±{half / size:.{decimals}f}{sign}"


def plain_text(value: Value, unit: Unit) -> str:
    """A value as text in the unit that fits it."""
    if value is None:
        return NOT_KNOWN
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if isinstance(value, str):
        return value
    if unit not in SCALES:
        return str(value)
    size, sign = _scale(float(value), unit)
    return f"{_significant(value / size)}{sign}"


def _scale(value: float, unit: Unit) -> tuple[float, str]:
    scales = SCALES[unit]
    # 999.96 is 1000 in four digits
    return next(
        (scale for scale in scales if abs(value) * (1 + 10.0**-DIGITS) >= scale[0]), scales[0 if not value else -1]
    )


def _significant(value: float) -> str:
    """Four digits, or as many as stand before the point."""
    if value == 0:
        return "0"
    decimals = max(0, min(DIGITS, DIGITS - 1 - math.floor(math.log10(abs(value)))))
    return f"{value:.{decimals}f}"


def _port_section(report: Report) -> Section:
    names = list(dict.fromkeys(port.port for run in report.runs for port in run.ports))
    lines = []
    for name in names:
        texts = [_port_text(next((port for port in run.ports if port.port == name), None)) for run in report.runs]
        cells = [Cell(texts[0]), *(cell for text in texts[1:] for cell in (Cell(text), Cell("")))]
        lines.append(Line(name, "", tuple(cells)))
    return Section("Ports: mean, share of all bytes", tuple(lines))


def _port_text(port: PortLine | None) -> str:
    if port is None:
        return NOT_KNOWN
    state = " idle" if port.idle else " slow" if port.slow else ""
    return f"{plain_text(port.mean_bytes_per_second, 'rate')}, {plain_text(port.share_ratio, 'ratio')}{state}"
