"""The results of a case, and the report as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """One budget of the design and the result. `met` is None if it could not be measured."""

    what: str
    budget: str
    result: str
    met: bool | None

    def verdict(self) -> str:
        """Met, missed or not measured."""
        return {True: "met", False: "**missed**", None: "not measured"}[self.met]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: a header and rows of text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """One case: its method, its tables, and its budgets."""

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
    """A time in whole µs."""
    return f"{nanoseconds / 1e3:,.0f} µs"


def milliseconds(seconds: float) -> str:
    """A time in ms, with about three digits."""
    value = seconds * 1e3
    return f"{value:.3f} ms" if value < 1 else f"{value:.2f} ms"


def percent(ratio: float, digits: int = 2) -> str:
    """A ratio as a percentage."""
    return f"{ratio:.{digits}%}".replace("%", " %")
