"""The traffic of a job on several nodes: what a straggler and a hot rail show on each of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from ibpulse.workbench.simulate.fsdp import DENSE, MOE
from ibpulse.workbench.simulate.shared_job import HOT_RAIL, STRAGGLER_DELAY_NS, RingMember, SharedTraffic, share_job
from ibpulse.workbench.simulate.timeline import LINE_BYTES_PER_SECOND, Schedule, Workload
from ibpulse.workbench.simulate.workloads import Constant, ExpertParallel, Idle, Square

SECOND = 1_000_000_000
MS = 1_000_000
START = 1_700_000_000 * SECOND
OFFSETS = (100_000, -1_200_000, 2_600_000, 48_700_000)
STRAGGLER = 2
WITH_PAUSES = [DENSE, MOE, ExpertParallel(), Square(), Square(rate_bytes_per_second=1e8)]
ALL = [*WITH_PAUSES, Constant(), Idle()]


def shared(workload: Workload, rails: int = 4) -> list[SharedTraffic]:
    return share_job(workload, STRAGGLER, OFFSETS, 7, rails, START)


def moved(node: SharedTraffic, true_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes by true instants, (instants, rails, 2)."""
    return np.array([node.cumulative_bytes(int(at) + node.offset_ns) for at in true_ns])


@pytest.mark.parametrize("workload", ALL, ids=lambda each: each.name)
def test_what_a_node_transmits_the_next_one_receives_at_the_same_true_time(workload: Workload) -> None:
    nodes = shared(workload)
    instants = START + np.arange(0, 3 * SECOND, 7 * MS)
    bytes_of = [moved(node, instants) for node in nodes]
    for number, its in enumerate(bytes_of):
        assert (its[..., 1] == bytes_of[number - 1][..., 0]).all()


@pytest.mark.parametrize("workload", WITH_PAUSES, ids=lambda each: each.name)
def test_the_straggler_receives_on_time_and_transmits_late_in_every_step(workload: Workload) -> None:
    nodes = shared(workload)
    starts = Schedule(nodes[0].workload, 7, 4, START).step_starts_ns(START, START + 5 * SECOND)
    for begin in starts[:3]:
        instants = begin + np.arange(-MS, 25 * MS, MS // 100)
        first = [
            [float(instants[np.flatnonzero(np.diff(its[:, 0, way]))[0]] - begin) / MS for way in (0, 1)]
            for its in (moved(node, instants) for node in nodes)
        ]
        late = STRAGGLER_DELAY_NS / MS
        leads = [transmit - receive for transmit, receive in first]
        assert leads == pytest.approx([0, 0, late, -late], abs=0.02)
        assert first[0] == pytest.approx([0, 0], abs=0.1)


@pytest.mark.parametrize("workload", ALL, ids=lambda each: each.name)
def test_steps_are_equally_long_and_move_the_same_bytes_on_all_nodes(workload: Workload) -> None:
    punctual, late = (RingMember(workload, 4, straggler) for straggler in (False, True))
    for seed in range(3):
        ours, theirs = (each.step(np.random.default_rng(seed)) for each in (punctual, late))
        assert ours.durations_ns.sum() == theirs.durations_ns.sum()
        assert ours.durations_ns.min() > 0
        sent = [float((step.durations_ns * step.rates_bytes_per_second).sum()) for step in (ours, theirs)]
        alone = workload.step(np.random.default_rng(seed))
        by_itself = float((alone.durations_ns * alone.rates_bytes_per_second).sum()) * workload.weights(4).sum()
        assert [each * punctual.weights(4).sum() for each in sent] == pytest.approx([by_itself] * 2, rel=1e-6)
        assert max(ours.rates_bytes_per_second.max(), theirs.rates_bytes_per_second.max()) <= LINE_BYTES_PER_SECOND


@pytest.mark.parametrize("rails", [1, 2, 4, 8])
def test_the_hot_rail_carries_more_than_its_share_on_every_node(rails: int) -> None:
    for node in shared(DENSE, rails):
        total = node.cumulative_bytes(START + 10 * SECOND + node.offset_ns)
        hot = total[min(HOT_RAIL, rails - 1)]
        # one of eight rails is idle
        others = [each for each in np.delete(total, min(HOT_RAIL, rails - 1), axis=0) if each.any()]
        assert (hot > 0).all()
        assert all(hot == pytest.approx(each / 0.75, rel=1e-4) for each in others)


def test_the_collectives_of_a_model_are_those_of_all_nodes() -> None:
    member = shared(DENSE)[0].workload
    assert isinstance(member, RingMember)
    assert member.workload.ranks == 32  # type: ignore[attr-defined]


def test_no_step_of_a_node_is_faster_than_asked() -> None:
    node = shared(DENSE)[STRAGGLER]
    begin = START + SECOND + node.offset_ns
    for most in (0, 1e6, 1e8):
        end = node.latest_within(begin, begin + 300 * MS, most)
        grown = [node.port_bytes(end, HOT_RAIL, way) - node.port_bytes(begin, HOT_RAIL, way) for way in (0, 1)]
        assert max(grown) <= most
        assert (
            max(node.port_bytes(end + MS, HOT_RAIL, way) - node.port_bytes(begin, HOT_RAIL, way) for way in (0, 1))
            >= most - 8
        )
