"""The drawn part of one recording: its values, reduced to columns, and the scale that all runs share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.arrays import Floats
from ibpulse.errors import PictureError
from ibpulse.model import DIRECTIONS
from ibpulse.pictures.options import PictureOptions, Unit
from ibpulse.recordings import Recording
from ibpulse.units import SECOND_NS

GIGA = 1e9
PERCENT = 100.0
ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0)


@dataclass(frozen=True, slots=True)
class PictureNode:
    """The sum over the rails of a recording, per sample: bytes per second, NaN if missing, and the seconds measured.

    `facts` are its key numbers: name and text.
    """

    bandwidth: Floats
    seconds: Floats
    line_bytes_per_second: float
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PictureRun:
    """The ports of a recording: `rates` and `seconds` (ports, samples), sums of the chosen directions, NaN if missing.

    `begin_ns` is the wall time at which the first sample begins. `lines` (ports,) are the line rates of the same
    directions together, NaN if unknown.
    """

    name: str
    host: str
    begin_ns: int
    interval_ns: int
    ports: tuple[str, ...]
    rates: Floats
    seconds: Floats
    lines: Floats
    node: PictureNode

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
    def hole_ratio(self) -> float:
        """Share of the samples of all ports that are missing."""
        return float(np.isnan(self.rates).mean())


def keep_direction(recording: Recording, direction: str) -> Recording:
    """The recording with one direction only, the other missing; `both` changes nothing."""
    if direction == "both":
        return recording
    other = 1 - DIRECTIONS.index(direction)
    rates, seconds = recording.bytes_per_second.copy(), recording.seconds.copy()
    rates[:, other], seconds[:, other] = np.nan, 0.0
    return Recording(recording.meta, recording.start_ns, rates, seconds)


def take_run(name: str, recording: Recording, ports: Sequence[str], node: PictureNode) -> PictureRun:
    """The named ports of a recording with their sum, which has the same samples.

    If a port lacks a direction that other ports have, its sums are missing too.

    Raises:
        PictureError: no port has any value.
    """
    by_name = {str(port.id): row for row, port in enumerate(recording.meta.ports)}
    rows = [by_name[port] for port in ports]
    rates = recording.bytes_per_second[rows]
    ways = [way for way in range(len(DIRECTIONS)) if not np.isnan(rates[:, way]).all()]
    if not ways:
        raise PictureError(f"recording {name} has no values for {', '.join(ports)}; choose other times or ports")
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


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of columns of `ticks` samples each; the last may be shorter.

    `highest` and `mean` (rows, columns) are NaN if all is missing; `partly` marks columns with some missing samples.
    """

    highest: Floats
    mean: Floats
    partly: npt.NDArray[np.bool_]
    ticks: int

    @property
    def count(self) -> int:
        """Number of columns."""
        return int(self.highest.shape[1])


def reduce(values: Floats, seconds: Floats, most: int) -> Columns:
    """At most `most` columns of (rows, samples), NaN if missing; the mean is weighted by the seconds.

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
    highest = np.fmax.reduceat(values, starts, axis=1)
    return Columns(highest, mean, ~np.logical_and.reduceat(known, starts, axis=1), ticks)


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 to `port` for a port and to `node` for the sum, in GB/s or percent of the line rate."""

    unit: Unit
    port: float
    node: float

    @property
    def sign(self) -> str:
        """The unit as used in labels."""
        return "GB/s" if self.unit == "GB/s" else "%"

    @property
    def label(self) -> str:
        """The measured quantity, with its unit."""
        return "bandwidth (GB/s)" if self.unit == "GB/s" else "utilisation (% of line rate)"

    def of_ports(self, run: PictureRun) -> Floats:
        """The ports' rates in the unit: (ports, samples)."""
        return run.rates / (GIGA if self.unit == "GB/s" else run.lines[:, None] / PERCENT)

    def of_node(self, run: PictureRun) -> Floats:
        """The sum's rate in the unit: (samples,)."""
        return run.node.bandwidth / (GIGA if self.unit == "GB/s" else run.node.line_bytes_per_second / PERCENT)


def choose_scale(runs: Sequence[PictureRun], options: PictureOptions) -> Scale:
    """The scale that fits every value of every run; for utilisation at least 0 to 100 %.

    Raises:
        PictureError: utilisation is requested, but a line rate is unknown.
    """
    least = 0.0
    if options.unit == "utilization":
        least = PERCENT
        for run in runs:
            unknown = [port for port, line in zip(run.ports, run.lines, strict=True) if math.isnan(line)]
            if unknown or math.isnan(run.node.line_bytes_per_second):
                names = ", ".join(unknown) or "any active port"
                raise PictureError(f"recording {run.name} has no line rate for {names}; use --unit=GB/s")
    bare = Scale(options.unit, 0.0, 0.0)
    port = max(_highest(bare.of_ports(run)) for run in runs)
    node = max(_highest(bare.of_node(run)) for run in runs)
    return Scale(options.unit, round_up(max(port, least)), round_up(max(node, least)))


def round_up(value: float) -> float:
    """The smallest of a few round numbers that is not below the value; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in ROUND if factor * power >= value * (1 - 1e-9))


def _highest(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if known.size else 0.0
