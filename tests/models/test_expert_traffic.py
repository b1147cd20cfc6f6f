"""Tokens on their way to experts, against routing that is drawn at random and against published figures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.workbench.models.expert_load import (
    chance_cv,
    jain_index,
    largest_of,
    measured_penalty,
    penalty,
    rank_loads,
)
from ibpulse.workbench.models.expert_traffic import (
    DEDUPLICATED,
    PLAIN,
    distinct_nodes,
    exchange_seconds,
    reached_share,
    remote_copies,
    wire_share,
)


@pytest.mark.parametrize(("nodes", "expected"), [(2, 1.993), (4, 3.614), (8, 5.295)])
def test_distinct_nodes_of_a_token(nodes: int, expected: float) -> None:
    assert distinct_nodes(nodes, 256, 8) == pytest.approx(expected, abs=1e-3)


def test_distinct_nodes_under_node_limited_routing() -> None:
    assert distinct_nodes(8, 256, 8, most_nodes=4) == pytest.approx(3.629, abs=1e-3)
    assert remote_copies(DEDUPLICATED, 8, 256, 8, most_nodes=4) == pytest.approx(3.175, abs=1e-3)


@pytest.mark.parametrize(("nodes", "experts", "chosen"), [(2, 16, 2), (4, 16, 4), (8, 16, 6)])
def test_distinct_nodes_and_remote_copies_over_all_choices(nodes: int, experts: int, chosen: int) -> None:
    held = experts // nodes
    routes = [[expert // held for expert in route] for route in itertools.combinations(range(experts), chosen)]
    assert distinct_nodes(nodes, experts, chosen) == pytest.approx(np.mean([len(set(route)) for route in routes]))
    remote = np.mean([len(set(route) - {0}) for route in routes])
    assert remote_copies(DEDUPLICATED, nodes, experts, chosen) == pytest.approx(remote)
    copies = np.mean([np.count_nonzero(route) for route in routes])
    assert remote_copies(PLAIN, nodes, experts, chosen) == pytest.approx(copies)


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_deduplicated_is_at_most_plain(nodes: int, held: int, data: st.DataObject) -> None:
    chosen = data.draw(st.integers(1, nodes * held))
    plain = remote_copies(PLAIN, nodes, nodes * held, chosen)
    assert remote_copies(DEDUPLICATED, nodes, nodes * held, chosen) <= plain + 1e-9
    if chosen == 1:
        assert remote_copies(DEDUPLICATED, nodes, nodes * held, 1) == pytest.approx(plain)


def test_routing_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="10 experts do not divide by 4 nodes"):
        distinct_nodes(4, 10, 2)
    with pytest.raises(ValueError, match="9 experts per token are more than the 8"):
        distinct_nodes(4, 8, 9)


@pytest.mark.parametrize(
    ("logical", "nodes", "expected"),
    [
        (90, 2, 45.0),
        (81, 2, 40.5),
        (50, 8, 43.75),
        (61, 4, 45.75),
        (91, 2, 45.5),
        (43, 2, 21.5),
        (58, 4, 43.5),
        (57, 4, 42.75),
        (51, 8, 44.625),
    ],
)
def test_bandwidth_of_deepep_on_the_wire(logical: float, nodes: int, expected: float) -> None:
    """Figures of DeepEP's README and docs/legacy.md, whose bandwidth counts local tokens too."""
    assert wire_share(logical, nodes) == pytest.approx(expected)


def test_published_bandwidth_of_deepep_is_81_to_92_percent_of_a_nic() -> None:
    """All figures but that of 16 GPUs before version 2."""
    figures = [(90, 2), (81, 2), (61, 4), (90, 2), (91, 2), (58, 4), (57, 4), (51, 8), (50, 8)]
    assert all(40 <= wire_share(logical, nodes) <= 46 for logical, nodes in figures)


@pytest.mark.parametrize(("nodes", "independent"), [(2, 1.992), (4, 3.600), (8, 5.251)])
def test_experts_are_drawn_without_replacement(nodes: int, independent: float) -> None:
    """Independent draws, N (1 - (1 - 1/N)^k), would reach fewer nodes."""
    assert nodes * (1 - (1 - 1 / nodes) ** 8) == pytest.approx(independent, abs=5e-4)
    assert independent < distinct_nodes(nodes, 256, 8) < 1.01 * independent


@pytest.mark.parametrize(("rate", "microseconds"), [(50e9, 120.96), (900e9, 6.72)])
def test_bound_of_inference(rate: float, microseconds: float) -> None:
    """32 tokens to 9 experts, hidden 7000, FP8 there and BF16 back (arXiv 2505.09343)."""
    assert exchange_seconds(32, 9, 7000, 1 + 2, rate) * 1e6 == pytest.approx(microseconds)


@pytest.mark.parametrize(("chosen", "share"), [(1, 0.635), (2, 0.869)])
def test_share_of_gpus_that_64_tokens_reach(chosen: int, share: float) -> None:
    assert reached_share(64, 64, chosen) == pytest.approx(share, abs=5e-4)
    random = np.random.default_rng(1)
    drawn = [
        len({gpu for _ in range(64) for gpu in random.choice(64, chosen, replace=False).tolist()}) for _ in range(400)
    ]
    assert reached_share(64, 64, chosen) == pytest.approx(np.mean(drawn) / 64, abs=0.01)


BLOM = {2: 0.589, 4: 1.049, 8: 1.434, 16: 1.769, 32: 2.067, 64: 2.337, 128: 2.585, 256: 2.815, 512: 3.031, 1024: 3.234}


@pytest.mark.parametrize(("count", "expected"), BLOM.items())
def test_expected_maximum(count: int, expected: float) -> None:
    assert largest_of(count) == pytest.approx(expected, abs=1e-3)
    drawn = np.random.default_rng(count).standard_normal((20_000, count)).max(axis=1).mean()
    assert largest_of(count) == pytest.approx(float(drawn), abs=0.03)


@pytest.mark.parametrize(
    ("ranks", "copies", "formula", "simulated"),
    [(64, 4096, 1.290, 1.304), (64, 8192, 1.205, 1.214), (128, 131_072, 1.081, 1.082), (64, 2_097_152, 1.013, 1.013)],
)
def test_penalty_of_chance(ranks: int, copies: int, formula: float, simulated: float) -> None:
    found = penalty(ranks, chance_cv(ranks, copies))
    assert found == pytest.approx(formula, abs=1e-3)
    assert found == pytest.approx(simulated, rel=0.03)
    draws = np.random.default_rng(3).multinomial(copies, [1 / ranks] * ranks, size=2000)
    assert found == pytest.approx(float((draws.max(axis=1) / draws.mean(axis=1)).mean()), rel=0.03)


@pytest.mark.parametrize(("held", "normal"), [(1, 3.34), (2, 2.65), (4, 2.17)])
def test_penalty_of_popular_experts_in_the_normal_form(held: int, normal: float) -> None:
    assert penalty(64, 1 / held**0.5) == pytest.approx(normal, abs=0.005)


@pytest.mark.parametrize(("held", "simulated"), [(1, 5.27), (2, 3.83), (4, 2.82)])
def test_penalty_of_measured_loads_is_that_of_the_loads(held: int, simulated: float) -> None:
    """Lognormal popularity with a CV of 1: the normal form is far too small, measured loads are not."""
    random = np.random.default_rng(5)
    draws = random.lognormal(0, np.log(2) ** 0.5, size=(3000, 64 * held))
    found = np.mean([measured_penalty(rank_loads(draw.tolist(), 64)) for draw in draws])
    assert found == pytest.approx(simulated, rel=0.03)


@pytest.mark.parametrize(("held", "normal", "simulated"), [(1, 1.70, 1.92), (4, 1.35, 1.41)])
def test_mild_popularity_is_skewed_too(held: int, normal: float, simulated: float) -> None:
    """A lognormal popularity with a CV of 0.3."""
    assert penalty(64, 0.3 / held**0.5) == pytest.approx(normal, abs=0.005)
    random = np.random.default_rng(6)
    draws = random.lognormal(0, np.log(1.09) ** 0.5, size=(1000, 64 * held))
    found = np.mean([measured_penalty(rank_loads(draw.tolist(), 64)) for draw in draws])
    assert found == pytest.approx(simulated, rel=0.03)


@pytest.mark.parametrize("count", [32, 64, 256, 1024])
def test_expected_maximum_of_many_is_the_extreme_value_form(count: int) -> None:
    """And not sqrt(2 ln n), which is 23 % too high for 64."""
    root = (2 * np.log(count)) ** 0.5
    gumbel = root - (np.log(np.log(count)) + np.log(4 * np.pi)) / (2 * root) + 0.5772 / root
    assert largest_of(count) == pytest.approx(gumbel, abs=0.07)
    assert root > 1.15 * largest_of(count)


def test_equal_loads_have_no_penalty() -> None:
    assert measured_penalty(rank_loads([2.0] * 12, 4)) == 1.0


@pytest.mark.parametrize("loads", [[], [0.0, 0.0], [-1.0, 2.0], [float("nan")], [float("inf"), 1.0]])
def test_loads_that_are_none_are_refused(loads: list[float]) -> None:
    with pytest.raises(ValueError, match="loads are numbers of 0 or more"):
        measured_penalty(loads)


def test_loads_that_do_not_divide_by_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="10 loads do not divide by 4 ranks"):
        rank_loads([1.0] * 10, 4)
    with pytest.raises(ValueError, match="1 loads have no expected maximum"):
        largest_of(1)


def test_fairness_of_loads_with_a_cv() -> None:
    assert jain_index(0.1) == pytest.approx(0.9901, abs=5e-5)
    shares = np.array([1.0] * 7 + [0.0])
    assert jain_index(float(shares.std() / shares.mean())) == pytest.approx(0.875)
