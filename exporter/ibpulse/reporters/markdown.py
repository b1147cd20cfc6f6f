"""A report as Markdown. It must not know what the values mean."""

from __future__ import annotations

from collections.abc import Sequence

from ibpulse.reporters.cells import Cell, columns, sections
from ibpulse.reporters.notes import about, remarks
from ibpulse.reporters.report import Report


def render_markdown(report: Report) -> str:
    """The report as one table; changes that matter are bold."""
    heads = columns(report)
    lines = [_row("", [escape(head) for head in heads]), _row("---", ["---:"] * len(heads))]
    for section in sections(report):
        lines.append(_row(f"**{escape(section.title)}**", [""] * len(heads)))
        lines += [_row(escape(line.label), [_cell(cell) for cell in line.cells]) for line in section.lines]
    notes = [f"- {escape(about(run))}" for run in report.runs]
    notes += [f"- {escape(remark)}" for remark in remarks(report)]
    return "\n".join(["# Report", "", *lines, "", *notes]) + "\n"


def escape(text: str) -> str:
    """The text with what Markdown and HTML would take as theirs made plain."""
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    return f"**{text}** \\*" if cell.differs else text


def _row(label: str, texts: Sequence[str]) -> str:
    return f"| {' | '.join([label, *texts])} |"
