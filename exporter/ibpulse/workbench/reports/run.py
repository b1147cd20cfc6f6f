"""One recording with its values, their intervals and its phases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from pathlib import Path
from typing import TypeVar

import numpy as np

from ibpulse.base.document import finite
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.events import Event
from ibpulse.core.events.event import LOST_LINKS
from ibpulse.core.jobs import JobRecord
from ibpulse.core.limits import Limit, describe_signs, group_limit_remarks
from ibpulse.core.model import STORAGE
from ibpulse.core.recordings import Recording, RecordingMeta
from ibpulse.core.recordings.limits import find_recorded_signs
from ibpulse.core.recordings.recording import trace_holdings
from ibpulse.core.statistics.recorded import (
    DURATION,
    RailSeries,
    StepStatistics,
    UnitStatistics,
    describe_steps,
    find_interval,
    group_size,
    lag_correlation,
    resample,
)
from ibpulse.core.statistics.silences import SampleTimes, describe_rates
from ibpulse.core.statistics.span import SpanStatistics, describe_span, find_period_between
from ibpulse.core.statistics.steps.phases import FIRST_TRAFFIC, Phase, PhaseRules, PhaseTraffic, find_phases
from ibpulse.core.statistics.steps.runs import MAX_MISSING_SHARE
from ibpulse.core.statistics.sums import OBSERVED, RECEIVE, TRANSMIT, are_assumed
from ibpulse.core.statistics.verdict import Moment, judge
from ibpulse.workbench.reports.rows import STEPS, ReportRow, Value, rows
from ibpulse.workbench.reports.span import Outside, ReportOptions, ReportSpan, choose_window, rows_in_state, series_of

LINK_EVENTS = frozenset({"link-down", "link-up", "link-flap", "appeared", "disappeared", "unreadable", "readable"})
"""Events within whose uncertainty the link of a port may have been down."""


def describe_phases(chosen: ReportSpan, active_bytes_per_second: float) -> tuple[tuple[Phase, ...], tuple[str, ...]]:
    """The phases of the covered part of a recording, whose samples they count, and remarks on unknown ones."""
    series, recording = chosen.series, chosen.recording
    storage = _sum_storage(recording)
    traffic = PhaseTraffic(
        rails=_sum_rails(series),
        troubled=_find_trouble(recording, series),
        interval_seconds=series.interval_seconds,
        storage=storage,
        resolution=max(series.coarsest_stride, series.resolution_ticks),
    )
    phases = find_phases(
        traffic,
        lambda first, end: find_period_between(series, series.lead + first, series.lead + end, active_bytes_per_second),
        PhaseRules(active_bytes_per_second),
    )
    active = np.flatnonzero(traffic.rails > active_bytes_per_second)
    remarks = [_on_start(traffic.rails[: active[0]], phases) if len(active) else "The rails carry no traffic."]
    if storage is None:
        remarks.append("No port for storage was recorded, so checkpoints are not shown.")
    remarks.append(_judge_end(recording, series, storage, active_bytes_per_second))
    return phases, tuple(filter(None, remarks))


# of fewer whole bursts, the two at the ends, which are cut off, would be too large a part
MIN_BURSTS = 20


def describe_limits(
    chosen: ReportSpan, active_bytes_per_second: float, span: SpanStatistics
) -> tuple[list[Limit], list[str]]:
    """The signs of what limited the rails, per step, or else per burst if there are many, and remarks on them."""
    names = chosen.series.rails.names
    rows = [row for row, port in enumerate(chosen.recording.meta.ports) if str(port.id) in names]
    found = find_recorded_signs(chosen.recording, rows, active_bytes_per_second)
    step, units, unit = float(span.steps.seconds), 1.0, ""
    if step > 0:
        units, unit = chosen.recording.ticks * span.series.interval_seconds / step, "step"
    elif span.bursts.count >= MIN_BURSTS:
        units, unit = float(span.bursts.count), "burst"
    return describe_signs(found, units, unit), group_limit_remarks(found)


def _judge_end(recording: Recording, series: RailSeries, storage: Floats | None, active: float) -> str:
    """A sentence on the silence in which it ends, as the node judges it alone; empty if there is none."""
    names, interval = series.rails.names, series.interval_seconds
    row_of = {str(port.id): row for row, port in enumerate(recording.meta.ports)}
    lost: dict[str, Moment] = {}
    for event in recording.meta.events:
        if event.kind in LOST_LINKS and event.subject in names:
            at = (event.time_ns - recording.start_ns) / SECOND_NS
            lost[event.subject] = at - event.uncertainty_ns / SECOND_NS, at
    # the first sample ends at the start
    times = SampleTimes(-interval, interval, 0.0, series.resolution_ticks * interval)
    rates = recording.bytes_per_second[[row_of[name] for name in names]]
    found = describe_rates(names, rates, times, active / 10, lost)
    if storage is not None and (busy := np.flatnonzero(storage.sum(axis=0) > active)).size:
        end = int(busy[-1]) * interval
        found = replace(found, storage=(end - interval, end))
    node = recording.meta.host or "the node"
    verdict = judge({node: found})
    if verdict is None:
        return ""
    return f"It ends in a silence of {verdict.seconds:.1f} s; verdict: {verdict.kind}, {verdict.sentence}."


def _sum_rails(series: RailSeries) -> Floats:
    """The sum over the rails that are up, at each recorded sample; missing where any of them is missing."""
    lost = (series.up & ~series.good).any(axis=0)
    return np.where(lost, np.nan, series.bandwidth)[series.lead : series.lead + series.ticks]


def _sum_storage(recording: Recording) -> Floats | None:
    """Transmit and receive of all storage ports: (2, samples); None without any."""
    rows = rows_in_state(recording, lambda state: state.role == STORAGE, 0, recording.ticks)
    if not rows:
        return None
    series = series_of(recording, rows)
    recorded = slice(series.lead, series.lead + series.ticks)
    return np.where(np.isnan(_sum_rails(series)), np.nan, series.directions[:, recorded])


def _find_trouble(recording: Recording, series: RailSeries) -> Bools:
    """Where the link of a rail was down, or may have been, at each recorded sample."""
    rails = series.rails
    trouble = np.asarray(~rails.up[rails.ever_up].all(axis=0))
    for event in recording.meta.events:
        if event.kind in LINK_EVENTS and event.subject in rails.names:
            after_ns = event.time_ns - recording.start_ns
            first = (after_ns - event.uncertainty_ns) // recording.meta.interval_ns
            trouble[max(0, first) : max(0, after_ns // recording.meta.interval_ns + 2)] = True
    return trouble


def _on_start(before: Floats, phases: tuple[Phase, ...]) -> str:
    """A sentence if the first traffic is not among the phases; `before` is what precedes the first active sample."""
    if any(phase.kind == FIRST_TRAFFIC and phase.end <= len(before) + 1 for phase in phases):
        return ""
    # the first sample of a recording has no rate
    if np.count_nonzero(np.isnan(before)) > 1:
        return "Data is missing before its first active sample, so its first traffic and first step are not known."
    return "It begins in traffic, so its first traffic and first step are not in it."


_Statistics = TypeVar("_Statistics", UnitStatistics, StepStatistics)


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of a statistic: its values in resampled runs, and the number of groups that these were drawn in."""

    replicates: Floats
    groups: int

    def interval(self, level: float) -> tuple[float, float]:
        """The interval at a level; NaN if unknown."""
        return find_interval(self.replicates, self.groups, level)


def ratio_interval(base: Spread | None, other: Spread | None, level: float) -> tuple[float, float]:
    """The interval of other ÷ base - 1 at a level; NaN if unknown."""
    if base is None or other is None:
        return math.nan, math.nan
    known = base.replicates > 0
    ratios = other.replicates[known] / base.replicates[known] - 1
    return Spread(ratios, min(base.groups, other.groups)).interval(level)


@dataclass(frozen=True, slots=True)
class WholeSteps:
    """The whole steps of a run, means per step; NaN if unknown.

    `sent_bytes` are those of the direction with more. `least_wire_seconds` is the time that they need at the line
    rate, `busy_seconds` the time in which the rails were active. `correlation` is that of neighbouring step times,
    `group` the number of steps that are resampled together.
    """

    count: int
    seconds: float
    moved_bytes: float
    sent_bytes: float
    silent_share: float
    least_wire_seconds: float
    busy_seconds: float
    line_bytes_per_second: float
    correlation: float
    group: int
    spreads: Mapping[str, Spread]

    @property
    def wire_share(self) -> float:
        """The share of the step that the rails need at least."""
        return self.least_wire_seconds / self.seconds


@dataclass(frozen=True, slots=True)
class PortLine:
    """One port: its mean rate, its share of the bytes of its group, its rate ÷ the median of its siblings.

    These are None if unknown. The share and the siblings are about the time in which the group is compared.
    The rate compared with the siblings, `idle` and `slow` are about the time in which its link was ACTIVE, which is all
    but `down_seconds`. `jobs` are the ids of the jobs that had the port.
    """

    port: str
    mean_bytes_per_second: float | None
    share_ratio: float | None
    sibling_ratio: float | None
    idle: bool
    slow: bool
    down_seconds: float
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedPorts:
    """Ports that are compared with each other because they had the same jobs, and the time in which they are."""

    ports: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """The report of one recording: `values` by row key, None if unknown; `spreads` of the rows that were resampled.
    `start_ns` and `end_ns` are wall time; `cut_seconds` are the parts of the recording before and
    after. `units` names the resampled units: `step`, `block`, or empty if there are too few. `events` are those of the
    covered part; `events_left_out` counts those of the recording that were too many for it. `merged_samples` are
    means of several samples, because one was above the line rate. `assumed_rates` are the rails whose rate the line
    rate assumes at any sample. The samples of `phases` count from `start_ns` on. `jobs` are those of the covered part.
    `compared` are the groups of ports whose traffic is compared. `steps` are the whole steps, to compare with those of
    another run. `limits` are signs of what limited the rails.
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
    steps: WholeSteps
    events: tuple[Event, ...] = ()
    events_left_out: int = 0
    merged_samples: int = 0
    assumed_rates: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()
    phase_remarks: tuple[str, ...] = ()
    jobs: tuple[JobRecord, ...] = ()
    compared: tuple[ComparedPorts, ...] = ()
    limits: Sequence[Limit] = ()
    limit_remarks: Sequence[str] = ()

    @property
    def missing_ratio(self) -> float:
        """The share of the window in which the sum over the rails is missing."""
        observed = self.values["observed_ratio"]
        return 1 - observed if isinstance(observed, float) else math.nan

    @property
    def too_much_missing(self) -> bool:
        """Whether the bursts, gaps and steps that were found may be those of other traffic."""
        return self.missing_ratio > MAX_MISSING_SHARE + 1e-9


def describe_run(
    path: Path, recording: Recording, options: ReportOptions, place: int = 0, outside: Outside = (0, 0)
) -> Run:
    """All statistics of the part of a recording that the options select; `place` is its position in the report.

    Of the file, `outside` was not loaded.
    """
    chosen = choose_window(path, recording, options, outside)
    span, table = describe_span(chosen.series, options.span_options(place)), rows(options.timescales_ns)
    values = {row.key: _value(row, span) for row in table}
    # a seed per position: the same one would resample two runs alike
    spreads = _spreads(span, table, values, options.resamples, np.random.default_rng((options.seed, place)))
    window, interval_seconds, rails = chosen.recording, span.series.interval_seconds, span.series.rails
    lengths = span.units.sums[:, DURATION]
    start_ns = window.start_ns - window.meta.interval_ns
    jobs = _covered_jobs(recording.meta, start_ns, window.end_ns)
    phases, phase_remarks = describe_phases(chosen, options.active_bytes_per_second)
    limits, limit_remarks = describe_limits(chosen, options.active_bytes_per_second, span)
    return Run(
        path=path,
        meta=recording.meta,
        start_ns=start_ns,
        end_ns=window.end_ns - window.meta.interval_ns,
        cut_seconds=(chosen.cut_before * interval_seconds, chosen.cut_after * interval_seconds),
        recorded=span.series.recorded,
        values=values,
        spreads=spreads,
        units=("step" if span.units.steps else "block") if spreads else "",
        unit_count=len(lengths),
        unit_seconds=float(lengths.mean()) if len(lengths) else 0.0,
        ports=_ports(span, jobs),
        steps=_whole_steps(span, options.resamples, np.random.default_rng((options.seed, place))),
        events=tuple(event for event in recording.meta.events if start_ns <= event.time_ns < window.end_ns),
        events_left_out=recording.meta.events_left_out,
        merged_samples=0 if window.merged is None else int(np.count_nonzero(window.merged)),
        assumed_rates=tuple(rails.names[row] for row in np.flatnonzero(are_assumed(rails.line_rates).any(axis=1))),
        phases=phases,
        phase_remarks=phase_remarks,
        jobs=jobs,
        compared=_compared(span),
        limits=limits,
        limit_remarks=limit_remarks,
    )


def _whole_steps(span: SpanStatistics, resamples: int, rng: np.random.Generator) -> WholeSteps:
    lengths, own = span.step_sums[:, DURATION], describe_steps(span.step_sums.sum(axis=0))
    correlation = lag_correlation(lengths) if len(lengths) > 1 else math.nan
    group = group_size(max(1, len(lengths)), 0.0 if math.isnan(correlation) else correlation)
    spreads = {}
    if drawn := resample(span.step_sums, resamples, rng, size=group):
        found = describe_steps(drawn.sums)
        values = {"seconds": found.seconds, "moved_bytes": found.moved_bytes}
        spreads = {key: Spread(replicates, drawn.groups) for key, replicates in values.items()}
    sent = _sent_bytes(span.step_sums.sum(axis=0))
    line = span.line / max(1, sum(span.series.recorded))
    # unknown if the counters do not resolve samples, which then look active
    silent = math.nan if span.series.resolution_ticks > 1 else float(own.gap_seconds) / float(own.seconds)
    return WholeSteps(
        count=len(lengths),
        seconds=float(own.seconds),
        moved_bytes=float(own.moved_bytes),
        sent_bytes=sent,
        silent_share=silent,
        least_wire_seconds=sent / line if line > 0 else math.nan,
        busy_seconds=(1 - silent) * float(own.seconds),
        line_bytes_per_second=line,
        correlation=correlation,
        group=group,
        spreads=spreads,
    )


def _sent_bytes(sums: Floats) -> float:
    """Bytes per step in the direction with more, from the sums of all steps; NaN if there are none."""
    observed, seconds, count = sums[OBSERVED], sums[DURATION], sums[DURATION + 1]
    if not count or not observed:
        return math.nan
    return float(max(sums[TRANSMIT], sums[RECEIVE]) / observed * seconds / count)


def _covered_jobs(meta: RecordingMeta, begin_ns: int, end_ns: int) -> tuple[JobRecord, ...]:
    """The jobs between two wall times, each with the ports that it had then."""
    found = []
    for record in trace_holdings(meta.jobs, meta.events):
        held = tuple(each for each in record.holdings if each.overlaps(begin_ns, end_ns))
        if held:
            found.append(replace(record, holdings=held))
    return tuple(found)


def _value(row: ReportRow, span: SpanStatistics) -> Value:
    """The value of a row, None if unknown."""
    if row.finest and span.series.resolution_ticks > 1:
        return None
    # without an active sample, there are neither steps nor a score of their period
    if row.section == STEPS and math.isnan(span.active_p50):
        return None
    missing = 1 - span.coverage.observed_ratio
    if missing > {"any": 1.0, "few": MAX_MISSING_SHARE + 1e-9, "none": 0.0}[row.missing]:
        return None
    value = span.burstiness(row.bin_ns) if row.bin_ns else row.value(span)
    return finite(value) if isinstance(value, float) else value


def _spreads(
    span: SpanStatistics,
    table: Sequence[ReportRow],
    values: Mapping[str, Value],
    resamples: int,
    rng: np.random.Generator,
) -> dict[str, Spread]:
    """The spread of values that are quotients of sums."""
    of_units = resample(span.units.sums, resamples, rng, span.units.begun)
    of_steps = resample(span.step_sums, resamples, rng)
    found: dict[str, Spread] = {}
    if of_units:
        drawn, own = span.of_units(of_units.sums), span.of_units(span.units.sums.sum(axis=0))
        getters = {row.key: row.of_units for row in table if row.of_units}
        found |= _scatter(getters, values, drawn, own, of_units.groups)
    if of_steps:
        steps = {row.key: row.of_steps for row in table if row.of_steps}
        found |= _scatter(steps, values, describe_steps(of_steps.sums), span.steps, of_steps.groups)
    return found


def _scatter(
    getters: Mapping[str, Callable[[_Statistics], Floats]],
    values: Mapping[str, Value],
    drawn: _Statistics,
    own: _Statistics,
    groups: int,
) -> dict[str, Spread]:
    """The spread of values whose statistic is known for resampled units; `own` are the statistics of all units."""
    found = {}
    for key, statistic in getters.items():
        value, replicates = values[key], statistic(drawn)
        if isinstance(value, float) and np.isfinite(replicates).any():
            middle = float(statistic(own))
            # shifted, in proportion, from the units' own value to the value of the whole window
            found[key] = Spread(replicates * (value / middle) if middle > 0 else replicates, groups)
    return found


def _compared(span: SpanStatistics) -> tuple[ComparedPorts, ...]:
    rails, interval_seconds = span.series.rails, span.series.interval_seconds
    return tuple(
        ComparedPorts(
            tuple(rails.names[rail] for rail in group.rails), int(np.count_nonzero(group.together)) * interval_seconds
        )
        for group in rails.groups
    )


def _ports(span: SpanStatistics, jobs: Sequence[JobRecord]) -> tuple[PortLine, ...]:
    balance, rails = span.balance, span.series.rails
    owners: dict[str, dict[str, None]] = {}
    for record in jobs:
        for port in (port for holding in record.holdings for port in holding.ports):
            owners.setdefault(str(port), {})[record.job.claim.id] = None
    down = np.count_nonzero(~rails.up, axis=1) * span.series.interval_seconds
    shares = (map(finite, values.tolist()) for values in (span.rail_means, balance.share, balance.ratio))
    states = (values.tolist() for values in (balance.idle, balance.slow, down))
    jobs_of = (tuple(owners.get(name, ())) for name in rails.names)
    return tuple(starmap(PortLine, zip(rails.names, *shares, *states, jobs_of, strict=True)))
