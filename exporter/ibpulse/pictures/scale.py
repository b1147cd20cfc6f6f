"""The unit and the one scale that all runs of a picture share. It must not draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.errors import PictureError
from ibpulse.pictures.options import PictureOptions, Unit
from ibpulse.pictures.run import PictureRun

Floats = npt.NDArray[np.float64]

GIGA = 1e9
PERCENT = 100.0
ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 to `port` for a port and to `node` for the sum, in GB/s or percent of the line rate."""

    unit: Unit
    port: float
    node: float

    @property
    def sign(self) -> str:
        """The unit as labels have it."""
        return "GB/s" if self.unit == "GB/s" else "%"

    @property
    def label(self) -> str:
        """What is measured, with its unit."""
        return "bandwidth (GB/s)" if self.unit == "GB/s" else "utilisation (% of line rate)"

    def of_ports(self, run: PictureRun) -> Floats:
        """The ports' rates in the unit: (ports, ticks)."""
        return run.rates / (GIGA if self.unit == "GB/s" else run.lines[:, None] / PERCENT)

    def of_node(self, run: PictureRun) -> Floats:
        """The sum's rate in the unit: (ticks,)."""
        return run.node.bandwidth / (GIGA if self.unit == "GB/s" else run.node.line_bytes_per_second / PERCENT)


def choose_scale(runs: Sequence[PictureRun], options: PictureOptions) -> Scale:
    """The scale on which every value of every run has a place; of utilisation at least 0 to 100 %.

    Raises:
        PictureError: a utilisation is asked for and a line rate is not known.
    """
    least = 0.0
    if options.unit == "utilization":
        least = PERCENT
        for run in runs:
            unknown = [port for port, line in zip(run.ports, run.lines, strict=True) if math.isnan(line)]
            if unknown or math.isnan(run.node.line_bytes_per_second):
                names = ", ".join(unknown) or "any port that is up"
                raise PictureError(f"recording {run.name} has no line rate of {names}; use --unit=GB/s")
    bare = Scale(options.unit, 0.0, 0.0)
    port = max(_highest(bare.of_ports(run)) for run in runs)
    node = max(_highest(bare.of_node(run)) for run in runs)
    return Scale(options.unit, round_up(max(port, least)), round_up(max(node, least)))


def round_up(value: float) -> float:
    """The next of a few round numbers that is not below the value; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in ROUND if factor * power >= value * (1 - 1e-9))


def _highest(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if known.size else 0.0
