"""The results of a case, and the report as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """One budget and the result. `met` is None if it could not be measured."""

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
class Panel:
    """One diagram of a picture: what it shows, with its unit, and the values of each line."""

    title: str
    lines: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Picture:
    """Costs over a size: the name of its file, the meaning of the size, the sizes, and one diagram per cost."""

    name: str
    size: str
    sizes: Sequence[float]
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Section:
    """One case: its method, its tables, its budgets, and at most one picture."""

    title: str
    method: str
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    budgets: Sequence[Budget] = ()
    picture: Picture | None = None


def render(title: str, preface: Sequence[str], first: Sequence[Section], others: Sequence[Section]) -> str:
    """The report: preface, the first sections, all budgets in one table, then the other sections."""
    budgets = [
        [budget.what, budget.budget, budget.result, budget.verdict()]
        for section in (*first, *others)
        for budget in section.budgets
    ]
    parts = [f"# {title}", *preface, *_chapters(first), "## Budgets"]
    parts.append(_table(Table(["what", "budget", "result", ""], budgets)))
    return "\n\n".join([*parts, *_chapters(others)]) + "\n"


def _chapters(sections: Sequence[Section]) -> list[str]:
    parts: list[str] = []
    for section in sections:
        parts += [f"## {section.title}", section.method]
        if section.picture is not None:
            parts.append(f"![{section.title}](pictures/{section.picture.name}.svg)")
        parts += [*map(_table, section.tables), *section.notes]
    return parts


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
