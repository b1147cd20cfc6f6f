"""Bisection bandwidth, against cables that are counted, and the bounds of a step."""

from __future__ import annotations

import itertools

import pytest

from ibpulse.workbench.models.bisection import all_to_all_seconds, dragonfly, fat_tree, rail_only, torus
from ibpulse.workbench.models.step_time import (
    bubble_share,
    gpt_parameters,
    gpt_step_operations,
    overlap_efficiency,
    step_bounds,
    step_operations,
    training_days,
)

LINK = 50e9


@pytest.mark.parametrize(
    ("found", "terabytes"),
    [
        (fat_tree(16_384, LINK), 409.6),
        (fat_tree(3_072, LINK), 76.8),
        (fat_tree(24_576, LINK, 7), 87.8),
        (torus((16, 16, 16), LINK), 25.6),
        (dragonfly(64, 8, LINK), 6.50),
        (rail_only(2_048, 8, LINK), 409.6),
    ],
)
def test_bisection_of_known_networks(found: object, terabytes: float) -> None:
    assert found.bytes_per_second / 1e12 == pytest.approx(terabytes, rel=1e-3)  # type: ignore[attr-defined]


def test_a_gpu_has_the_share_of_the_oversubscribed_layer() -> None:
    assert fat_tree(24_576, LINK, 7).bytes_per_second / (24_576 / 2) / 1e9 == pytest.approx(7.1, abs=0.05)


@pytest.mark.parametrize("dimensions", [(4,), (4, 4), (2, 2), (6, 4, 2), (2, 8)])
def test_a_torus_has_the_cables_of_its_smallest_plane_cut(dimensions: tuple[int, ...]) -> None:
    nodes = list(itertools.product(*map(range, dimensions)))
    cables = {
        frozenset((node, tuple((place + (axis == at)) % size for axis, (place, size) in enumerate(
            zip(node, dimensions, strict=True)))))
        for node in nodes
        for at in range(len(dimensions))
    }  # fmt: skip
    cuts = [
        sum(len({node[at] < size // 2 for node in cable}) == 2 for cable in cables)
        for at, size in enumerate(dimensions)
    ]
    assert torus(dimensions, 1.0).bytes_per_second == min(cuts)


def test_a_dragonfly_has_the_cables_between_its_halves() -> None:
    # every pair of 4 groups has one cable: 3 ends per group, 2 x 2 pairs across
    assert dragonfly(4, 3, 1.0).bytes_per_second == 4
    assert dragonfly(4, 3, 1.0).warnings == ()


def test_a_dragonfly_without_direct_routes_is_warned_about() -> None:
    (warning,) = dragonfly(64, 8, LINK).warnings
    assert warning.startswith("8 global links per group do not reach the 63 other groups directly")
    assert dragonfly(64, 8, LINK).bytes_per_second / (64 * 64 * LINK / 2) == pytest.approx(0.063, abs=5e-4)


def test_rails_without_a_spine_have_no_path_between_them() -> None:
    assert "no path between rails" in rail_only(8, 8, LINK).warnings[0]


def test_least_time_of_an_all_to_all() -> None:
    cut, link = all_to_all_seconds(4096, 468e6, dragonfly(64, 8, LINK).bytes_per_second, LINK)
    assert (cut * 1e3, link * 1e3) == pytest.approx((73.7, 9.36), rel=2e-3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: fat_tree(1, LINK), "1 hosts have no two halves"),
        (lambda: fat_tree(8, LINK, 0.5), "an oversubscription of 0.5 is below 1"),
        (lambda: torus((), LINK), "a torus has dimensions of 2 or more"),
        (lambda: torus((1, 4), LINK), "a torus has dimensions of 2 or more"),
        (lambda: dragonfly(1, 8, LINK), "1 groups with 8 cables"),
        (lambda: dragonfly(4, 0, LINK), "4 groups with 0 cables"),
        (lambda: rail_only(1, 8, LINK), "1 nodes with 8 rails"),
    ],
)
def test_networks_that_cannot_be_are_refused(call: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()  # type: ignore[operator]


def test_odd_networks_are_warned_about() -> None:
    assert "odd" in torus((3, 2), LINK).warnings[0]
    assert "no two equal halves" in dragonfly(5, 8, LINK).warnings[0]


@pytest.mark.parametrize(
    ("hidden", "layers", "billions"),
    [(25_600, 128, 1008.04), (20_480, 105, 529.60), (16_384, 96, 310.13), (12_288, 80, 145.62)],
)
def test_parameters_of_published_gpts(hidden: int, layers: int, billions: float) -> None:
    assert gpt_parameters(layers, hidden, 51_200, 2048) / 1e9 == pytest.approx(billions, abs=0.006)


def test_time_of_the_published_trillion_parameter_run() -> None:
    operations = gpt_step_operations(128, 25_600, 51_200, 2048, 3072)
    assert operations == pytest.approx(5.139e19, rel=1e-3)
    assert operations / (3072 * 163e12) == pytest.approx(102.6, rel=1e-2)
    assert training_days(1008e9, 450e9, 3072, 163e12) == pytest.approx(84, rel=1e-2)
    assert training_days(175e9, 300e9, 1024, 140e12) == pytest.approx(34, rel=1e-2)


def test_operations_without_attention_are_most_of_the_published_formula() -> None:
    whole = gpt_step_operations(128, 25_600, 51_200, 2048, 3072)
    parameters = gpt_parameters(128, 25_600, 51_200, 2048)
    assert step_operations(parameters, 3072 * 2048, recompute=True) == pytest.approx(whole, rel=0.02)
    assert step_operations(parameters, 1.0, recompute=False) == pytest.approx(6 * parameters)


@pytest.mark.parametrize(
    ("stages", "micro_batches", "chunks", "share"),
    [(8, 32, 1, 0.2188), (64, 512, 1, 0.1230), (64, 512, 2, 0.0615)],
)
def test_bubble_of_a_pipeline(stages: int, micro_batches: int, chunks: int, share: float) -> None:
    assert bubble_share(stages, micro_batches, chunks) == pytest.approx(share, abs=5e-5)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 3), (4, 8), (8, 8)])
def test_bubble_of_a_pipeline_that_is_carried_out(stages: int, micro_batches: int) -> None:
    """All forwards, then all backwards: each takes m + p - 1 slots where m are ideal."""
    ready = [[0] * (micro_batches + 1) for _ in range(stages + 1)]
    for stage in range(1, stages + 1):
        for batch in range(1, micro_batches + 1):
            ready[stage][batch] = max(ready[stage - 1][batch], ready[stage][batch - 1]) + 1
    assert ready[-1][-1] / micro_batches - 1 == pytest.approx(bubble_share(stages, micro_batches))


def test_bounds_of_a_step_and_the_efficiency_between_them() -> None:
    best, worst = step_bounds(3.0, 2.0, 0.5)
    assert (best, worst) == (3.5, 5.5)
    assert overlap_efficiency(3.0, 2.0, best, 0.5) == 1
    assert overlap_efficiency(3.0, 2.0, worst, 0.5) == 0
    assert overlap_efficiency(0.0, 2.0, 3.0) is None
