"""The report of one or more recordings, as `ibpulse report` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibpulse.workbench.python.optional_libraries import import_pandas
from ibpulse.workbench.reports import comparison
from ibpulse.workbench.reports.formats import render_json, render_page, render_text

if TYPE_CHECKING:
    import pandas


class RunReport:
    """Statistics of recordings side by side; changes are relative to the first one. docs/report.md explains the rows.

    `str(report)` is the text that `ibpulse report` prints.
    """

    def __init__(self, report: comparison.Report) -> None:
        self._report = report

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the recordings."""
        return self._report.names

    def value(self, key: str, recording: int = 0) -> float | int | str | tuple[str, ...] | None:
        """A statistic by its key in docs/report.md, in base units; None if unknown.

        Raises:
            KeyError: there is no such statistic.
        """
        return self._report.runs[recording].values[key]

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each statistic, indexed by its key: section, label, unit, and a column for each recording.

        With several recordings also `change NAME` (value ÷ that of the first - 1) and `differs NAME` (whether the
        change is statistically significant).

        Raises:
            IbpulseError: pandas is not installed.
        """
        report = self._report
        table: dict[str, list[object]] = {
            "section": [row.section for row in report.rows],
            "label": [row.label for row in report.rows],
            "unit": [row.unit for row in report.rows],
        }
        for name, run in zip(report.names, report.runs, strict=True):
            table[name] = [run.values[row.key] for row in report.rows]
        for name, changes in zip(report.names[1:], report.changes, strict=True):
            found = [changes.by_key.get(row.key) for row in report.rows]
            table[f"change {name}"] = [each and each.ratio for each in found]
            table[f"differs {name}"] = [bool(each and each.differs) for each in found]
        library, keys = import_pandas(), [row.key for row in report.rows]
        frame: pandas.DataFrame = library.DataFrame(table, index=library.Index(keys, name="key"))
        return frame

    def to_json(self) -> str:
        """The JSON that `ibpulse report --format=json` prints."""
        return render_json(self._report)

    def to_html(self) -> str:
        """The page that `ibpulse report --format=html` prints.

        Raises:
            IbpulseError: jinja2 is not installed.
        """
        return render_page(self._report)

    def __str__(self) -> str:
        return render_text(self._report)

    def __repr__(self) -> str:
        return f"<ibpulse.RunReport of {', '.join(self.names)}; print() shows it>"
