from itertools import pairwise

import numpy as np
import pytest

from tests.stalls import broken, healthy
from tests.stalls.material import Case, Clock, Flow, Node, observe, timeout_counts
from tests.stalls.training import IN_FLIGHT, Shape, computation_times, incomplete, schedule
from tests.tables import for_each

EVEN = Shape(nodes=4, step=1.0, operations=2, share=0.4, spread=0.0)


def test_a_flow_counts_at_a_constant_rate_in_each_span_and_loses_no_byte():
    flow = Flow.of([(3.0, 5.0, 400.0), (1.0, 2.0, 100.0)]).together(Flow.of([(4.0, 6.0, 50.0)]))
    assert flow.counter(np.array([0.0, 1.5, 2.5, 4.0, 9.0])).tolist() == [0, 50, 100, 300, 550]
    assert flow.last() == 6.0
    assert flow.last(before=2.9) == 2.0
    assert flow.last(before=1.5) == 1.5


@for_each({"no overlap": (1, 0.3 + 0.2), "communication runs ahead": (2, 0.5)})
def test_an_even_job_has_the_period_of_its_longer_queue(ahead, period):
    shape = Shape(nodes=4, step=1.0, operations=2, share=0.4, ahead=ahead, spread=0.0)
    arrives, ends = schedule(shape, computation_times(shape, 20, np.random.default_rng(0)))
    assert np.diff(ends[0, 2:]) == pytest.approx(period)
    assert (ends == ends[0]).all()
    assert (arrives < ends).all()


def test_a_ring_without_one_member_passes_on_one_part_more_at_each_node_behind_it():
    arrives = np.array([0.0, np.inf, 0.1, 0.0])
    part = EVEN.rate * EVEN.wire / 3
    sent, received = incomplete(EVEN, [0, 1, 2, 3], arrives, np.random.default_rng(0), credit=0.0)
    assert {node: span[2] for node, span in sent.items()} == pytest.approx({2: part, 3: 2 * part})
    assert {node: span[2] for node, span in received.items()} == pytest.approx({3: part, 0: 2 * part})
    assert sent[3][0] == 0.1, "the second node waits for the first"
    sent, _ = incomplete(EVEN, [0, 1, 2, 3], arrives, np.random.default_rng(0), credit=float(IN_FLIGHT))
    assert sent[0][2] == IN_FLIGHT


def test_a_node_that_never_arrives_stops_first_by_the_computation_of_the_others_and_one_part():
    plan = broken.Plan("node", "hang", Shape(nodes=8, share=0.4, spread=0.0), steps=5)
    case = broken.make(plan, seed=3)
    shape = plan.shape
    computation = shape.computation, shape.computation + 0.03 * shape.step
    leads = [part + chunk for part in computation for chunk in (shape.wire / 7, IN_FLIGHT / shape.rate)]
    assert min(abs(case.lead() - lead) for lead in leads) < 1e-3


def silent_after(case: Case) -> float:
    """True instant of the last byte of the job before traffic returns or the recording ends."""
    return max(node.last_byte(min(case.truth.resumes, case.end)) for node in case.nodes)


def test_every_stall_is_silent_and_shows_the_signs_of_its_cause():
    for index, plan in enumerate(broken.plans(seed=5, count=36)):
        case = broken.make(plan, index)
        truth, nodes = case.truth, {node.name: node for node in case.nodes}
        assert silent_after(case) < truth.stopped + 2.5 * plan.shape.step, plan
        down = {(name, event.port) for name, node in nodes.items() for event in node.links if not event.up}
        counts = {
            name: sum(int(np.diff(timeout_counts(node, port, np.array([truth.stopped, case.end])))[0])
                      for port in node.rails)
            for name, node in nodes.items()
            if node.timeouts is not None
        }  # fmt: skip
        if truth.kind == "link":
            assert {(name, truth.rails[0]) for name in truth.nodes} <= down, plan
            cause = nodes[truth.nodes[0]].job
            assert max(cause[truth.rails[0], way].last(truth.resumes) for way in ("sent", "received")) <= truth.stopped
        if truth.kind == "loss" and counts:
            assert {name for name, count in counts.items() if count} == set(truth.affected), plan
        if truth.kind == "loss":
            again = [nodes[name].other[truth.rails[0], "sent"] for name in truth.affected]
            assert all(((flow.begins > truth.stopped) & (flow.volumes != 288.0)).any() for flow in again), (
                "packets are repeated"
            )
        if truth.kind == "node":
            assert len(truth.nodes) == 1
            # stages of a pipeline end their steps at different times
            assert case.lead() > -1e-3 or plan.shape.topology == "pipeline", plan
        if truth.variant in ("hang", "all") or truth.kind == "together":
            assert not sum(counts.values()), plan


def test_storage_and_the_job_share_a_port():
    node = Node("a", ("r:1",))
    node.job["r:1", "sent"] = Flow.of([(2.0, 3.0, 100.0)])
    node.add("r:1", "sent", [(0.0, 10.0, 1000.0)])
    assert node.counter("r:1", "sent", np.array([1.0, 2.5, 4.0, 10.0])).tolist() == [100, 300, 500, 1100]


def test_recordings_have_the_nodes_clock_and_its_missing_samples():
    node = Node("a", ("r:1",), storage=(), clock=Clock(offset=0.5, bound=1e-3), lost=[(2.0, 3.0)])
    node.job["r:1", "sent"] = Flow.of([(1.0, 5.0, 4e6)])
    node.answers = [(0.0, 6.0)]
    samples = observe(node, 0.0, 10.0, np.random.default_rng(0))
    true = samples.times - 0.5
    assert not ((true > 2.0) & (true < 3.0)).any()
    assert true[-1] < 6.0
    assert samples.sent[:, 0] == pytest.approx(np.clip(true - 1.0, 0, 4) * 1e6, abs=1)
    assert not samples.received.any()
    node.lost_share = 0.2
    assert len(observe(node, 3.1, 6.0, np.random.default_rng(0)).times) == pytest.approx(0.8 * 290, rel=0.1)


def test_a_healthy_job_is_silent_for_long_only_in_its_pauses():
    habits = healthy.Habits(
        2.0, {reason: 1500.0 for reason in healthy.REASONS if reason != "elastic"}, storage_on_rails=True
    )
    case = healthy.make("all pauses", EVEN, habits, seed=1)
    assert {pause.reason for pause in case.truth.pauses} >= {*habits.every, "first-step", "end"}
    begins = np.sort(np.concatenate([node.job["mlx5_0:1", "sent"].begins for node in case.nodes]))
    ends = np.sort(np.concatenate([node.job["mlx5_0:1", "sent"].ends for node in case.nodes]))
    for end, begin in pairwise(sorted({*begins, *ends})):
        if begin - end > 3 * EVEN.step:
            middle = (begin + end) / 2
            assert any(pause.begin - 1 <= middle <= pause.end + 1 for pause in case.truth.pauses), (end, begin)


def test_a_node_that_leaves_an_elastic_job_carries_nothing_until_it_returns():
    case = healthy.make("elastic", EVEN, healthy.Habits(4.0, {"elastic": 2000.0}), seed=2)
    left = [node for node in case.nodes if len(node.present) > 1]
    assert left
    for node in left:
        for (_, gone), (back, _) in pairwise(node.present):
            flow = node.job["mlx5_0:1", "sent"]
            assert not ((flow.begins > gone) & (flow.begins < back)).any()


def test_the_same_seed_gives_the_same_jobs():
    first, second = (list(healthy.jobs(7, hours=5)) for _ in range(2))
    assert [case.name for case in first] == [case.name for case in second]
    assert [case.truth for case in first] == [case.truth for case in second]
    assert sum(case.end for case in first) == pytest.approx(5 * 3600, rel=0.3)
