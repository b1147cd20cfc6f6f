"""What a case found, and the whole report as Markdown. It measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """One budget of the design and what was found. `met` is None where it could not be measured."""

    what: str
    budget: str
    result: str
    met: bool | None

    def verdict(self) -> str:
        """Met, missed or not measured."""
        return {True: "met", False: "**missed**", None: "not measured"}[self.met]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text below a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """One case: how it was measured, its tables, and the budgets that it decides."""

    title: str
    method: str
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    budgets: Sequence[Budget] = ()


def render(title: str, preface: Sequence[str], sections: Sequence[Section]) -> str:
    """The report: preface, all budgets in one table, then one chapter per section."""
    budgets = [
        [budget.what, budget.budget, budget.result, budget.verdict(), section.title]
        for section in sections
        for budget in section.budgets
    ]
    parts = [f"# {title}", *preface, "## Budgets"]
    parts.append(_table(Table(["what", "budget", "result", "", "section"], budgets)))
    for section in sections:
        parts += [f"## {section.title}", section.method, *map(_table, section.tables), *section.notes]
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    lines = [list(table.header), ["---"] * len(table.header), *map(list, table.rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def microseconds(nanoseconds: float) -> str:
    """A time in µs, short."""
    return f"{nanoseconds / 1e3:,.0f} µs"


def milliseconds(seconds: float) -> str:
    """A time in ms, with three digits or so."""
    value = seconds * 1e3
    return f"{value:.3f} ms" if value < 1 else f"{value:.2f} ms"


def percent(ratio: float, digits: int = 2) -> str:
    """A ratio as a percentage."""
    return f"{ratio:.{digits}%}".replace("%", " %")
