"""A row of a report: its words, and the statistic that it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.resampling_units import StepStatistics, UnitStatistics
from ibpulse.core.statistics.span_statistics import SpanStatistics

Unit = Literal["rate", "bytes", "seconds", "ratio", "number", "count", "names", "word"]
Value = float | int | str | tuple[str, ...] | None
Missing = Literal["any", "few", "none"]


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A row: its section, its key in JSON, its label, unit and definition.

    The value is `of_span` of the statistics of a span, or `of_units` or `of_steps` of those that follow from sums. Only
    the latter two have an interval, which comes from resampled sums.

    `finest` rows depend on single samples and are unknown if the counters stay constant over several samples.
    `missing` says how many samples may be missing: a row for which only a `few` may, at most `MAX_MISSING_SHARE`, would
    be that of other traffic with more. If samples are missing, the counts among these are the least that they can be.
    A row of burstiness is about bins of `bin_ns`.
    `least` is the smallest significant change in the row's unit, besides the relative one. If `compared` is false,
    changes of the row say nothing about the job.
    """

    section: str
    key: str
    label: str
    unit: Unit
    definition: str
    of_span: Callable[[SpanStatistics], Value | Floats] | None = None
    of_units: Callable[[UnitStatistics], Floats] | None = None
    of_steps: Callable[[StepStatistics], Floats] | None = None
    finest: bool = False
    least: float = 0.0
    compared: bool = True
    missing: Missing = "any"
    bin_ns: int = 0

    @property
    def at_least(self) -> bool:
        """Whether the value is the least possible one if samples are missing."""
        return self.unit == "count" and self.missing == "few"

    def value(self, span: SpanStatistics) -> Value:
        """The value of the row for a span; NaN if unknown."""
        if self.of_span:
            found = self.of_span(span)
        elif self.of_units:
            found = self.of_units(span.whole)
        elif self.of_steps:
            found = self.of_steps(span.steps)
        else:
            raise ValueError(f"row {self.key} has no statistic")
        return float(found) if isinstance(found, np.ndarray | float) else found
