"""One recording with all that is said of it. It must not compare, nor write text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ibpulse.analysis.balance import Balance, RailSums
from ibpulse.analysis.bootstrap import find_interval, resample
from ibpulse.arrays import Floats
from ibpulse.recordings import Recording, RecordingMeta
from ibpulse.reports.resampling_units import DURATION, Sums, Units, split, step_ratios, window_ratios
from ibpulse.reports.rows import rows
from ibpulse.reports.span import RailSeries, ReportOptions, ReportSpan, choose_window
from ibpulse.reports.statistics import (
    Rhythm,
    Value,
    describe_holes,
    describe_peak,
    describe_rails,
    describe_runs,
    find_rhythm,
    is_known,
    line_rate,
    name_traffic,
    sum_ports,
    weigh,
)


@dataclass(frozen=True, slots=True)
class Spread:
    """How a statistic scatters: its values in resampled runs, and in how many groups these were drawn."""

    replicates: Floats
    groups: int

    def interval(self, level: float) -> tuple[float, float]:
        """The interval at a level; NaN where none is known."""
        return find_interval(self.replicates, self.groups, level)


@dataclass(frozen=True, slots=True)
class PortLine:
    """One port: its mean rate, its part of all bytes, its rate ÷ the median of its siblings; None if not known."""

    port: str
    mean_bytes_per_second: float | None
    share_ratio: float | None
    sibling_ratio: float | None
    idle: bool
    slow: bool


@dataclass(frozen=True, slots=True)
class Run:
    """A recording described: `values` by the key of their row, None for what is not known; `spreads` for those of them
    that were resampled. `start_ns` and `end_ns` are wall time; `cut_seconds` is what of the recording lies before and
    after. `units` says what was resampled: `step`, `block`, or nothing where there are too few.
    """

    path: Path
    meta: RecordingMeta
    start_ns: int
    end_ns: int
    cut_seconds: tuple[float, float]
    recorded: tuple[bool, bool]
    values: Mapping[str, Value]
    spreads: Mapping[str, Spread]
    units: str
    unit_count: int
    unit_seconds: float
    ports: tuple[PortLine, ...]


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the statistics of a window are made of."""

    window: ReportSpan
    sums: Sums
    totals: RailSums
    balance: Balance
    line: float
    rhythm: Rhythm
    units: Units
    steps: Floats

    @property
    def series(self) -> RailSeries:
        return self.window.series

    def ratios(self, sums: Floats) -> dict[str, Floats]:
        series = self.series
        return window_ratios(sums, self.sums.timescales_ns, series.recorded, len(series.ports))


def describe_run(path: Path, recording: Recording, options: ReportOptions, place: int = 0) -> Run:
    """All statistics of the part of a recording that the options choose; `place` is its place in the report.

    Raises:
        RecordingError: nothing is left of it, or it lacks a chosen port.
    """
    parts = _take_apart(choose_window(path, recording, options), options)
    values = _values(parts, options)
    # another place, other chance: else two runs would be drawn alike
    spreads = _spreads(parts, values, options.resamples, np.random.default_rng((options.seed, place)))
    series, window = parts.series, parts.window.recording
    lengths = parts.units.sums[:, DURATION]
    return Run(
        path=path,
        meta=recording.meta,
        start_ns=window.start_ns - window.meta.interval_ns,
        end_ns=window.end_ns - window.meta.interval_ns,
        cut_seconds=(
            parts.window.cut_before * series.interval_seconds,
            parts.window.cut_after * series.interval_seconds,
        ),
        recorded=series.recorded,
        values=values,
        spreads=spreads,
        units=("step" if parts.units.steps else "block") if spreads else "",
        unit_count=len(lengths),
        unit_seconds=float(lengths.mean()) if len(lengths) else 0.0,
        ports=_ports(parts),
    )


def _take_apart(window: ReportSpan, options: ReportOptions) -> _Parts:
    series = window.series
    sums = Sums(series, options)
    totals = sum_ports(series, options)
    rhythm = find_rhythm(series)
    units, steps = split(sums, series, rhythm.steps, rhythm.period.seconds)
    return _Parts(window, sums, totals, weigh(totals, options), line_rate(series, totals), rhythm, units, steps)


def _values(parts: _Parts, options: ReportOptions) -> dict[str, Value]:
    """The statistics by the key of their row, None for what is not known or cannot be told."""
    series = parts.series
    plain = {key: float(value) for key, value in parts.ratios(parts.sums.whole()).items()}
    found: dict[str, Value] = {
        **plain,
        **describe_peak(series, plain["mean_bytes_per_second"], parts.line),
        **describe_runs(series, options),
        "step_period_seconds": parts.rhythm.period.seconds,
        "step_period_score": parts.rhythm.period.score,
        **_describe_steps(parts.steps),
        **describe_rails(series, parts.balance),
        **name_traffic(series, plain, parts.line, options),
        **describe_holes(series),
    }
    told = series.resolution_ticks == 1
    return {
        row.key: found.get(row.key) if is_known(found.get(row.key)) and (told or not row.finest) else None
        for row in rows(options.timescales_ns)
    }


def _describe_steps(steps: Floats) -> dict[str, Value]:
    if not len(steps):
        return {"steps": 0}
    ratios = {key: float(value) for key, value in step_ratios(steps.sum(axis=0)).items()}
    return {"steps": len(steps), **ratios, "step_spread_seconds": float(steps[:, DURATION].std())}


def _spreads(parts: _Parts, values: Mapping[str, Value], resamples: int, rng: np.random.Generator) -> dict[str, Spread]:
    """How the values scatter that are quotients of sums."""
    of_units = resample(parts.units.sums, resamples, rng, parts.units.begun)
    of_steps = resample(parts.steps, resamples, rng)
    found: dict[str, Spread] = {}
    for drawn, whole, ratios in (
        (of_units, parts.units.sums, parts.ratios),
        (of_steps, parts.steps, step_ratios),
    ):
        if drawn:
            middle = ratios(whole.sum(axis=0))
            for key, replicates in ratios(drawn.sums).items():
                value = values.get(key)
                if isinstance(value, float) and np.isfinite(replicates).any():
                    found[key] = Spread(_around(value, replicates, float(middle[key])), drawn.groups)
    return found


def _around(value: float, replicates: Floats, middle: float) -> Floats:
    """The replicates moved, in proportion, from the units' own value to that of the whole window."""
    return replicates * (value / middle) if middle > 0 else replicates


def _ports(parts: _Parts) -> tuple[PortLine, ...]:
    balance = parts.balance
    columns = zip(
        parts.series.ports,
        parts.totals.mean_rates(),
        balance.share,
        balance.ratio,
        balance.idle,
        balance.slow,
        strict=True,
    )
    return tuple(
        PortLine(str(port.id), _number(mean), _number(share), _number(ratio), bool(idle), bool(slow))
        for port, mean, share, ratio, idle, slow in columns
    )


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
