"""Detects links and nodes that stay near their line rate, second by second.

There are two different states. *Saturated*: utilisation is near line rate for half of a window. *MoE saturation*: the
traffic has resembled the published MoE run for some time, almost continuous and with peaks near the line rate of the
rails that carry it. That run used 52 % of this line rate when active, and is not saturated in the first sense.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.defaults import (
    MOE_SATURATION_DUTY,
    MOE_SATURATION_HOLD_NS,
    MOE_SATURATION_PEAK,
)
from ibpulse.core.statistics.signature import Signature


@dataclass(frozen=True, slots=True)
class SaturationOptions:
    """Saturated if the median utilisation of the last `window_seconds` is at least `level`.

    At least the fraction `least_observed` of the window must have been observed.
    """

    level: float = 0.85
    window_seconds: int = 30
    least_observed: float = 0.5


@dataclass(frozen=True, slots=True)
class SaturationState:
    """The last seconds of every row (a direction of a port, or the node), oldest first, and the resulting state.

    `above` and `observed` are (seconds, rows): time at or above the level, and observed time. `saturated` (rows,) is
    the state; `saturated_seconds` (rows,) is the time observed in it since the start.
    """

    above: Floats
    observed: Floats
    saturated: Bools
    saturated_seconds: Floats


def start_saturation(rows: int, options: SaturationOptions) -> SaturationState:
    """The initial state of `rows` rows."""
    nothing = np.zeros((options.window_seconds, rows))
    return SaturationState(nothing, nothing, np.zeros(rows, dtype=np.bool_), np.zeros(rows))


def seconds_above(utilization: Floats, seconds: Floats, level: float) -> Floats:
    """Time at or above the level, from utilisations and seconds (..., samples); NaN counts as below."""
    return np.asarray(np.where(utilization >= level, seconds, 0.0).sum(axis=-1))


def advance_saturation(
    state: SaturationState, above: Floats, observed: Floats, options: SaturationOptions
) -> SaturationState:
    """The state after one more second; `above` and `observed` (rows,) are its times above the level and in all.

    Law: the time-weighted median of a window is at least the level if at least half of its time is. Therefore no
    samples need to be kept.
    """
    aboves = np.concatenate((state.above[1:], above[None]))
    seen = np.concatenate((state.observed[1:], observed[None]))
    total = seen.sum(axis=0)
    # tolerance, because sums of the same samples in a different order differ in the last digits
    half = 0.5 * total * (1 - 1e-9)
    saturated = (total >= options.least_observed * options.window_seconds) & (aboves.sum(axis=0) >= half)
    gained = np.where(saturated, observed, 0.0)
    return SaturationState(aboves, seen, saturated, state.saturated_seconds + gained)


@dataclass(frozen=True, slots=True)
class MoeSaturationOptions:
    """Conditions on a window, and the time they must hold to enter the state or fail to leave it."""

    least_confidence: float = 0.3
    least_duty: float = MOE_SATURATION_DUTY
    least_peak_utilization: float = MOE_SATURATION_PEAK
    hold_seconds: float = MOE_SATURATION_HOLD_NS / SECOND_NS
    release_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class MoeSaturationState:
    """Time the conditions have held, time they have failed since; the state, and the time in it since the start."""

    held_seconds: float = 0.0
    released_seconds: float = 0.0
    saturated: bool = False
    saturated_seconds: float = 0.0


def resembles_moe_saturation(
    signature: Signature, duty_cycle: float, peak_utilization: float, options: MoeSaturationOptions
) -> bool:
    """Whether a window meets all conditions: confidence of `moe_like`, duty cycle and peak. NaN never meets one."""
    return (
        signature.label == "moe_like"
        and signature.confidence >= options.least_confidence
        and duty_cycle >= options.least_duty
        and peak_utilization >= options.least_peak_utilization
    )


def advance_moe_saturation(
    state: MoeSaturationState, resembles: bool, options: MoeSaturationOptions, seconds: float = 1.0
) -> MoeSaturationState:
    """The state after `seconds` more, during which the conditions held (`resembles`) or not.

    Law: it begins after `hold_seconds` without a pause of `release_seconds`, and ends with such a pause.
    """
    if resembles:
        state = replace(state, held_seconds=state.held_seconds + seconds, released_seconds=0.0)
    else:
        state = replace(state, released_seconds=state.released_seconds + seconds)
    if state.released_seconds >= options.release_seconds:
        state = replace(state, held_seconds=0.0, saturated=False)
    elif state.held_seconds >= options.hold_seconds:
        state = replace(state, saturated=True)
    return replace(state, saturated_seconds=state.saturated_seconds + (seconds if state.saturated else 0.0))
