from __future__ import annotations

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
    SignatureOptions,
    describe_features,
    find_signature,
    resemblance,
)
from ibpulse.workbench.simulate.timeline import LINE_BYTES_PER_SECOND, Schedule, Step, Workload, even_weights
from ibpulse.workbench.simulate.workloads import DENSE, MOE, Constant, ExpertParallel, Fsdp, Idle, Square, Unit
from tests.tables import for_each

NAN = float("nan")
# what a reader may still call a low confidence
LOW = 0.5

unit = st.floats(0, 1.2) | st.just(NAN)
features = st.builds(Features, unit, unit, unit, unit, unit, unit)


def features_of(workload: Workload, seconds: int = 60, seed: int = 0) -> Features:
    """The statistics of a window of the workload by definition, not by the code under test."""
    schedule = Schedule(workload, seed=seed)
    begin, end = 3_000_000_000, (3 + seconds) * 1_000_000_000
    ticks, fifty, hundred = (schedule.truth(begin, end, width * 1_000_000) for width in (10, 50, 100))
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


def test_features_that_are_far_beyond_any_traffic_resemble_nothing() -> None:
    assert resemblance(MOE_RUN._replace(active_utilization=1e300), MOE_RUN, SignatureOptions().tolerance) == 0.0


# from statistics to features


def test_features_are_shares_of_the_line_and_the_variations_by_their_time_scale() -> None:
    variations = {1_000_000_000: 0.7, 50_000_000: 0.5, 10_000_000: 0.1, 100_000_000: 0.6}
    found = describe_features(0.8, 300e9, 600e9, variations, 800e9)
    assert found == Features(0.8, 0.1, 0.5, 0.6, 0.75, 0.375)


def test_a_peak_above_the_line_was_read_late() -> None:
    assert describe_features(1.0, 10e9, 900e9, {}, 800e9).peak_utilization == 1.0


@pytest.mark.parametrize("line", [NAN, 0.0])
def test_without_a_line_there_is_no_utilisation(line: float) -> None:
    found = describe_features(0.5, 10e9, 20e9, {}, line)
    np.testing.assert_array_equal(found, [0.5, NAN, NAN, NAN, NAN, NAN])


def test_a_peak_that_is_not_known_stays_unknown() -> None:
    assert np.isnan(describe_features(NAN, NAN, NAN, {}, 800e9).peak_utilization)
