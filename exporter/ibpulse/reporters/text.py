"""A report as plain text for a terminal. It must not know what the values mean."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ibpulse.reporters.cells import Cell, Section, columns, sections
from ibpulse.reporters.notes import about, remarks
from ibpulse.reporters.report import Report

WIDEST = 120
MARK = " *"
# a name is cut so that two columns and their change fit
LONGEST_NAME = 24


def render_text(report: Report) -> str:
    """The report in lines of at most 120 characters; what does not fit beside the first run follows below it."""
    heads = [_short(head) for head in columns(report)]
    found = sections(report)
    parts = [_wrap(about(run)) for run in report.runs]
    parts += [_table(heads, found, chosen) for chosen in _groups(heads, found)]
    parts.append("\n".join(_wrap(remark) for remark in remarks(report)))
    return "\n\n".join(["\n".join(parts[: len(report.runs)]), *parts[len(report.runs) :]]) + "\n"


def _short(head: str) -> str:
    return head if len(head) <= LONGEST_NAME else "…" + head[1 - LONGEST_NAME :]


def _wrap(text: str) -> str:
    return textwrap.fill(text, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _groups(heads: Sequence[str], found: Sequence[Section]) -> list[list[int]]:
    """Which columns stand side by side: the first run in each group, with as many others as fit."""
    groups: list[list[int]] = [[0]]
    for other in range(1, len(heads), 2):
        pair = [other, other + 1]
        if len(groups[-1]) > 1 and _width(heads, found, [*groups[-1], *pair]) > WIDEST:
            groups.append([0])
        groups[-1] += pair
    return groups


def _width(heads: Sequence[str], found: Sequence[Section], chosen: Sequence[int]) -> int:
    return _label_width(found) + sum(2 + _column_width(heads, found, column) for column in chosen)


def _label_width(found: Sequence[Section]) -> int:
    return max(len(line.label) for section in found for line in section.lines) + 2


def _column_width(heads: Sequence[str], found: Sequence[Section], column: int) -> int:
    cells = (line.cells[column] for section in found for line in section.lines)
    return max(len(heads[column]), *(len(_marked(cell)) for cell in cells))


def _marked(cell: Cell) -> str:
    return cell.text + MARK if cell.differs else cell.text


def _table(heads: Sequence[str], found: Sequence[Section], chosen: Sequence[int]) -> str:
    label = _label_width(found)
    widths = [_column_width(heads, found, column) for column in chosen]

    def row(first: str, texts: Sequence[str]) -> str:
        cells = "".join(f"  {text:<{width}}" for text, width in zip(texts, widths, strict=True))
        return f"{first:{label}}{cells}".rstrip()

    lines = [row("", [heads[column] for column in chosen])]
    for section in found:
        lines += ["", section.title]
        lines += [row(f"  {line.label}", [_marked(line.cells[column]) for column in chosen]) for line in section.lines]
    return "\n".join(lines)
