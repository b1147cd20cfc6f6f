"""What the wire alone says of exposed communication: bounds, never a value.

While the wire is silent, no communication between nodes is exposed, so exposed communication is at most the time in
which it is active. If the share of time in which the GPUs compute is known as well, the bounds are those of Fréchet for
the intersection of two events of known probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ibpulse.core.arrays import Floats
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.node_statistics import OBSERVED, RECEIVE, TRANSMIT
from ibpulse.core.statistics.resampling_units import COUNT, DURATION, describe_steps


@dataclass(frozen=True, slots=True)
class WireBounds:
    """Per step: silent share, least time that the bytes need, and bounds of exposed communication; NaN if unknown."""

    silent_ratio: float
    least_wire_seconds: float
    exposed_low_seconds: float
    exposed_high_seconds: float


def exposed_bounds(wire_active: Floats, computing: Floats) -> tuple[Floats, Floats]:
    """Bounds of the share of time in which the wire is active and nothing computes: arrays like the arguments.

    Arguments are shares of the same intervals. Bounds of a longer time are the sums over its intervals; they are only
    tight if intervals are shorter than the phases of a step. If `computing` is NaN, nothing is known of it.
    """
    low, high = np.maximum(0.0, wire_active - computing), np.minimum(wire_active, 1.0 - computing)
    known = ~np.isnan(computing)
    return np.where(known, low, 0.0 * wire_active), np.where(known, high, wire_active)


def least_wire_seconds(sums: Floats, line: float) -> float:
    """Time that the bytes of a mean step need in their busier direction; NaN if it is unknown.

    Args:
        sums: the sums of all steps (fields,).
        line: the line rate of one direction, bytes per second.
    """
    if not sums[COUNT] or not sums[OBSERVED] or not line > 0:
        return math.nan
    sent = max(sums[TRANSMIT], sums[RECEIVE]) / sums[OBSERVED] * sums[DURATION] / sums[COUNT]
    return float(sent / line)


def bound_steps(sums: Floats, line: float, computing_ratio: float) -> WireBounds:
    """The bounds of a mean step.

    Args:
        sums: the sums of all steps (fields,).
        line: the line rate of one direction, bytes per second.
        computing_ratio: the share of the time in which the GPUs compute, NaN if unknown.
    """
    steps = describe_steps(sums)
    active = np.asarray(1.0 - moments.quotient(steps.gap_seconds, steps.seconds))
    low, high = exposed_bounds(active, np.asarray(computing_ratio))
    length = float(steps.seconds)
    return WireBounds(1.0 - float(active), least_wire_seconds(sums, line), float(low) * length, float(high) * length)
