"""The numbers of a node whose samples are known."""

from __future__ import annotations

import numpy as np
import pytest

from ibpulse.base.units import SECOND_NS
from ibpulse.workbench.fleet.node_numbers import describe_node
from ibpulse.workbench.fleet.report_source import FleetNode, NodeSums


def observed(missing: list[int], samples: int, interval_ns: int) -> list[tuple[float, float]]:
    """The spans with samples, in seconds from the beginning of the first one."""
    rates = np.full((2, samples), 1e9, dtype=np.float32)
    rates[:, missing] = np.nan
    all_rails = np.full(samples, 8)
    node = FleetNode("a", (), (), interval_ns, 0, 8, None, 1.0, False, None, None, {})
    found = describe_node(node, NodeSums(interval_ns, interval_ns, rates, all_rails, all_rails), 0, 1.0)
    return list(found.observed)


@pytest.mark.parametrize("interval_ns", [10_000_000, SECOND_NS // 8, SECOND_NS, 5 * SECOND_NS])
def test_samples_in_a_row_are_one_span(interval_ns: int) -> None:
    assert observed([], 20, interval_ns) == [(0.0, pytest.approx(20 * interval_ns / SECOND_NS))]


def test_less_than_a_second_missing_divides_no_span() -> None:
    assert observed(list(range(10, 17)), 40, SECOND_NS // 8) == [(0.0, 5.0)]
    assert observed(list(range(10, 18)), 40, SECOND_NS // 8) == [(0.0, 1.25), (2.25, 5.0)]
    assert observed([3], 10, 2 * SECOND_NS) == [(0.0, 6.0), (8.0, 20.0)]
