from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.statistics.signature import (
    DENSE_RUN,
    LABELS,
    MOE_RUN,
    Features,
    MoeSaturationOptions,
    MoeSaturationState,
    Saturation,
    SaturationOptions,
    Signature,
    SignatureOptions,
    advance_moe_saturation,
    describe_features,
    find_signature,
    resemblance,
    resembles_moe_saturation,
    seconds_above,
)
from ibpulse.workbench.simulate.timeline import LINE_BYTES_PER_SECOND, Schedule, Step, Workload, even_weights
from ibpulse.workbench.simulate.workloads import DENSE, MOE, Constant, ExpertParallel, Fsdp, Idle, Square, Unit
from tests.tables import for_each
from tests.truth import truth_of

NAN = float("nan")
# what a reader may still call a low confidence
LOW = 0.5

unit = st.floats(0, 1.2) | st.just(NAN)
features = st.builds(Features, unit, unit, unit, unit, unit, unit)


def features_of(workload: Workload, seconds: int = 60, seed: int = 0) -> Features:
    """The statistics of a window of the workload by definition, not by the code under test."""
    schedule = Schedule(workload, seed=seed)
    begin, end = 3_000_000_000, (3 + seconds) * 1_000_000_000
    ticks, fifty, hundred = (truth_of(schedule, begin, end, width * 1_000_000) for width in (10, 50, 100))
    line = float(np.count_nonzero(schedule.weights)) * LINE_BYTES_PER_SECOND
    return Features(ticks.duty, ticks.cv, fifty.cv, hundred.cv, ticks.peak / line, ticks.active_mean / line)


class Storage:
    """Checkpoints: seconds of copying at nearly the line rate, then a long pause."""

    name = "storage"

    def __init__(self, copying: float, pause: float, level: float) -> None:
        self.copying, self.pause, self.level = copying, pause, level

    def step(self, rng: np.random.Generator) -> Step:
        busy = np.full(20, round(self.copying * 1e9 / 20))
        rates = self.level * LINE_BYTES_PER_SECOND * rng.uniform(0.8, 1.0, 20)
        return Step(np.append(busy, round(self.pause * 1e9)), np.append(rates, 0.0))

    def weights(self, rails: int) -> np.ndarray:
        return even_weights(rails)


def with_layers(model: Fsdp, parameters: float, **changes: float) -> Fsdp:
    """The same job with layers of another size."""
    layer = max(set(model.units), key=model.units.count)
    units = tuple(Unit(parameters, layer.active) if one == layer else one for one in model.units)
    return replace(model, units=units, **changes)  # every change is a number


LOOK_ALIKES = {
    f"{layer / 1e9} billion per layer, {forward} s forward, {speed / 1e9} GB/s": with_layers(
        MOE, layer, forward_seconds=forward, collective_bytes_per_second=speed
    )
    for layer in (0.6e9, 0.86e9, 1.1e9, 1.8e9, 3.2e9)
    for forward in (0.2, 0.35, 0.6)
    for speed in (232e9, 332e9)
}
OTHERS: dict[str, Workload] = {
    "expert parallel": ExpertParallel(),
    "expert parallel, sparser": ExpertParallel(pauses_seconds=(0.006, 0.009)),
    "constant": Constant(),
    "constant, low": Constant(5e9),
    "storage": Storage(2.0, 1.0, 0.9),
    "storage, dense duty": Storage(3.0, 1.0, 0.6),
    "storage, moe duty": Storage(11.0, 1.0, 0.6),
    **{
        f"square {period} ms, {duty}, {level}, {jitter}": Square(
            period * 1_000_000, duty, level * LINE_BYTES_PER_SECOND, jitter
        )
        for period in (20, 30, 100, 315, 1444)
        for duty in (0.5, 0.75, 0.92)
        for level in (0.4, 0.5, 0.94)
        for jitter in (0.0, 0.2)
    },
}


@pytest.mark.parametrize("seconds", [10, 60])
@pytest.mark.parametrize(("model", "label"), [(DENSE, "dense_like"), (MOE, "moe_like")], ids=["dense", "moe"])
def test_the_models_of_the_two_published_runs_get_their_labels(model: Fsdp, label: str, seconds: int) -> None:
    for seed in range(3):
        found = find_signature(features_of(model, seconds, seed))
        assert found.label == label
        assert found.confidence > 0.45


@pytest.mark.parametrize(("table", "label"), [(DENSE_RUN, "dense_like"), (MOE_RUN, "moe_like")], ids=["dense", "moe"])
def test_the_published_table_on_its_own_gets_its_label_with_less_confidence(table: Features, label: str) -> None:
    found = find_signature(table._replace(cv_50ms=NAN, cv_100ms=NAN))
    assert found.label == label
    assert 0.3 < found.confidence < LOW


@for_each(OTHERS)
def test_other_traffic_is_unknown(workload: Workload) -> None:
    assert find_signature(features_of(workload, 20)).label == "unknown"


@for_each(LOOK_ALIKES)
def test_a_sharded_run_with_other_layers_is_unknown_or_of_low_confidence(workload: Workload) -> None:
    assert find_signature(features_of(workload, 20)).confidence < LOW


def test_a_dense_model_with_equally_large_layers_gets_the_same_label() -> None:
    # every parameter computes for every token, on GPUs that are as much faster
    units = tuple(Unit(unit.parameters, unit.parameters) for unit in MOE.units[:-1])
    forward = MOE.forward_seconds * (1 - MOE.units[-1].active / sum(unit.active for unit in MOE.units))
    twin = replace(MOE, units=(Unit(MOE.units[0].parameters, 0, kept=True), *units[1:]), forward_seconds=forward)
    real, other = find_signature(features_of(MOE)), find_signature(features_of(twin))
    assert other.label == real.label == "moe_like"
    assert other.confidence == pytest.approx(real.confidence, abs=0.1)
    assert max(real.confidence, other.confidence) <= SignatureOptions().ceiling


@given(features=features)
def test_no_features_make_more_than_the_ceiling_of_anything_but_idle(features: Features) -> None:
    found = find_signature(features)
    assert found.label in LABELS
    assert 0 <= found.confidence <= 1
    if found.label != "idle" and not features.duty_cycle < SignatureOptions().idle_duty:
        assert found.confidence <= SignatureOptions().ceiling


@given(features=features)
def test_a_label_is_given_only_near_its_own_run(features: Features) -> None:
    label = find_signature(features).label
    own = {"dense_like": DENSE_RUN, "moe_like": MOE_RUN}
    if label in own:
        options = SignatureOptions()
        assert resemblance(features, own[label], options.tolerance) >= options.least_confidence / options.ceiling


def test_a_silent_window_is_idle_for_certain() -> None:
    found = find_signature(features_of(Idle(), 10))
    assert (found.label, found.confidence) == ("idle", 1.0)


@pytest.mark.parametrize(
    ("duty", "label", "confidence"), [(0.01, "idle", 0.5), (0.016, "unknown", 0.2), (0.02, "unknown", 0.0)]
)
def test_a_window_with_a_little_traffic_is_less_surely_idle(duty: float, label: str, confidence: float) -> None:
    found = find_signature(Features(duty, NAN, NAN, NAN, NAN, NAN))
    assert found.label == label
    assert found.confidence == pytest.approx(confidence)


def test_without_a_duty_cycle_or_with_too_few_features_nothing_is_known() -> None:
    assert find_signature(MOE_RUN._replace(duty_cycle=NAN)) == find_signature(Features(*[NAN] * 6))
    few = find_signature(Features(0.916, 0.42, NAN, NAN, 0.94, NAN))
    assert (few.label, few.confidence) == ("unknown", 0.0)


def test_a_counterexample_at_the_very_place_of_a_run_takes_its_confidence() -> None:
    options = SignatureOptions(others=(MOE_RUN,))
    found = find_signature(MOE_RUN, options)
    assert (found.label, found.confidence) == ("unknown", 0.0)


def test_the_resemblance_at_one_tolerance_is_the_root_of_one_over_e() -> None:
    tolerance = SignatureOptions().tolerance
    moved = MOE_RUN._replace(peak_utilization=MOE_RUN.peak_utilization + tolerance.peak_utilization)
    assert resemblance(moved, MOE_RUN, tolerance) == pytest.approx(np.exp(-0.5))
    assert resemblance(MOE_RUN, MOE_RUN, tolerance) == 1.0


# from statistics to features


VARIATIONS = {1_000_000_000: 0.7, 50_000_000: 0.5, 10_000_000: 0.1, 100_000_000: 0.6}


# duty cycle, mean of the active samples, peak, variations, line
@for_each(
    {
        "shares of the line, and variations by time scale": (
            (0.8, 300e9, 600e9, VARIATIONS, 800e9),
            (0.8, 0.1, 0.5, 0.6, 0.75, 0.375),
        ),
        "a peak above the line was read late": (
            (1.0, 10e9, 900e9, {}, 800e9),
            (1.0, NAN, NAN, NAN, 1.0, 0.0125),
        ),
        "no known line": ((0.5, 10e9, 20e9, {}, NAN), (0.5, NAN, NAN, NAN, NAN, NAN)),
        "no line": ((0.5, 10e9, 20e9, {}, 0.0), (0.5, NAN, NAN, NAN, NAN, NAN)),
        "unknown": ((NAN, NAN, NAN, {}, 800e9), (NAN,) * 6),
    }
)
def test_features(statistics: tuple[float, float, float, dict[int, float], float], expected: tuple[float, ...]) -> None:
    np.testing.assert_array_equal(describe_features(*statistics), expected)


OPTIONS = SaturationOptions(window_seconds=5)
SUSTAINED = MoeSaturationOptions(hold_seconds=10, release_seconds=3)


def run(per_second: np.ndarray) -> list[tuple[bool, float]]:
    """State and seconds after each second of utilisation (seconds, ticks) of one row, NaN where data is missing."""
    tick, found, states = 1 / per_second.shape[1], Saturation(OPTIONS), []
    found.fit_rows(1)
    for utilization in per_second:
        measured = np.where(np.isnan(utilization), 0.0, tick)
        above = seconds_above(utilization, measured, OPTIONS.level)
        found.advance(np.array([above]), np.array([measured.sum()]))
        states.append((bool(found.saturated[0]), float(found.saturated_seconds[0])))
    return states


@given(
    levels=st.lists(st.lists(st.sampled_from([0.1, 0.84, 0.85, 0.99]), min_size=4, max_size=4), min_size=5, max_size=9)
)
def test_saturated_is_where_the_upper_median_of_the_window_reaches_the_level(levels: list[list[float]]) -> None:
    samples = np.array(levels)
    last = np.sort(samples[-5:].ravel())
    # of an even number of samples half are at or above the upper median
    assert run(samples)[-1][0] == (last[len(last) // 2] >= OPTIONS.level)


def test_a_busy_link_is_saturated_once_half_a_window_was_seen() -> None:
    states = run(np.full((8, 10), 0.95))
    assert [saturated for saturated, _ in states] == [False, False, True, True, True, True, True, True]
    assert states[-1][1] == pytest.approx(6.0)


def test_the_state_ends_when_the_window_has_moved_on() -> None:
    states = run(np.concatenate((np.full((5, 10), 0.95), np.zeros((5, 10)))))
    assert [saturated for saturated, _ in states[5:]] == [True, True, False, False, False]


def test_missing_data_is_not_observed_and_too_much_of_it_gives_no_answer() -> None:
    samples = np.full((5, 10), 0.95)
    samples[:, :4] = np.nan
    saturated, seconds = run(samples)[-1]
    # half of the window was observed after the fifth second
    assert (saturated, seconds) == (True, pytest.approx(0.6))
    samples[:, :6] = np.nan
    assert not run(samples)[-1][0]


def test_rows_are_independent_and_new_ones_begin_at_zero() -> None:
    found = Saturation(OPTIONS)
    found.fit_rows(2)
    for _ in range(5):
        found.advance(np.array([0.9, 0.1]), np.ones(2))
    assert found.saturated.tolist() == [True, False]
    found.fit_rows(3, [0])
    assert (found.saturated.tolist(), found.saturated_seconds.tolist()) == ([False] * 3, [0.0] * 3)
    found.advance(np.ones(3), np.ones(3))
    assert not found.saturated.any()


def test_without_counting_only_the_state_advances() -> None:
    found = Saturation(OPTIONS)
    found.fit_rows(1)
    for _ in range(5):
        found.advance(np.ones(1), np.ones(1), counting=False)
    assert (found.saturated.tolist(), found.saturated_seconds.tolist()) == ([True], [0.0])


def test_time_above_the_level_includes_the_level_and_excludes_missing_data() -> None:
    utilization = np.array([[0.85, 0.2, np.nan, 0.9], [0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(seconds_above(utilization, np.full((2, 4), 0.25), 0.85), [0.5, 0.0])


GOOD = Signature("moe_like", 0.5)


@pytest.mark.parametrize(
    ("signature", "duty", "peak", "expected"),
    [
        (GOOD, 0.92, 0.94, True),
        (replace(GOOD, confidence=0.29), 0.92, 0.94, False),
        (Signature("unknown", 0.5), 0.92, 0.94, False),
        (Signature("dense_like", 0.5), 0.92, 0.94, False),
        (GOOD, 0.84, 0.94, False),
        (GOOD, 0.92, 0.84, False),
        (GOOD, float("nan"), 0.94, False),
        (GOOD, 0.92, float("nan"), False),
    ],
)
def test_all_conditions_of_moe_saturation_must_hold(
    signature: Signature, duty: float, peak: float, expected: bool
) -> None:
    assert resembles_moe_saturation(signature, duty, peak, SUSTAINED) is expected


def advance(states: str, options: MoeSaturationOptions = SUSTAINED) -> list[MoeSaturationState]:
    found = []
    state = MoeSaturationState()
    for mark in states:
        state = advance_moe_saturation(state, mark == "+", options)
        found.append(state)
    return found


@given(marks=st.text("++++++-", max_size=80))
def test_it_is_on_once_the_conditions_held_long_enough_since_the_last_long_pause(marks: str) -> None:
    on = [re.split("-{3,}", marks[: place + 1])[-1].count("+") >= SUSTAINED.hold_seconds for place in range(len(marks))]
    found = advance(marks)
    assert [state.saturated for state in found] == on
    assert [state.saturated_seconds for state in found] == pytest.approx(np.cumsum(on))
