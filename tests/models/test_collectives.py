"""Groups of ranks, bytes and times of collectives, and bisections, against simulated algorithms and counted cables."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.workbench.models import collectives
from ibpulse.workbench.models.job import collective_flow
from ibpulse.workbench.models.prediction import flow_seconds
from tests.tables import for_each

GROUPS = st.builds(
    lambda size, stride, gpus: collectives.RankGroup("dp", 2**size, 2**stride, gpus),
    st.integers(0, 7),
    st.integers(0, 5),
    st.sampled_from((4, 8)),
)


def ring_all_gather(ranks: int, node_gpus: int) -> Counter[tuple[int, int]]:
    """Chunks by the nodes of sender and receiver, as every rank passes on what it got last to the next rank."""
    sent: Counter[tuple[int, int]] = Counter()
    held = [{rank} for rank in range(ranks)]
    last = list(range(ranks))
    for _ in range(ranks - 1):
        passed = [(rank, (rank + 1) % ranks, last[rank]) for rank in range(ranks)]
        for source, target, chunk in passed:
            held[target].add(chunk)
            last[target] = chunk
            sent[source // node_gpus, target // node_gpus] += 1
    assert all(len(chunks) == ranks for chunks in held)
    return sent


@pytest.mark.parametrize(("ranks", "node_gpus"), [(16, 8), (64, 8), (8, 4), (4, 1), (8, 8)])
def test_ring_bytes_match_a_simulated_ring(ranks: int, node_gpus: int) -> None:
    group = collectives.RankGroup("dp", ranks, 1, node_gpus)
    sent = ring_all_gather(ranks, node_gpus)
    for node in range(ranks // node_gpus):
        wire = sum(count for (source, target), count in sent.items() if source == node != target)
        assert wire / ranks == pytest.approx(collectives.node_wire_bytes("all-gather", collectives.RING, 1.0, group))
        inside = sent[node, node] / ranks / node_gpus
        assert inside == pytest.approx(collectives.nvlink_bytes("all-gather", collectives.RING, 1.0, group))


@pytest.mark.parametrize(("nodes", "node_gpus"), [(2, 8), (4, 4), (8, 1)])
def test_all_to_all_bytes_match_counted_pairs(nodes: int, node_gpus: int) -> None:
    ranks = nodes * node_gpus
    pairs = sum(a // node_gpus == 0 and b // node_gpus != 0 for a in range(ranks) for b in range(ranks))
    group = collectives.RankGroup("ep", ranks, 1, node_gpus)
    assert collectives.node_wire_bytes("all-to-all", collectives.RING, 1.0, group) == pytest.approx(pairs / ranks)
    # the receiver's rail begins at the GPU with its index
    hops = sum(other % node_gpus != 0 for other in range(ranks))
    assert collectives.nvlink_bytes("all-to-all", collectives.RING, 1.0, group) == pytest.approx(hops / ranks)


@given(GROUPS, st.sampled_from(sorted(collectives.RULES)), st.floats(1, 1e12))
def test_bytes_scale_and_vanish_within_a_node(group: collectives.RankGroup, operation: str, size: float) -> None:
    for algorithm in (collectives.RING, collectives.HIERARCHICAL):
        once = collectives.node_wire_bytes(operation, algorithm, size, group)
        assert collectives.node_wire_bytes(operation, algorithm, 3 * size, group) == pytest.approx(3 * once)
        assert (once > 0) == group.crosses_wire
        assert (collectives.nvlink_bytes(operation, algorithm, size, group) > 0) == (group.members > 1)


@given(GROUPS)
def test_all_reduce_is_reduce_scatter_plus_all_gather(group: collectives.RankGroup) -> None:
    for algorithm in (collectives.RING, collectives.HIERARCHICAL):
        halves = sum(
            collectives.node_wire_bytes(name, algorithm, 1e9, group) for name in ("reduce-scatter", "all-gather")
        )
        assert collectives.node_wire_bytes("all-reduce", algorithm, 1e9, group) == pytest.approx(halves)


@pytest.mark.parametrize(
    ("size", "milliseconds", "bus"), [(2**20, 0.591, 3.5), (2**26, 0.937, 141), (2**30, 6.21, 341), (2**33, 45.6, 371)]
)
def test_time_of_a_ring_over_eight_nodes(size: int, milliseconds: float, bus: float) -> None:
    """NCCL's constants, Simple protocol, eight rails of 47 GB/s; 340 to 370 GB/s is what large sizes measure."""
    flow = collective_flow(
        "gradients", "all-reduce", collectives.RankGroup("dp", 64, 1, 8), collectives.RING, 1, size, "all"
    )
    seconds = flow_seconds(flow, collectives.Hardware(8, 47e9, 370e9))
    assert seconds * 1e3 == pytest.approx(milliseconds, rel=2e-3)
    assert size / seconds * 2 * 63 / 64 / 1e9 == pytest.approx(bus, rel=2e-2)


def test_steps_of_a_ring() -> None:
    group = collectives.RankGroup("dp", 64, 1, 8)
    assert collectives.latency_seconds("all-reduce", group) == pytest.approx((8.4 + 112 * 3.4 + 14 * 14) * 1e-6)
    assert collectives.latency_seconds("all-gather", group) == pytest.approx((8.4 + 56 * 3.4 + 7 * 14) * 1e-6)


@pytest.mark.parametrize(("nodes", "hop_us"), [(1, 3.4), (2, 14.0)])
def test_the_latency_of_a_send_is_one_hop(nodes: int, hop_us: float) -> None:
    group = collectives.RankGroup("pp", 2, 8 * (nodes - 1) or 4, 8)
    assert group.nodes == nodes
    assert collectives.latency_seconds("send", group) == pytest.approx((8.4 + hop_us) * 1e-6)


def nodes_of_groups(size: int, stride: int, node_gpus: int) -> list[set[int]]:
    """The nodes of every group, from the ranks: a rank is in the group of those that differ in this dimension alone."""
    ranks = range(size * stride * 2)
    groups: dict[tuple[int, int], set[int]] = {}
    for rank in ranks:
        inner, outer = rank % stride, rank // (stride * size)
        groups.setdefault((inner, outer), set()).add(rank // node_gpus)
    return list(groups.values())


@for_each(itertools.product((1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32), (4, 8)))
def test_groups_span_the_nodes_of_their_ranks(size: int, stride: int, node_gpus: int) -> None:
    group = collectives.RankGroup("dp", size, stride, node_gpus)
    assert {len(nodes) for nodes in nodes_of_groups(size, stride, node_gpus)} == {group.nodes}
    assert group.crosses_wire == (group.nodes > 1)
    assert group.members * group.nodes == size
    assert group.members * group.per_node == node_gpus


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (2, 3), (6, 2)])
def test_groups_that_do_not_fit_are_refused(size: int, stride: int) -> None:
    with pytest.raises(ValueError, match=f"^tp: groups of {size} ranks at a distance of {stride} do not fit"):
        collectives.RankGroup("tp", size, stride, 8)


LINK = 50e9


def fat_tree(hosts: int, link: float, oversubscription: float = 1.0) -> collectives.Bisection:
    return collectives.network_bisection("fat-tree", hosts, 1, link, {"oversubscription": oversubscription})


def rail_only(nodes: int, rails: int, link: float) -> collectives.Bisection:
    return collectives.network_bisection("rail-only", nodes, rails, link, {})


def torus(dimensions: tuple[int, ...], link: float) -> collectives.Bisection:
    return collectives.network_bisection("torus", 1, 1, link, {"dimensions": dimensions})


def dragonfly(groups: int, links: int, link: float) -> collectives.Bisection:
    return collectives.network_bisection("dragonfly", 1, 1, link, {"groups": groups, "global-links": links})


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
def test_bisection_of_known_networks(found: collectives.Bisection, terabytes: float) -> None:
    assert found.bytes_per_second / 1e12 == pytest.approx(terabytes, rel=1e-3)


@pytest.mark.parametrize("dimensions", [(4,), (4, 4), (2, 2), (6, 4, 2), (2, 8)])
def test_torus_bisection_matches_counted_cables(dimensions: tuple[int, ...]) -> None:
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


def test_dragonflies_match_counted_cables_and_odd_networks_warn() -> None:
    # every pair of 4 groups has one cable: 3 ends per group, 2 x 2 pairs across
    assert dragonfly(4, 3, 1.0).bytes_per_second == 4
    assert dragonfly(4, 3, 1.0).warnings == ()
    (warning,) = dragonfly(64, 8, LINK).warnings
    assert warning.startswith("8 global links per group do not reach the 63 other groups directly")
    assert dragonfly(64, 8, LINK).bytes_per_second / (64 * 64 * LINK / 2) == pytest.approx(0.063, abs=5e-4)
    assert "no path between rails" in rail_only(8, 8, LINK).warnings[0]
    assert "odd" in torus((3, 2), LINK).warnings[0]
    assert "no two equal halves" in dragonfly(5, 8, LINK).warnings[0]


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
def test_impossible_networks_are_refused(call: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()  # type: ignore[operator]
