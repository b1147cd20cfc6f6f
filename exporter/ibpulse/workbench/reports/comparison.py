"""Compares recordings and finds the differences that are statistically significant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ibpulse.workbench.reports.brief_rows import brief_rows
from ibpulse.workbench.reports.rows import ReportRow, rows
from ibpulse.workbench.reports.run import Run, ratio_interval
from ibpulse.workbench.reports.span import ReportOptions
from ibpulse.workbench.reports.step_comparison import StepComparison, compare_steps

COUNTED = ("count", "names", "word")


@dataclass(frozen=True, slots=True)
class Change:
    """A value compared with the base: `ratio` is value ÷ base - 1, `low` to `high` its interval; None if unknown.

    `differs`: the change is significant; for the lists of idle and slow rails: they are different rails.
    """

    ratio: float | None
    low: float | None
    high: float | None
    differs: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes by row key. Each interval is at `level`, which makes all hold together at the requested level
    (Bonferroni). `rows` is the number of rows with an interval.
    """

    by_key: Mapping[str, Change]
    level: float
    rows: int


def compare(base: Run, other: Run, table: Sequence[ReportRow], options: ReportOptions) -> Changes:
    """The changes from one recording to another."""
    scattered = [row for row in table if row.compared and row.key in base.spreads and row.key in other.spreads]
    level = 1 - (1 - options.level) / max(1, len(scattered))
    found = {row.key: _change(row, base, other, level, options) for row in table}
    return Changes({key: change for key, change in found.items() if change}, level, len(scattered))


def _change(row: ReportRow, base: Run, other: Run, level: float, options: ReportOptions) -> Change | None:
    before, after = base.values[row.key], other.values[row.key]
    if row.unit == "names":
        return Change(None, None, None, before != after)
    if row.unit in COUNTED or not row.compared:
        return None
    if not isinstance(before, float) or not isinstance(after, float) or before <= 0:
        return None
    ratio = after / before - 1
    low, high = ratio_interval(base.spreads.get(row.key), other.spreads.get(row.key), level)
    if math.isnan(low):
        return Change(ratio, None, None, False)
    matters = abs(ratio) >= options.least_change and abs(after - before) >= row.least
    return Change(ratio, low, high, matters and not low <= 0 <= high)


@dataclass(frozen=True, slots=True)
class Report:
    """The runs in the given order; `changes` compares every run after the first with the first.

    `steps` compares the steps of two runs; None for another number, in a brief report, and with too much missing.
    """

    options: ReportOptions
    rows: tuple[ReportRow, ...]
    runs: tuple[Run, ...]
    names: tuple[str, ...]
    changes: tuple[Changes, ...]
    steps: StepComparison | None = None


def assemble(runs: Sequence[Run], options: ReportOptions, titles: Sequence[str] = ()) -> Report:
    """The report of one or more runs, without the rows that no run has a value for.

    `titles` name the first runs; the others are named by their files.
    """
    every = brief_rows(options.timescales_ns) if options.brief else rows(options.timescales_ns)
    # the rows of a brief report are always the same ten
    table = tuple(row for row in every if options.brief or any(run.values[row.key] is not None for run in runs))
    changes = tuple(compare(runs[0], run, table, options) for run in runs[1:])
    comparable = len(runs) == 2 and not options.brief and not any(run.too_much_missing for run in runs)
    steps = compare_steps(runs[0].steps, runs[1].steps, options) if comparable else None
    return Report(options, table, tuple(runs), (*titles, *_names(runs)[len(titles) :]), changes, steps)


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    """Names that distinguish the runs: file names without suffix, else paths, else numbers."""
    names = [run.path.name.removesuffix(".parquet") for run in runs]
    for unlike in (names, [str(run.path) for run in runs]):
        if len(set(unlike)) == len(unlike):
            return tuple(unlike)
    return tuple(f"{name} ({place})" for place, name in enumerate(names, 1))
