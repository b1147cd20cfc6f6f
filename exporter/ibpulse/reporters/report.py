"""All recordings of a report, side by side. It must not write text, nor open a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ibpulse.reporters.changes import Changes, compare
from ibpulse.reporters.options import ReportOptions
from ibpulse.reporters.rows import Row, rows
from ibpulse.reporters.run import Run


@dataclass(frozen=True, slots=True)
class Report:
    """The runs in the order asked for; `changes` are those of all but the first against the first."""

    options: ReportOptions
    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    names: tuple[str, ...]
    changes: tuple[Changes, ...]


def assemble(runs: Sequence[Run], options: ReportOptions) -> Report:
    """The report of one or more runs; rows that none of them has are left out."""
    table = tuple(row for row in rows(options.timescales_ns) if any(run.values[row.key] is not None for run in runs))
    changes = tuple(compare(runs[0], run, table, options) for run in runs[1:])
    return Report(options, table, tuple(runs), _names(runs), changes)


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    """What tells the runs apart: the file without its ending, its path where two are named alike, a number else."""
    names = [run.path.name.removesuffix(".parquet") for run in runs]
    for unlike in (names, [str(run.path) for run in runs]):
        if len(set(unlike)) == len(unlike):
            return tuple(unlike)
    return tuple(f"{name} ({place})" for place, name in enumerate(names, 1))
