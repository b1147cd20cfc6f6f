"""The rails of a recording and their sum, tick by tick, as the daemon adds them up. It must not judge them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.aggregator.resolution import SAME
from ibpulse.aggregator.samples import Seconds
from ibpulse.aggregator.ticks import sum_rails
from ibpulse.model import DIRECTIONS
from ibpulse.recording import RecordedPort, Recording
from ibpulse.units import SECOND_NS

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Series:
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
        return max((resolution_ticks(self.ports[index], self.interval_ns) for index in self.up), default=1)


def resolution_ticks(port: RecordedPort, interval_ns: int) -> int:
    """Ticks of the finest statistic that a port's counters can tell: 1, unless they were seen to stand still."""
    ticks = (port.resolution_seconds or 0.0) * SECOND_NS / interval_ns
    return math.ceil(ticks) if ticks > SAME * port.stride else 1


def add_up(recording: Recording, rows: Sequence[int]) -> Series:
    """The ports of `rows` and their sum, over all ticks of the recording.

    A direction that was recorded of no port at all counts as 0 in the sum, and is not `recorded`. For the rest the sum
    is the daemon's: see `aggregator.ticks.sum_rails`.
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
    return Series(
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
