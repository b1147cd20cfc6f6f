"""What is drawn of one recording. It must not know which file it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.errors import PictureError
from ibpulse.model import DIRECTIONS
from ibpulse.recording import Recording
from ibpulse.units import SECOND_NS

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Node:
    """The sum over the rails of a recording, tick by tick: bytes per second, NaN in holes, and the seconds measured.

    `facts` are its key numbers: what each is called, and its text.
    """

    bandwidth: Floats
    seconds: Floats
    line_bytes_per_second: float
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PictureRun:
    """The ports of a recording: `rates` and `seconds` (ports, ticks), the chosen directions added up, NaN in holes.

    `begin_ns` is the wall time at which the first tick begins. `lines` (ports,) are the line rates of the same
    directions together, NaN where not known.
    """

    name: str
    host: str
    begin_ns: int
    interval_ns: int
    ports: tuple[str, ...]
    rates: Floats
    seconds: Floats
    lines: Floats
    node: Node

    @property
    def ticks(self) -> int:
        """Number of ticks."""
        return int(self.rates.shape[1])

    @property
    def interval_seconds(self) -> float:
        """Distance of the ticks."""
        return self.interval_ns / SECOND_NS

    @property
    def span_seconds(self) -> float:
        """From the beginning of the first tick to the end of the last."""
        return self.ticks * self.interval_seconds

    @property
    def hole_ratio(self) -> float:
        """Ticks of ports of which nothing is known, per all."""
        return float(np.isnan(self.rates).mean())


def keep_direction(recording: Recording, direction: str) -> Recording:
    """The recording with one direction alone; the other is one hole. `both` leaves it as it is."""
    if direction == "both":
        return recording
    other = 1 - DIRECTIONS.index(direction)
    rates, seconds = recording.bytes_per_second.copy(), recording.seconds.copy()
    rates[:, other], seconds[:, other] = np.nan, 0.0
    return Recording(recording.meta, recording.start_ns, rates, seconds)


def take_run(name: str, recording: Recording, ports: Sequence[str], node: Node) -> PictureRun:
    """The named ports of a recording with their sum, which has the same ticks.

    A port of which one direction is known and the other not, although it was recorded of others, has a hole.

    Raises:
        PictureError: no port has any value.
    """
    by_name = {str(port.id): row for row, port in enumerate(recording.meta.ports)}
    rows = [by_name[port] for port in ports]
    rates = recording.bytes_per_second[rows]
    ways = [way for way in range(len(DIRECTIONS)) if not np.isnan(rates[:, way]).all()]
    if not ways:
        raise PictureError(f"recording {name} holds no value of {', '.join(ports)}; choose other times or ports")
    known = [recording.meta.ports[row].rate_bytes_per_second or np.nan for row in rows]
    return PictureRun(
        name=name,
        host=recording.meta.host,
        begin_ns=recording.start_ns - recording.meta.interval_ns,
        interval_ns=recording.meta.interval_ns,
        ports=tuple(ports),
        rates=rates[:, ways].sum(axis=1),
        seconds=recording.seconds[rows][:, ways].mean(axis=1),
        lines=np.array(known) * len(ways),
        node=node,
    )
