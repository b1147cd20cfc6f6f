"""Groups that cross the wire, against ranks that are placed one by one."""

from __future__ import annotations

import itertools

import pytest

from ibpulse.workbench.models.placement import RankGroup
from tests.tables import for_each


def nodes_of_groups(size: int, stride: int, node_gpus: int) -> list[set[int]]:
    """The nodes of every group, from the ranks: a rank is in the group of those that differ in this dimension alone."""
    ranks = range(size * stride * 2)
    groups: dict[tuple[int, int], set[int]] = {}
    for rank in ranks:
        inner, outer = rank % stride, rank // (stride * size)
        groups.setdefault((inner, outer), set()).add(rank // node_gpus)
    return list(groups.values())


@for_each(itertools.product((1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32), (4, 8)))
def test_a_group_spans_the_nodes_that_its_ranks_are_on(size: int, stride: int, node_gpus: int) -> None:
    group = RankGroup("dp", size, stride, node_gpus)
    assert {len(nodes) for nodes in nodes_of_groups(size, stride, node_gpus)} == {group.nodes}
    assert group.crosses_wire == (group.nodes > 1)
    assert group.members * group.nodes == size
    assert group.members * group.per_node == node_gpus


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (2, 3), (6, 2)])
def test_groups_that_do_not_fit_into_nodes_are_refused(size: int, stride: int) -> None:
    with pytest.raises(ValueError, match=f"^tp: groups of {size} ranks at a distance of {stride} do not fit"):
        RankGroup("tp", size, stride, 8)
