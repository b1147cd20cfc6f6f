"""The part of a recording, and the ports, that a report covers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ibpulse.base.errors import RecordingError
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.base.values import Moment
from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND
from ibpulse.core.events.log import StateSpan
from ibpulse.core.jobs import Key
from ibpulse.core.model import PortState
from ibpulse.core.recordings import Recording, RecordingExtent, load, read_extent
from ibpulse.core.recordings.recording import SampleTimes, trace_holdings, trace_owners
from ibpulse.core.statistics.balance import group_rails
from ibpulse.core.statistics.rates import finest_ticks
from ibpulse.core.statistics.recorded import RailGroup, RailSeries, RailTraits, add_up
from ibpulse.core.statistics.span import SpanOptions


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The part of each recording that a report covers, and how it is computed.

    `ports` are names such as `mlx5_0:1` or `mlx5_0`; if empty, all rails. `begin` and `end` cut the recording;
    `trim` cuts the silence before the first active sample and after the last. A time scale that is not a whole number
    of samples gives no value. A change is significant if it is at least `least_change` and, for all rows
    together, larger than noise explains at `level`. The same `seed` gives the same intervals. `gpu_active` is the
    share of the time in which the GPUs compute, one for each recording or one for all; unknown if empty.
    `claim_seconds` is a saving per step to check against the time on the wire; the measured one if 0. `brief` leaves
    ten rows.
    """

    ports: tuple[str, ...] = ()
    begin: Moment | None = None
    end: Moment | None = None
    trim: bool = False
    active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND
    timescales_ns: tuple[int, ...] = (
        10 * MILLISECOND_NS,
        50 * MILLISECOND_NS,
        100 * MILLISECOND_NS,
        1000 * MILLISECOND_NS,
    )
    least_change: float = 0.01
    level: float = 0.95
    resamples: int = 4000
    seed: int = 0
    gpu_active: tuple[float, ...] = ()
    claim_seconds: float = 0.0
    brief: bool = False

    def span_options(self, place: int = 0) -> SpanOptions:
        """The parameters of the statistics of the recording at a position in the report."""
        computing = self.gpu_active[min(place, len(self.gpu_active) - 1)] if self.gpu_active else math.nan
        return SpanOptions(self.active_bytes_per_second, self.timescales_ns, computing_ratio=computing)


Outside = tuple[int, int]
"""The number of samples of a file before and after those that were loaded."""


def choose_part(path: Path, options: ReportOptions, last_ns: int = 0) -> tuple[RecordingExtent, int, int]:
    """The samples of a file from `begin` to `end` of the options; `last_ns` instead of `begin` counts from the end."""
    extent = read_extent(path)
    whole_ns = extent.ticks * extent.meta.interval_ns
    if last_ns:
        options = replace(options, begin=Moment(max(0, whole_ns - last_ns), after_begin=True))
    return (extent, *_between(path, extent, options))


def load_part(path: Path, options: ReportOptions, last_ns: int = 0) -> tuple[Recording, Outside]:
    """The samples of `choose_part`; only these are kept in memory."""
    extent, first, end = choose_part(path, options, last_ns)
    return load(path, first, end), (first, extent.ticks - end)


@dataclass(frozen=True, slots=True)
class ReportSpan:
    """The covered part of a recording; `cut_before` and `cut_after` count the samples cut off at either end."""

    recording: Recording
    series: RailSeries
    cut_before: int
    cut_after: int


def choose_window(path: Path, recording: Recording, options: ReportOptions, outside: Outside = (0, 0)) -> ReportSpan:
    """The part of a recording that the options select; of the file, `outside` was not loaded."""
    before, after = outside
    whole = RecordingExtent(
        recording.meta, recording.start_ns - before * recording.meta.interval_ns, before + recording.ticks + after
    )
    rows = _choose_ports(path, recording, options, outside)
    first, end = (min(max(tick - before, 0), recording.ticks) for tick in _between(path, whole, options))
    series = series_of(recording.cut(first, end), rows)
    if options.trim:
        with np.errstate(invalid="ignore"):
            active = np.flatnonzero(series.bandwidth > options.active_bytes_per_second) - series.lead
        if not len(active):
            raise RecordingError(f"recording {path} is never active, so --trim leaves nothing; omit it")
        first, end = first + int(active[0]), first + int(active[-1]) + 1
        if end - first < series.ticks:
            series = series_of(recording.cut(first, end), rows)
    return ReportSpan(recording.cut(first, end), series, before + first, recording.ticks - end + after)


def _choose_ports(path: Path, recording: Recording, options: ReportOptions, outside: Outside) -> list[int]:
    if not options.ports:
        rails = rows_in_state(recording, lambda state: state.rail, -outside[0], recording.ticks + outside[1])
        if not rails:
            raise RecordingError(f"recording {path} has no rail; choose ports with --port: it has {_names(recording)}")
        return rails
    chosen, missing = recording.meta.named_rows(options.ports)
    if missing:
        raise RecordingError(f"recording {path} has no port {', '.join(missing)}; it has {_names(recording)}")
    return chosen


def rows_in_state(recording: Recording, test: Callable[[PortState], bool], begin: int, end: int) -> list[int]:
    """The rows of the ports with a state that passes the test, at any sample from `begin` to before `end`."""
    states = recording.states
    return [
        row
        for row, port in enumerate(recording.meta.ports)
        if any(span.state and test(span.state) for span in states.spans(str(port.id), begin, end))
    ]


def _names(recording: Recording) -> str:
    return ", ".join(str(port.id) for port in recording.meta.ports)


def _between(path: Path, recording: RecordingExtent, options: ReportOptions) -> tuple[int, int]:
    """The samples from `begin` to before `end`, by the interval that each covers."""
    first, end = 0, recording.ticks
    # the rate of a sample covers the interval before it
    begin_ns = recording.start_ns - recording.meta.interval_ns
    if options.begin:
        first = -(-(options.begin.in_recording(begin_ns) - begin_ns) // recording.meta.interval_ns)
    if options.end:
        end = (options.end.in_recording(begin_ns) - begin_ns) // recording.meta.interval_ns
    first, end = max(first, 0), min(end, recording.ticks)
    if first >= end:
        seconds = recording.ticks * recording.meta.interval_ns / 1e9
        raise RecordingError(
            f"recording {path} has no data between --from and --to: it is {seconds:g} s long; choose other times"
        )
    return first, end


def series_of(recording: Recording, rows: Sequence[int]) -> RailSeries:
    """The ports of `rows` and their sum, over all samples of a recording."""
    ports, interval_ns = [recording.meta.ports[row] for row in rows], recording.meta.interval_ns
    finest = [finest_ticks(port.resolution_seconds, interval_ns, port.stride) for port in ports]
    names = tuple(str(port.id) for port in ports)
    states = recording.states
    lines = [_over_time(states.spans(name, 0, recording.ticks), recording.ticks) for name in names]
    rails = RailTraits(
        names=names,
        up=np.stack([up for up, _ in lines]),
        line_rates=np.stack([rates for _, rates in lines]),
        strides=np.array([port.stride for port in ports], dtype=np.int64),
        finest_ticks=np.array(finest, dtype=np.int64),
        groups=_group_by_jobs(recording, names),
    )
    chosen = list(rows)
    peaks = None if recording.steps is None else recording.peaks[chosen]
    rates, seconds = recording.bytes_per_second[chosen], recording.seconds[chosen]
    return add_up(rates, seconds, rails, recording.start_ns, interval_ns, peaks)


def _group_by_jobs(recording: Recording, names: Sequence[str]) -> tuple[RailGroup, ...]:
    """The ports that had the same jobs, each group with the samples at which all of them had the same ones."""
    records = trace_holdings(recording.meta.jobs, recording.meta.events)
    samples = SampleTimes(recording.start_ns, recording.meta.interval_ns, recording.ticks)
    found = trace_owners(records, names, recording.states, samples)
    owners = [found.get(name, {}) for name in names]
    groups = group_rails([frozenset(each) for each in owners]).values()
    return tuple(RailGroup(rails, _together([owners[rail] for rail in rails], samples.count)) for rails in groups)


def _together(owners: Sequence[Mapping[Key, Sequence[tuple[int, int]]]], ticks: int) -> Bools:
    """At which samples ports with the same jobs, each with spans of samples, have the same ones: (samples,)."""
    together = np.ones(ticks, dtype=np.bool_)
    for key in owners[0]:
        changes = np.zeros(ticks + 1, dtype=np.int64)
        for first, end in (span for each in owners for span in each[key]):
            changes[first] += 1
            changes[end] -= 1
        holders = changes[:-1].cumsum()
        together &= (holders == 0) | (holders == len(owners))
    return together


def _over_time(spans: Sequence[StateSpan], ticks: int) -> tuple[Bools, Floats]:
    """Whether a port is up, and its line rate as in `sums.line_rate`, at each sample: (samples,)."""
    up, rates, rate = np.zeros(ticks, dtype=np.bool_), np.zeros(ticks), math.nan
    for span in spans:
        if span.state is not None:
            up[span.first : span.end] = span.state.active
            rate = span.state.rate_bytes_per_second or rate
            rates[span.first : span.end] = rate
    return up, rates
