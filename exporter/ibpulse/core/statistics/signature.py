"""Labels traffic as `idle`, `dense_like`, `moe_like` or `unknown`, and detects saturation.

The label expresses similarity, not proof: it measures how close a few statistics of a window are to those of two
published runs, both fully sharded (FSDP), neither with tokens routed between nodes. `moe_like` therefore means "large
layers are gathered without a pause", not "experts". A dense model with equally large layers at the same speed has the
same statistics, so the confidence of either label is limited to `ceiling`. Only `idle` can be certain.

There are two states of saturation. *Saturated*: utilisation is near line rate for half of a window. *MoE saturation*:
the traffic has resembled the published MoE run for some time, almost continuous and with peaks near the line rate of
the rails that carry it. That run used 52 % of this line rate when active, and is not saturated in the first sense.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.defaults import (
    MOE_SATURATION_DUTY,
    MOE_SATURATION_HOLD_NS,
    MOE_SATURATION_PEAK,
)

Label = Literal["idle", "dense_like", "moe_like", "unknown"]

LABELS: tuple[Label, ...] = ("idle", "dense_like", "moe_like", "unknown")
TIMESCALES_NS = (10 * MILLISECOND_NS, 50 * MILLISECOND_NS, 100 * MILLISECOND_NS)
"""The time scales of the features, measured independently of the settings."""


class Features(NamedTuple):
    """Statistics of a node's bandwidth over a window; NaN if unknown.

    Utilisations are relative to the line rate of the rails that carry traffic, both directions together, so that an
    idle rail changes nothing. `peak_utilization` refers to single samples, `active_utilization` is the mean of the
    active samples.
    """

    duty_cycle: float
    cv_10ms: float
    cv_50ms: float
    cv_100ms: float
    peak_utilization: float
    active_utilization: float


DENSE_RUN = Features(0.747, 0.20, 0.31, 0.385, 0.66, 0.386)
"""Qwen2.5-7B on 2 nodes: the published table; the CVs at 50 and 100 ms, not published, are those of `dense`."""

MOE_RUN = Features(0.916, 0.42, 0.25, 0.197, 0.94, 0.519)
"""Mixtral-8x7B on 2 nodes: the published table; the CVs at 50 and 100 ms, not published, are those of `moe`."""

EXPERT_PARALLEL = Features(1.0, 0.20, 0.04, 0.03, 0.57, 0.39)
"""Tokens routed between nodes, from a published training profile, sampled at 10 ms. Easily mistaken for dense."""

STEADY = Features(1.0, 0.0, 0.0, 0.0, 0.5, 0.5)
"""A copy at a steady rate."""

TOLERANCE = Features(0.06, 0.06, 0.08, 0.08, 0.12, 0.08)


@dataclass(frozen=True, slots=True)
class SignatureOptions:
    """Reference points of the labels and their tolerances.

    `tolerance` is the distance, per feature, at which the resemblance drops to exp(-1/2). A label other than `unknown`
    needs `least_features` known features and a confidence of at least `least_confidence`. `idle_duty` is the maximum
    duty cycle of an `idle` window.
    """

    dense: Features = DENSE_RUN
    moe: Features = MOE_RUN
    others: tuple[Features, ...] = (EXPERT_PARALLEL, STEADY)
    tolerance: Features = TOLERANCE
    ceiling: float = 0.6
    least_confidence: float = 0.3
    least_features: int = 4
    idle_duty: float = 0.02


@dataclass(frozen=True, slots=True)
class Signature:
    """The label and its confidence, 0..1; for `unknown`, the confidence of the best rejected label."""

    label: Label
    confidence: float


def describe_features(
    duty_cycle: float, active_mean: float, peak: float, variations: Mapping[int, float], line: float
) -> Features:
    """The features of the node's bandwidth, from statistics in bytes per second; NaN if unknown.

    `peak` is the usual peak; `variations` maps time scales in nanoseconds to coefficients of variation; `line` is the
    line rate of the rails that carry traffic.
    """
    rated = line > 0
    cv_10ms, cv_50ms, cv_100ms = (variations.get(timescale_ns, math.nan) for timescale_ns in TIMESCALES_NS)
    # a value above line rate comes from a sample that was read late
    peak_utilization = float(np.minimum(peak / line, 1.0)) if rated else math.nan
    active_utilization = active_mean / line if rated else math.nan
    return Features(duty_cycle, cv_10ms, cv_50ms, cv_100ms, peak_utilization, active_utilization)


def find_signature(features: Features, options: SignatureOptions | None = None) -> Signature:
    """The label that the features resemble most, `unknown` if none is close enough.

    The confidence of `dense_like` and `moe_like` is `ceiling` x resemblance x (1 - resemblance of the nearest other
    reference point) x fraction of known features. The confidence of `idle` falls from 1 without active samples to 0 at
    `idle_duty`.

    Law: the result depends only on the features, so workloads with the same features get the same label.
    """
    chosen = options or SignatureOptions()
    if features.duty_cycle < chosen.idle_duty:
        sure = 1.0 - features.duty_cycle / chosen.idle_duty
        return Signature("idle" if sure >= chosen.least_confidence else "unknown", sure)
    known = sum(not math.isnan(value) for value in features)
    if math.isnan(features.duty_cycle) or known < chosen.least_features:
        return Signature("unknown", 0.0)
    points: dict[Label, Features] = {"dense_like": chosen.dense, "moe_like": chosen.moe}
    alike = {label: resemblance(features, point, chosen.tolerance) for label, point in points.items()}
    label = max(alike, key=lambda one: alike[one])
    rivals = [height for one, height in alike.items() if one != label]
    rivals += [resemblance(features, point, chosen.tolerance) for point in chosen.others]
    whole = known / len(features)
    confidence = chosen.ceiling * alike[label] * (1.0 - max(rivals)) * whole
    return Signature(label if confidence >= chosen.least_confidence else "unknown", confidence)


def resemblance(features: Features, point: Features, tolerance: Features) -> float:
    """exp(-d²/2), where d is the distance in tolerances over the known features: 1 at the point itself."""
    distances = ((one - other) / width for one, other, width in zip(features, point, tolerance, strict=True))
    # the product of a huge number is infinite, its power an error
    return math.exp(-sum(distance * distance for distance in distances if not math.isnan(distance)) / 2)


@dataclass(frozen=True, slots=True)
class SaturationOptions:
    """Saturated if the median utilisation of the last `window_seconds` is at least `level`.

    At least the fraction `least_observed` of the window must have been observed.
    """

    level: float = 0.85
    window_seconds: int = 30
    least_observed: float = 0.5


def seconds_above(utilization: Floats, seconds: Floats, level: float) -> Floats:
    """Time at or above the level, from utilisations and seconds (..., samples); NaN counts as below."""
    return np.asarray(np.where(utilization >= level, seconds, 0.0).sum(axis=-1))


class Saturation:
    """The saturated state of rows (directions of ports, or the node), second by second.

    `saturated` (rows,) is the state; `saturated_seconds` (rows,) is the time observed in it since the start.

    Law: the time-weighted median of a window is at least the level if at least half of its time is. Therefore no
    samples need to be kept.
    """

    def __init__(self, options: SaturationOptions) -> None:
        self.options = options
        # time above the level, and observed time, of the last seconds, oldest first
        self._times = np.zeros((options.window_seconds, 2, 0))
        self.saturated: Bools = np.zeros(0, dtype=np.bool_)
        self.saturated_seconds: Floats = np.zeros(0)

    def fit_rows(self, rows: int, fresh: Sequence[int] = ()) -> None:
        """Make room for this number of rows; the `fresh` ones are reset."""
        if more := rows - len(self.saturated):
            self._times = np.pad(self._times, ((0, 0), (0, 0), (0, more)))
            self.saturated = np.pad(self.saturated, (0, more))
            self.saturated_seconds = np.pad(self.saturated_seconds, (0, more))
        if fresh:
            for array in (self._times, self.saturated, self.saturated_seconds):
                array[..., list(fresh)] = 0

    def advance(self, above: Floats, observed: Floats, counting: bool = True) -> None:
        """Add a second, of which `above` and `observed` (rows,) are the times above the level and in all."""
        self._times = np.concatenate((self._times[1:], np.stack((above, observed))[None]))
        above_level, total = self._times.sum(axis=0)
        # tolerance, because sums of the same samples in a different order differ in the last digits
        half = 0.5 * total * (1 - 1e-9)
        self.saturated = (total >= self.options.least_observed * self.options.window_seconds) & (above_level >= half)
        if counting:
            self.saturated_seconds = self.saturated_seconds + np.where(self.saturated, observed, 0.0)


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
