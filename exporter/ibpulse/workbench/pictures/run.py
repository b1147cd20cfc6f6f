"""The drawn part of one recording: its values, reduced to columns, its link states and events, and the common scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ibpulse.base.errors import PictureError
from ibpulse.base.text import escape_controls
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.events import Event
from ibpulse.core.events.log import StateSpan
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.recordings import Recording
from ibpulse.core.statistics.signs import Signs
from ibpulse.core.statistics.steps.runs import MAX_MISSING_SHARE
from ibpulse.workbench.pictures.options import PictureOptions, Unit

GIGA = 1e9
PERCENT = 100.0
# rates are not more exact than this
TOLERANCE = 0.005
ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0)


@dataclass(frozen=True, slots=True)
class PictureNode:
    """The sum over the rails of a recording, per sample: bytes per second, NaN if missing, and the seconds measured.

    `lines` (samples,) is its line rate, NaN if unknown. `facts` are its key numbers: name and text. `peaks` is the
    certain part of the bandwidth, None if that is all of it.
    """

    bandwidth: Floats
    seconds: Floats
    lines: Floats
    facts: tuple[tuple[str, str], ...] = ()
    peaks: Floats | None = None


@dataclass(frozen=True, slots=True)
class PictureRun:
    """The ports of a recording: `rates` and `seconds` (ports, samples), sums of the chosen directions, NaN if missing.

    `begin_ns` is the wall time at which the first sample begins. `lines` (ports, samples) are the line rates in force,
    of the same directions together, the last one while the link is down, NaN if unknown. `down` (ports, samples) marks
    samples without traffic whose link was not ACTIVE. `events` concern the node or these ports, sorted by time.
    `simulated`: the ports are those of a simulator or a replay. `signs` has those of what limited transmit, by port, if
    there are any.
    """

    name: str
    host: str
    begin_ns: int
    interval_ns: int
    ports: tuple[str, ...]
    rates: Floats
    seconds: Floats
    lines: Floats
    down: Bools
    node: PictureNode
    events: tuple[Event, ...] = ()
    peaks: Floats | None = None
    merged_samples: int = 0
    simulated: bool = False
    signs: Mapping[str, Signs] = field(default_factory=dict)

    @property
    def ticks(self) -> int:
        """Number of samples."""
        return int(self.rates.shape[1])

    @property
    def interval_seconds(self) -> float:
        """Interval between samples in seconds."""
        return self.interval_ns / SECOND_NS

    @property
    def span_seconds(self) -> float:
        """From the beginning of the first sample to the end of the last."""
        return self.ticks * self.interval_seconds

    @property
    def missing_ratio(self) -> float:
        """Share of the samples of all ports that are missing although the link was not down."""
        return float((np.isnan(self.rates) & ~self.down).mean())

    @property
    def too_much_missing(self) -> bool:
        """Whether too many samples of the sum are missing to know its bursts, gaps, steps and peak."""
        return float(np.isnan(self.node.bandwidth).mean()) > MAX_MISSING_SHARE

    @property
    def down_ratio(self) -> float:
        """Share of the samples of all ports whose link was down."""
        return float(self.down.mean())


def keep_direction(recording: Recording, direction: str) -> Recording:
    """The recording with one direction only, the other missing; `both` changes nothing."""
    if direction == "both":
        return recording
    other = 1 - DIRECTIONS.index(direction)
    rates, seconds = recording.bytes_per_second.copy(), recording.seconds.copy()
    rates[:, other], seconds[:, other] = np.nan, 0.0
    merged = None
    if recording.merged is not None:
        merged = recording.merged.copy()
        merged[:, other] = False
    return replace(recording, bytes_per_second=rates, seconds=seconds, merged=merged)


def take_run(name: str, recording: Recording, ports: Sequence[str], node: PictureNode) -> PictureRun:
    """The named ports of a recording with their sum, which has the same samples.

    If a port lacks a direction that other ports have, its sums are missing too.
    """
    by_name = {str(port.id): row for row, port in enumerate(recording.meta.ports)}
    rows = [by_name[port] for port in ports]
    rates = recording.bytes_per_second[rows]
    ways = [way for way in range(len(DIRECTIONS)) if not np.isnan(rates[:, way]).all()]
    if not ways:
        raise PictureError(f"recording {name} has no values for {', '.join(ports)}; choose other times or ports")
    summed = rates[:, ways].sum(axis=1)
    history = recording.states
    spans = [history.spans(port, 0, recording.ticks) for port in ports]
    inactive = np.stack([_inactive(states, recording.ticks) for states in spans])
    known = [recording.meta.ports[row].rate_bytes_per_second for row in rows]
    _end_at_traffic(recording, ports, inactive, summed > 0)
    lines = np.stack([_line_rate(*each, recording.ticks) for each in zip(spans, known, strict=True)])
    return PictureRun(
        name=escape_controls(name),
        host=escape_controls(recording.meta.host),
        begin_ns=recording.start_ns - recording.meta.interval_ns,
        interval_ns=recording.meta.interval_ns,
        ports=tuple(map(escape_controls, ports)),
        rates=summed,
        seconds=recording.seconds[rows][:, ways].mean(axis=1),
        lines=lines * len(ways),
        down=inactive & ~(summed > 0),
        node=node,
        events=_choose_events(recording, ports),
        peaks=None if recording.steps is None else recording.peaks[rows][:, ways].sum(axis=1),
        merged_samples=0 if recording.merged is None else int(np.count_nonzero(recording.merged[rows])),
        simulated=recording.meta.simulated,
    )


def _inactive(spans: Sequence[StateSpan], ticks: int) -> Bools:
    """The samples for which the link is known not to be ACTIVE: (samples,)."""
    found = np.zeros(ticks, dtype=np.bool_)
    for span in spans:
        if span.state is not None and span.state.link_down:
            found[span.first : span.end] = True
    return found


def _end_at_traffic(recording: Recording, ports: Sequence[str], inactive: Bools, moving: Bools) -> None:
    """A link that came up was up from the first traffic on, within the uncertainty of the event."""
    for event in recording.meta.events:
        if event.subject not in ports or event.after is None or not event.after.active:
            continue
        row, interval_ns = ports.index(event.subject), recording.meta.interval_ns
        times_ns = (event.time_ns - event.uncertainty_ns, event.time_ns)
        first, end = (max(0, (time_ns - recording.start_ns) // interval_ns) for time_ns in times_ns)
        found = np.flatnonzero(moving[row, first:end])
        if found.size:
            inactive[row, first + int(found[0]) : end] = False


def _line_rate(spans: Sequence[StateSpan], otherwise: float | None, ticks: int) -> Floats:
    """The line rate in force, one direction: (samples,); where it is unknown the one before, or else the next one."""
    rates = [span.state.rate_bytes_per_second if span.state else None for span in spans]
    last = next((rate for rate in rates if rate), otherwise) or np.nan
    found = np.full(ticks, last)
    for span, rate in zip(spans, rates, strict=True):
        last = rate or last
        found[span.first : span.end] = last
    return found


def _choose_events(recording: Recording, ports: Sequence[str]) -> tuple[Event, ...]:
    """The events of the node and of these ports within the recording, by time."""
    subjects = {"", *ports, *(port.partition(":")[0] for port in ports)}
    begin_ns, end_ns = recording.start_ns - recording.meta.interval_ns, recording.end_ns
    found = [one for one in recording.meta.events if one.subject in subjects and begin_ns < one.time_ns < end_ns]
    plain = [replace(one, subject=escape_controls(one.subject), text=escape_controls(one.text)) for one in found]
    return tuple(sorted(plain, key=lambda event: event.time_ns))


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of columns of `ticks` samples each; the last may be shorter.

    `highest` and `mean` (rows, columns) are NaN if all is missing; `partly` marks columns with some missing samples,
    `down` those without traffic in which the link was down.
    """

    highest: Floats
    mean: Floats
    partly: Bools
    down: Bools
    ticks: int

    @property
    def count(self) -> int:
        """Number of columns."""
        return int(self.highest.shape[1])


def reduce(
    values: Floats, seconds: Floats, most: int, down: Bools | None = None, peaks: Floats | None = None
) -> Columns:
    """At most `most` columns of (rows, samples), NaN if missing; the mean is weighted by the seconds.

    `down` (rows, samples) marks samples whose link was down; `peaks` are the values for the highest, by default the
    same.

    Invariants: the highest value of a row is that of its columns; the mean of the columns, weighted by their seconds,
    is that of the row.
    """
    ticks = max(1, -(-values.shape[1] // most))
    starts = np.arange(0, values.shape[1], ticks)
    known = ~np.isnan(values)
    weight = np.where(known, seconds, 0.0)
    total = np.add.reduceat(weight, starts, axis=1)
    summed = np.add.reduceat(np.where(known, values, 0.0) * weight, starts, axis=1)
    mean = np.full(total.shape, np.nan)
    np.divide(summed, total, out=mean, where=total > 0)
    highest = np.fmax.reduceat(values if peaks is None else peaks, starts, axis=1)
    partly = ~np.logical_and.reduceat(known, starts, axis=1)
    found = np.zeros(values.shape, dtype=np.bool_) if down is None else down
    return Columns(highest, mean, partly, np.logical_or.reduceat(found, starts, axis=1) & ~(highest > 0), ticks)


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 to `port` for a port and to `node` for the sum, in GB/s or percent of the line rate.

    `port` is at most the highest line rate, if all are known; `highest` is the highest value of any port.
    """

    unit: Unit
    port: float
    node: float
    highest: float = 0.0

    @property
    def sign(self) -> str:
        """The unit as used in labels."""
        return "GB/s" if self.unit == "GB/s" else "%"

    @property
    def label(self) -> str:
        """The measured quantity, with its unit."""
        return "bandwidth (GB/s)" if self.unit == "GB/s" else "utilisation (% of line rate)"

    @property
    def exceeded(self) -> str:
        """The highest value of any port in words if it is above the scale, otherwise empty."""
        if self.highest <= self.port * (1 + TOLERANCE):
            return ""
        return f"▲ above the line rate: up to {self.highest:.4g} {self.sign}"

    def of_ports(self, run: PictureRun, peaks: bool = False) -> Floats:
        """The ports' rates, or those for maxima, in the unit: (ports, samples)."""
        rates = run.peaks if peaks and run.peaks is not None else run.rates
        return rates / (GIGA if self.unit == "GB/s" else run.lines / PERCENT)

    def of_node(self, run: PictureRun, peaks: bool = False) -> Floats:
        """The sum's rate, or that for maxima, in the unit: (samples,)."""
        node = run.node
        rates = node.peaks if peaks and node.peaks is not None else node.bandwidth
        return rates / (GIGA if self.unit == "GB/s" else node.lines / PERCENT)


def choose_scale(runs: Sequence[PictureRun], options: PictureOptions) -> Scale:
    """The scale of all runs: up to the highest value, or the line rate if that is less; of utilisation up to 100 %."""
    lines = np.concatenate([run.lines.ravel() for run in runs])
    limit, least = (math.inf if np.isnan(lines).any() else float(lines.max()) / GIGA), 0.0
    if options.unit == "utilization":
        limit = least = PERCENT
        for run in runs:
            unknown = [port for port, line in zip(run.ports, run.lines, strict=True) if np.isnan(line).any()]
            if unknown:
                names = ", ".join(unknown)
                raise PictureError(f"recording {run.name} has no line rate for {names}; use --unit=GB/s")
    bare = Scale(options.unit, 0.0, 0.0)
    port = max(_highest(bare.of_ports(run, peaks=True)) for run in runs)
    node = max(_highest(bare.of_node(run, peaks=True)) for run in runs)
    return Scale(options.unit, min(round_up(max(port, least)), limit), round_up(max(node, least)), port)


def round_up(value: float) -> float:
    """The smallest of a few round numbers that is not below the value; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in ROUND if factor * power >= value * (1 - 1e-9))


def _highest(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if known.size else 0.0
