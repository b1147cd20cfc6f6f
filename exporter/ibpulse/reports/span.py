"""Which part of a recording is described: its span, its ports, and the sum over rails tick by tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ibpulse.analysis.bursts import Thresholds
from ibpulse.analysis.node_statistics import Seconds, sum_rails
from ibpulse.analysis.resolution import finest_ticks
from ibpulse.analysis.signature import SignatureOptions
from ibpulse.arrays import Bools, Floats
from ibpulse.errors import RecordingError
from ibpulse.model import DIRECTIONS
from ibpulse.recordings import RecordedPort, Recording
from ibpulse.units import MILLISECOND_NS, SECOND_NS


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant in nanoseconds: of the clock, since 1970, or after the beginning of each recording."""

    ns: int
    after_begin: bool = False

    def in_recording(self, start_ns: int) -> int:
        """The instant as wall time in a recording that begins at `start_ns`."""
        return self.ns + start_ns if self.after_begin else self.ns


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Which part of each recording is described, and how.

    `ports` are names such as `mlx5_0:1` or `mlx5_0`; the rails where it is empty. `begin` and `end` cut the recording;
    `trim` cuts the silence before the first active tick and after the last. A time scale that is not a whole number
    of ticks gives no value. A change is one that matters when it is at least `least_change` and, for all rows
    together, beyond what noise does at `level`. The same `seed` gives the same intervals.
    """

    ports: tuple[str, ...] = ()
    begin: Moment | None = None
    end: Moment | None = None
    trim: bool = False
    active_bytes_per_second: float = 0.1e9
    burst_low_bytes_per_second: float | None = None
    timescales_ns: tuple[int, ...] = (
        10 * MILLISECOND_NS,
        50 * MILLISECOND_NS,
        100 * MILLISECOND_NS,
        1000 * MILLISECOND_NS,
    )
    signature: SignatureOptions = field(default_factory=SignatureOptions)
    least_change: float = 0.01
    level: float = 0.95
    resamples: int = 4000
    seed: int = 0

    def thresholds(self) -> Thresholds:
        """Where bursts begin and end."""
        low, high = self.burst_low_bytes_per_second, self.active_bytes_per_second
        return Thresholds(high, high if low is None else min(low, high))


@dataclass(frozen=True, slots=True)
class ReportSpan:
    """The described part of a recording; `cut_before` and `cut_after` are the ticks left out on either side of it."""

    recording: Recording
    series: RailSeries
    cut_before: int
    cut_after: int


def choose_window(path: Path, recording: Recording, options: ReportOptions) -> ReportSpan:
    """The part of a recording that the options ask for.

    Raises:
        RecordingError: nothing of it is left, or it has no such port; `path` names it.
    """
    rows = _choose_ports(path, recording, options)
    first, end = _between(path, recording, options)
    series = add_up(recording.cut(first, end), rows)
    if options.trim:
        with np.errstate(invalid="ignore"):
            active = np.flatnonzero(series.bandwidth > options.active_bytes_per_second) - series.lead
        if not len(active):
            raise RecordingError(f"recording {path} is never active, so nothing is left after --trim; leave that out")
        first, end = first + int(active[0]), first + int(active[-1]) + 1
        if end - first < series.ticks:
            series = add_up(recording.cut(first, end), rows)
    return ReportSpan(recording.cut(first, end), series, first, recording.ticks - end)


def _choose_ports(path: Path, recording: Recording, options: ReportOptions) -> list[int]:
    ports = recording.meta.ports
    if not options.ports:
        rails = [row for row, port in enumerate(ports) if port.rail]
        if not rails:
            raise RecordingError(f"recording {path} has no rail; choose ports with --port, it has {_names(recording)}")
        return rails
    chosen = [row for row, port in enumerate(ports) if {str(port.id), port.device} & set(options.ports)]
    known = {name for port in ports for name in (str(port.id), port.device)}
    missing = [name for name in options.ports if name not in known]
    if missing:
        raise RecordingError(f"recording {path} has no port {', '.join(missing)}; it has {_names(recording)}")
    return chosen


def _names(recording: Recording) -> str:
    return ", ".join(str(port.id) for port in recording.meta.ports)


def _between(path: Path, recording: Recording, options: ReportOptions) -> tuple[int, int]:
    """The ticks from `begin` to before `end`: those of which the time since the tick before lies between them."""
    first, end = 0, recording.ticks
    # a tick's rate is that of the interval before it
    begin_ns = recording.start_ns - recording.meta.interval_ns
    if options.begin:
        first = -(-(options.begin.in_recording(begin_ns) - begin_ns) // recording.meta.interval_ns)
    if options.end:
        end = (options.end.in_recording(begin_ns) - begin_ns) // recording.meta.interval_ns
    first, end = max(first, 0), min(end, recording.ticks)
    if first >= end:
        seconds = recording.ticks * recording.meta.interval_ns / 1e9
        raise RecordingError(
            f"recording {path} has nothing between --from and --to: it is {seconds:g} s long; name other times"
        )
    return first, end


@dataclass(frozen=True, slots=True)
class RailSeries:
    """The chosen ports of a recording over a window.

    `rates` and `seconds` are (ports, 2, ticks), 0 where `good` (ports, ticks) is false. `directions` (2, ticks),
    `measured` (ticks,) and `whole` (ticks,) are those of the sum over the ports whose link is up: 0 and false in holes.
    Up to `ticks_per_second - 1` ticks of the window's first second, before its first tick, and of its last second are
    holes; `lead` is the place of the first tick. `recorded` says for each direction whether there is any value.
    """

    ports: tuple[RecordedPort, ...]
    interval_ns: int
    lead: int
    ticks: int
    ticks_per_second: int
    recorded: tuple[bool, bool]
    rates: Floats
    seconds: Floats
    good: Bools
    directions: Floats
    measured: Floats
    whole: Bools

    @property
    def bandwidth(self) -> Floats:
        """Transmit + receive of all ports: (ticks,), NaN in holes."""
        return np.where(self.whole, self.directions.sum(axis=0), np.nan)

    @property
    def interval_seconds(self) -> float:
        """Distance of the ticks."""
        return self.interval_ns / SECOND_NS

    @property
    def up(self) -> list[int]:
        """Which ports have a link that is up."""
        return [index for index, port in enumerate(self.ports) if port.active]

    @property
    def coarsest_stride(self) -> int:
        """Ticks between two samples of the port that is sampled least often."""
        return max((self.ports[index].stride for index in self.up), default=1)

    @property
    def resolution_ticks(self) -> int:
        """Ticks of the finest statistic that the counters can tell; 1 unless some were seen to stand still."""
        up = (self.ports[index] for index in self.up)
        return max((finest_ticks(port.resolution_seconds, self.interval_ns, port.stride) for port in up), default=1)


def add_up(recording: Recording, rows: Sequence[int]) -> RailSeries:
    """The ports of `rows` and their sum, over all ticks of the recording.

    A direction that was recorded of no port at all counts as 0 in the sum, and is not `recorded`. For the rest the sum
    is the daemon's: see `sum_rails`.
    """
    ports = tuple(recording.meta.ports[row] for row in rows)
    interval_ns = recording.meta.interval_ns
    per_second, lead = _place(recording.start_ns, interval_ns)
    blocks = -(-(lead + recording.ticks) // per_second)
    span = slice(lead, lead + recording.ticks)
    shape = (len(rows), 2, blocks * per_second)
    rates, seconds, good = np.zeros(shape), np.zeros(shape), np.zeros((shape[0], shape[2]), dtype=np.bool_)
    found = recording.bytes_per_second[list(rows)]
    known = ~np.isnan(found)
    recorded = [bool(known[:, way].any()) for way in range(len(DIRECTIONS))]
    good[:, span] = known[:, recorded].all(axis=1) if any(recorded) else False
    measured = recording.seconds[list(rows)]
    for way, there in enumerate(recorded):
        if there:
            rates[:, way, span] = np.where(good[:, span], found[:, way], 0.0)
        seconds[:, way, span] = np.where(good[:, span], measured[:, way if there else 1 - way], 0.0)
    up = [index for index, port in enumerate(ports) if port.active]
    split = (len(up), 2, blocks, per_second)
    summed = sum_rails(
        Seconds(rates[up].reshape(split), seconds[up].reshape(split), good[up].reshape(len(up), blocks, per_second))
    )
    return RailSeries(
        ports=ports,
        interval_ns=interval_ns,
        lead=lead,
        ticks=recording.ticks,
        ticks_per_second=per_second,
        recorded=(recorded[0], recorded[1]),
        rates=rates,
        seconds=seconds,
        good=good,
        directions=summed.directions.reshape(2, -1),
        measured=summed.measured.ravel(),
        whole=summed.good.ravel(),
    )


def _place(start_ns: int, interval_ns: int) -> tuple[int, int]:
    """Ticks of a second, and how many of the first second lie before `start_ns`; a second's first tick ends in it."""
    if SECOND_NS % interval_ns:
        return max(1, SECOND_NS // interval_ns), 0
    per_second = SECOND_NS // interval_ns
    return per_second, (start_ns // interval_ns - 1) % per_second
