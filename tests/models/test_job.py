"""Nodes that a token visits and its remote copies, against routing that is enumerated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ibpulse.workbench.models.job import DEDUPLICATED, PLAIN, distinct_nodes, remote_copies


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


def test_impossible_routing_is_refused() -> None:
    with pytest.raises(ValueError, match="10 experts do not divide by 4 nodes"):
        distinct_nodes(4, 10, 2)
    with pytest.raises(ValueError, match="9 experts per token are more than the 8"):
        distinct_nodes(4, 8, 9)
