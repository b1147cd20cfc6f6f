"""Links and nodes that stay near their line rate, told second by second.

Two states that mean different things. *Saturated*: half of the time of a window is spent near the line rate. That is
a fact about the wire. *MoE saturation*: a window resembles the published MoE run, with hardly a pause and with peaks
at the line rate, for some time; that run used 52 % of its line on average, so it is not saturated in the first sense.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ibpulse.analysis.signature import Signature
from ibpulse.arrays import Bools, Floats
from ibpulse.defaults import (
    MOE_SATURATION_DUTY,
    MOE_SATURATION_HOLD_NS,
    MOE_SATURATION_PEAK,
    SATURATION_LEVEL,
    SATURATION_WINDOW_NS,
)
from ibpulse.units import SECOND_NS


@dataclass(frozen=True, slots=True)
class SaturationOptions:
    """Saturated when the median utilisation of the last `window_seconds` is at least `level`.

    At least `least_observed` of the window must have been seen.
    """

    level: float = SATURATION_LEVEL
    window_seconds: int = SATURATION_WINDOW_NS // SECOND_NS
    least_observed: float = 0.5


@dataclass(frozen=True, slots=True)
class SaturationState:
    """The last seconds of every row (a direction of a port or of the node), oldest first, and what follows from them.

    `above` and `observed` are (seconds, rows): time at or above the level, and time seen. `saturated` (rows,) is the
    answer; `saturated_seconds` (rows,) is the time observed in that state since the start.
    """

    above: Floats
    observed: Floats
    saturated: Bools
    saturated_seconds: Floats


def start_saturation(rows: int, options: SaturationOptions) -> SaturationState:
    """The state of `rows` rows of which nothing was seen."""
    nothing = np.zeros((options.window_seconds, rows))
    return SaturationState(nothing, nothing, np.zeros(rows, dtype=np.bool_), np.zeros(rows))


def seconds_above(utilization: Floats, seconds: Floats, level: float) -> Floats:
    """Time of the samples (..., ticks) that are at or above the level; NaN is below it."""
    return np.asarray(np.where(utilization >= level, seconds, 0.0).sum(axis=-1))


def advance_saturation(
    state: SaturationState, above: Floats, observed: Floats, options: SaturationOptions
) -> SaturationState:
    """The state after one more second, of which `above` and `observed` (rows,) seconds were near the line and seen.

    Law: the time-weighted median of a window is at least the level when at least half of its time is; so no sample
    has to be kept.
    """
    aboves = np.concatenate((state.above[1:], above[None]))
    seen = np.concatenate((state.observed[1:], observed[None]))
    total = seen.sum(axis=0)
    # sums of the same ticks in another order differ in the last digits
    half = 0.5 * total * (1 - 1e-9)
    saturated = (total >= options.least_observed * options.window_seconds) & (aboves.sum(axis=0) >= half)
    gained = np.where(saturated, observed, 0.0)
    return SaturationState(aboves, seen, saturated, state.saturated_seconds + gained)


@dataclass(frozen=True, slots=True)
class MoeSaturationOptions:
    """What must hold of a window, for how long until the state begins, and for how long not until it ends."""

    least_confidence: float = 0.3
    least_duty: float = MOE_SATURATION_DUTY
    least_peak_utilization: float = MOE_SATURATION_PEAK
    hold_seconds: float = MOE_SATURATION_HOLD_NS / SECOND_NS
    release_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class MoeSaturationState:
    """How long the conditions have held, and not held since; whether the state is on; time in it since the start."""

    held_seconds: float = 0.0
    released_seconds: float = 0.0
    saturated: bool = False
    saturated_seconds: float = 0.0


def resembles_moe_saturation(
    signature: Signature, duty_cycle: float, peak_utilization: float, options: MoeSaturationOptions
) -> bool:
    """Whether a window is `moe_like` enough, busy enough and peaks high enough; what is not known (NaN) is not met."""
    return (
        signature.label == "moe_like"
        and signature.confidence >= options.least_confidence
        and duty_cycle >= options.least_duty
        and peak_utilization >= options.least_peak_utilization
    )


def advance_moe_saturation(
    state: MoeSaturationState, resembles: bool, options: MoeSaturationOptions, seconds: float = 1.0
) -> MoeSaturationState:
    """The state after `seconds` more in which the conditions held or not.

    Law: it begins after `hold_seconds` in which no pause lasted `release_seconds`, and ends with such a pause.
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
