"""What a report finds in synthetic fleets, and what it does not claim."""

from __future__ import annotations

import pytest

from bench.synthetic_dataset import RailPlan
from bench.synthetic_fleet import SyntheticFleet
from ibpulse.workbench.fleet.finding_sentences import find_sentences
from ibpulse.workbench.fleet.fleet_finding import FleetFinding
from ibpulse.workbench.fleet.fleet_report import describe_dataset
from ibpulse.workbench.fleet.report_source import DatasetChoice, ReportSource
from tests.datasets.fleets import busy_report, dataset, findings, named_by, plan

QUIET = {"nobody-late", "clocks"}


def kinds(found: list[FleetFinding]) -> set[str]:
    return {finding.kind for finding in found}


def test_a_straggler_a_hot_rail_a_sick_port_and_a_failover_are_named_with_evidence_and_limit() -> None:
    found = find_sentences(busy_report())
    assert named_by(found, "late") == [("node3",)]
    assert named_by(found, "hot-rail") == [("mlx5_1:1",)]
    assert named_by(found, "different-port") == [("node4", "mlx5_2:1")]
    assert named_by(found, "failover") == [("node6", "mlx5_0:1")]
    late = next(finding for finding in found if finding.kind == "late")
    assert "receives 19" in late.evidence or "receives 20" in late.evidence
    assert "Inside one ring" in late.limit
    assert "± 0.10 ms" in late.limit


def test_where_nothing_is_wrong_nothing_is_claimed() -> None:
    found = findings("quiet", [plan(seed=4)])
    assert [finding.kind for finding in found] == ["nobody-late", "clocks"]
    assert "would not be named" in found[0].limit


def test_a_wrong_clock_bound_is_reported_and_makes_nobody_late() -> None:
    wrong = plan(clocks_ms={4: 8.0})
    found = findings("wrong", [wrong], clocks=SyntheticFleet(wrong).clocks(0.1, {4: 0.0}))
    assert kinds(found) == {*QUIET, "ends-apart"}
    assert named_by(found, "ends-apart") == [("node5",)]


def test_two_pipelines_on_a_node_are_compared_each_with_its_own() -> None:
    late = [plan(rails=2, late_ms={1: 20.0}), plan(rails=2, stage_ms=dict.fromkeys(range(6), 157.0), seed=9)]
    found = findings("pipelines", late)
    assert named_by(found, "late") == [("node2",)]
    assert "(ports mlx5_0:1, mlx5_1:1)" in found[0].sentence


def test_stages_are_compared_within_if_they_are_known_and_nobody_is_named_across_them() -> None:
    stages = plan(stage_ms={4: 30.0, 5: 30.0}, late_ms={4: 12.0, 5: 12.0})
    labels = {f"node{number + 1}": {"stage": "last" if number > 3 else "first"} for number in range(6)}
    assert kinds(findings("staged", [stages], labels=labels)) == QUIET
    found = findings("unstaged", [stages])
    assert named_by(found, "late") == []
    assert sorted(named_by(found, "ends-apart")) == [("node5",), ("node6",)]


@pytest.mark.parametrize(("steps", "words"), [(2, "step"), (3, "2 steps")])
def test_a_node_that_is_steps_behind_joined_late(steps: int, words: str) -> None:
    found = findings(f"behind{steps}", [plan(first_step={3: steps})])
    assert kinds(found) == {*QUIET, "fewer-steps"}
    (behind,) = (finding for finding in found if finding.kind == "fewer-steps")
    # no silence is before the first step of all, so it is not counted
    assert behind.sentence == f"node4 joined late: it is silent during the first {words} of its peers."


@pytest.mark.parametrize(("before_ms", "first"), [(110.0, [("node4",)]), (0.5, [()])])
def test_who_fell_silent_first_is_named_only_beyond_clocks_and_samples(before_ms: float, first: list[str]) -> None:
    stops = dict.fromkeys(range(6), 5900.0) | {3: 5900.0 - before_ms}
    found = findings(f"stall{before_ms:g}", [plan(stop_ms=stops)])
    assert found[0].kind == "stall"
    assert found[0].sentence.startswith("All 6 nodes are silent")
    assert named_by(found, "stall") == first


def test_missing_data_is_reported_and_hides_no_late_node() -> None:
    found = findings("lossy", [plan(missing=0.03, late_ms={2: 20.0})])
    assert named_by(found, "late") == [("node3",)]
    assert len(named_by(found, "missing")[0]) == 6
    assert "ends-apart" not in kinds(found)


def test_without_clocks_no_order_between_nodes_is_claimed() -> None:
    stops = dict.fromkeys(range(6), 5900.0) | {3: 5790.0}
    found = findings("clockless", [plan(stop_ms=stops)], clocks={})
    assert named_by(found, "stall") == [()]
    assert "no order is certain" in found[0].evidence


def test_two_jobs_are_compared_with_an_interval() -> None:
    folder = dataset("jobs", [plan()], job="1001", clocks={})
    dataset("jobs", [plan(period_ms=345.1, seed=5)], job="1002", clocks={}, start_ns=1_763_690_400_000_000_000)
    report = describe_dataset(folder, DatasetChoice(job="1002"), DatasetChoice(job="1001"))
    assert report.changes is not None
    step = next(change for change in report.changes.changes if change.key == "step_seconds")
    assert step.ratio == pytest.approx(1.1, abs=0.01)
    assert step.low <= step.ratio <= step.high
    assert step.significant
    same = describe_dataset(folder, DatasetChoice(job="1001"), DatasetChoice(job="1001"))
    assert same.changes is not None
    assert not any(change.significant for change in same.changes.changes)


def test_places_are_listed_and_jobs_that_share_a_leaf_are_named() -> None:
    report = busy_report()
    assert [(place.kind, place.name, len(place.nodes)) for place in report.places][:2] == [
        ("leaf", "leaf1", 3),
        ("leaf", "leaf2", 3),
    ]
    labels = {f"node{number + 1}": {"leaf": "leaf1"} for number in range(6)}
    folder = dataset("shared", [plan(nodes=2, steps=8)], job="1001", labels=labels)
    dataset("shared", [plan(nodes=2, steps=8)], job="1002", labels=labels, start_ns=1_763_690_400_000_000_000)
    found = find_sentences(describe_dataset(folder, DatasetChoice()))
    assert named_by(found, "shared-leaf") == [("leaf1",)]


def test_a_port_that_carries_nothing_is_idle() -> None:
    found = findings("idle", [plan()], RailPlan(ports={(1, 3): 0.0}))
    assert named_by(found, "idle-port") == [("node2", "mlx5_3:1")]


def test_a_node_that_is_late_from_half_time_on_is_named() -> None:
    for late_from, words in ((0.5, "in the second half, from +"), (0.0, None)):
        found = findings(f"half{late_from:g}", [plan(late_ms={2: 12.0}, late_from=late_from, clock_ms=2.0)], clocks={})
        assert named_by(found, "late") == [("node3",)]
        assert (words is None) or words in found[0].sentence
        assert ("in the other half" in found[0].sentence) == (words is not None)
        assert "nobody-late" not in kinds(found)


def test_steps_of_counters_that_change_rarely_are_not_compared() -> None:
    found = findings("coarse", [plan(stride={1: 10}, late_ms={2: 12.0})])
    assert kinds(found) == {"late", "coarse", "clocks"}
    assert named_by(found, "late") == [("node3",)]
    assert named_by(found, "coarse") == [("node2",)]


def test_edges_are_known_to_the_stride_at_least() -> None:
    source = ReportSource(dataset("strides", [plan(stride={1: 10})]), DatasetChoice())
    groups = {group.node: group.columns for group in source.steps()}
    assert source.nodes["node2"].resolution_ns == 100_000_000
    source.close()
    for name in ("begin", "transmit_first", "receive_first"):
        assert groups["node2"][f"{name}_bound"].min() >= 100e6
        assert not groups["node2"][f"{name}_resolved"].any()
        assert groups["node1"][f"{name}_bound"].max() <= 10e6


def test_fewer_than_three_peers_are_named_for_nothing() -> None:
    found = findings("pair", [plan(nodes=2, late_ms={1: 20.0})], RailPlan(ports={(1, 2): 0.5}))
    assert kinds(found) == {"unknown-late", "clocks"}
    assert "no node has 3 peers" in found[0].sentence
    few = findings("few", [plan(nodes=3, rails=3, late_ms={1: 20.0})], RailPlan(hot={1: 1.5}))
    assert kinds(few) == {"unknown-late", "clocks"}


def test_a_recording_that_ends_between_the_stages_loses_no_step() -> None:
    """The last step of the first stages ends before the samples do, that of the last stage after."""
    stages = {node: 30.0 * (node // 2) for node in range(6)}
    for seconds in (6.30, 6.34, 6.38, 6.42, 6.46, 6.50, 6.54, 6.58):
        found = findings(f"cut{seconds}", [plan(stage_ms=stages, seconds=seconds)])
        assert named_by(found, "fewer-steps") == []


def test_steps_whose_edges_were_lost_are_not_missing() -> None:
    """Silences of steps that vary are too short at times to divide two steps."""
    for seed in range(4):
        found = findings(f"lost{seed}", [plan(duty=0.8, step_sd=0.06, seed=seed)])
        assert named_by(found, "fewer-steps") == []


def test_a_node_that_leaves_is_said_to_leave_unless_its_clock_is_unknown() -> None:
    leaving = plan(left_ms={3: 6000.0})
    (left,) = (one for one in findings("leaves", [leaving]) if one.kind == "fewer-steps")
    assert left.sentence.startswith("node4 left early: it is silent during the last ")
    assert named_by(findings("leaves0", [leaving], clocks={}), "fewer-steps") == []


def test_without_clocks_a_slow_one_makes_nobody_the_first_to_stop() -> None:
    stopped = plan(stop_ms=dict.fromkeys(range(6), 5900.0), clocks_ms={3: -80.0}, ring=True)
    found = findings("slow", [stopped], clocks={})
    assert "first is not known: their clocks are not known" in found[0].sentence
    assert named_by(found, "stall") == [()]


def test_many_ends_that_lie_apart_are_one_sentence() -> None:
    found = findings("scattered", [plan(stage_ms={node: 30.0 * node for node in range(6)})])
    (apart,) = (one for one in found if one.kind == "ends-apart")
    assert "label the nodes with their stage" in apart.limit


def test_findings_come_in_the_order_of_their_severity() -> None:
    found = [finding.kind for finding in find_sentences(busy_report())]
    assert found == ["late", "failover", "different-port", "hot-rail", "clocks"]
    stopped = findings("ordered", [plan(stop_ms=dict.fromkeys(range(6), 5900.0))])
    assert [finding.kind for finding in stopped] == ["stall", "nobody-late", "clocks"]
