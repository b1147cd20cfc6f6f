"""Bytes of collectives, against algorithms that are carried out chunk by chunk."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.workbench.models.collectives import (
    HIERARCHICAL,
    RING,
    RULES,
    group_wire_bytes,
    node_wire_bytes,
    nvlink_bytes,
    ring_steps,
)
from ibpulse.workbench.models.placement import RankGroup
from ibpulse.workbench.models.wire_timing import Hardware, latency_seconds, operation_seconds

GROUPS = st.builds(
    lambda size, stride, gpus: RankGroup("dp", 2**size, 2**stride, gpus),
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
def test_a_ring_sends_as_many_chunks_as_when_it_is_carried_out(ranks: int, node_gpus: int) -> None:
    group = RankGroup("dp", ranks, 1, node_gpus)
    sent = ring_all_gather(ranks, node_gpus)
    for node in range(ranks // node_gpus):
        wire = sum(count for (source, target), count in sent.items() if source == node != target)
        assert wire / ranks == pytest.approx(node_wire_bytes("all-gather", RING, 1.0, group))
        inside = sent[node, node] / ranks / node_gpus
        assert inside == pytest.approx(nvlink_bytes("all-gather", RING, 1.0, group))


@pytest.mark.parametrize(("nodes", "node_gpus"), [(2, 8), (4, 4), (8, 1)])
def test_an_all_to_all_sends_what_pairs_of_ranks_on_different_nodes_exchange(nodes: int, node_gpus: int) -> None:
    ranks = nodes * node_gpus
    pairs = sum(a // node_gpus == 0 and b // node_gpus != 0 for a in range(ranks) for b in range(ranks))
    group = RankGroup("ep", ranks, 1, node_gpus)
    assert node_wire_bytes("all-to-all", RING, 1.0, group) == pytest.approx(pairs / ranks)
    # the receiver's rail begins at the GPU with its index
    hops = sum(other % node_gpus != 0 for other in range(ranks))
    assert nvlink_bytes("all-to-all", RING, 1.0, group) == pytest.approx(hops / ranks)


@given(GROUPS, st.sampled_from(sorted(RULES)), st.floats(1, 1e12))
def test_bytes_scale_with_the_array_and_vanish_within_a_node(group: RankGroup, operation: str, size: float) -> None:
    for algorithm in (RING, HIERARCHICAL):
        once = node_wire_bytes(operation, algorithm, size, group)
        assert node_wire_bytes(operation, algorithm, 3 * size, group) == pytest.approx(3 * once)
        assert (once > 0) == group.crosses_wire
        assert once == group.per_node * group_wire_bytes(operation, algorithm, size, group)
        assert (nvlink_bytes(operation, algorithm, size, group) > 0) == (group.members > 1)


@given(GROUPS, st.sampled_from(("all-gather", "reduce-scatter", "all-reduce")))
def test_hierarchical_is_at_most_a_ring_and_equal_with_one_gpu_per_node(group: RankGroup, operation: str) -> None:
    ring = node_wire_bytes(operation, RING, 1e9, group)
    hierarchical = node_wire_bytes(operation, HIERARCHICAL, 1e9, group)
    assert hierarchical <= ring
    if group.members == 1:
        assert hierarchical == ring


@given(GROUPS)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(group: RankGroup) -> None:
    for algorithm in (RING, HIERARCHICAL):
        halves = sum(node_wire_bytes(name, algorithm, 1e9, group) for name in ("reduce-scatter", "all-gather"))
        assert node_wire_bytes("all-reduce", algorithm, 1e9, group) == pytest.approx(halves)


def test_a_ring_of_gradients_over_1024_gpus() -> None:
    """175e9 parameters, fp32, one GPU per 50 GB/s NIC: 1.3986e12 bytes per rank, 27.97 s."""
    sent = group_wire_bytes("all-reduce", RING, 4 * 175e9, RankGroup("dp", 1024, 1, 1))
    assert sent == pytest.approx(1.3986e12, rel=1e-3)
    assert sent / 50e9 == pytest.approx(27.97, rel=1e-3)


@pytest.mark.parametrize(("stages", "milliseconds"), [(16, 219), (8, 437)])
def test_model_parallelism_divides_the_gradients_of_a_rank(stages: int, milliseconds: float) -> None:
    gradients = 4 * 175e9 / (8 * stages)
    sent = group_wire_bytes("all-reduce", RING, gradients, RankGroup("dp", 1024, 1, 1))
    assert sent / 50e9 * 1e3 == pytest.approx(milliseconds, abs=0.6)


def test_gradients_of_a_rank_under_tensor_and_pipeline_parallelism() -> None:
    gradients = 4 * 175e9 / (8 * 16)
    assert gradients == pytest.approx(5.47e9, rel=1e-3)


@pytest.mark.parametrize(
    ("size", "milliseconds", "bus"), [(2**20, 0.591, 3.5), (2**26, 0.937, 141), (2**30, 6.21, 341), (2**33, 45.6, 371)]
)
def test_time_of_a_ring_over_eight_nodes(size: int, milliseconds: float, bus: float) -> None:
    """NCCL's constants, Simple protocol, eight rails of 47 GB/s; 340 to 370 GB/s is what large sizes measure."""
    group = RankGroup("dp", 64, 1, 8)
    seconds = operation_seconds("all-reduce", size, group, Hardware(8, 47e9, 370e9))
    assert seconds * 1e3 == pytest.approx(milliseconds, rel=2e-3)
    assert size / seconds * 2 * 63 / 64 / 1e9 == pytest.approx(bus, rel=2e-2)


def test_steps_of_a_ring() -> None:
    group = RankGroup("dp", 64, 1, 8)
    assert ring_steps("all-reduce", group) == (112, 14)
    assert ring_steps("all-gather", group) == (56, 7)
    assert latency_seconds("all-reduce", group) == pytest.approx((8.4 + 112 * 3.4 + 14 * 14) * 1e-6)


def test_what_stays_on_a_node_waits_for_nvlink_alone() -> None:
    group, hardware = RankGroup("tp", 8, 1, 8), Hardware(8, 47e9, 370e9)
    seconds = operation_seconds("all-reduce", 2**30, group, hardware)
    assert seconds == pytest.approx(2 * 7 / 8 * 2**30 / 370e9 + (8.4 + 14 * 3.4) * 1e-6)
    assert operation_seconds("all-reduce", 2**30, group, hardware, protocol="LL") > 1.9 * seconds


@pytest.mark.parametrize(("nodes", "hop_us"), [(1, 3.4), (2, 14.0)])
def test_the_fixed_cost_of_a_send_is_one_hop_over_nvlink_or_over_the_network(nodes: int, hop_us: float) -> None:
    group = RankGroup("pp", 2, 8 * (nodes - 1) or 4, 8)
    assert group.nodes == nodes
    assert latency_seconds("send", group) == pytest.approx((8.4 + hop_us) * 1e-6)
