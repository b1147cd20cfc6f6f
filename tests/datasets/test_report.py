"""Reports of synthetic fleets: findings, no false claims, formats, pictures and refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.synthetic_dataset import RailPlan
from bench.synthetic_fleet import START_NS
from ibpulse.base import limits
from ibpulse.base.units import SECOND_NS
from ibpulse.cli import main
from ibpulse.workbench.fleet.collection import MissingSpan, write_missing
from ibpulse.workbench.fleet.dataset import MAX_ROWS, DatasetStore, Part
from ibpulse.workbench.fleet.findings import Finding, find_sentences
from ibpulse.workbench.fleet.report import describe_dataset, describe_node
from ibpulse.workbench.fleet.source import DatasetChoice, FleetNode, NodeSums, ReportSource
from tests.datasets.fleets import busy_dataset, busy_report, dataset, findings, named_by, plan

QUIET = {"nobody-late", "clocks"}


def kinds(found: list[Finding]) -> set[str]:
    return {finding.kind for finding in found}


def test_planted_faults_are_named_with_evidence_and_limit() -> None:
    found = find_sentences(busy_report())
    # the worst first
    assert [finding.kind for finding in found] == ["late", "failover", "different-port", "hot-rail", "clocks"]
    assert named_by(found, "late") == [("node3",)]
    assert named_by(found, "hot-rail") == [("mlx5_1:1",)]
    assert named_by(found, "different-port") == [("node4", "mlx5_2:1")]
    assert named_by(found, "failover") == [("node6", "mlx5_0:1")]
    (lateness,) = (row.lateness for row in busy_report().steps if row.lateness and row.late)
    assert abs(lateness.lateness_ms - 20.0) <= lateness.uncertainty_ms
    late = next(finding for finding in found if finding.kind == "late")
    assert "receives 19" in late.evidence or "receives 20" in late.evidence
    assert "Inside one ring" in late.limit
    assert "± 0.10 ms" in late.limit


def test_a_healthy_fleet_and_idle_ports() -> None:
    found = findings("quiet", [plan(seed=4)])
    assert [finding.kind for finding in found] == ["nobody-late", "clocks"]
    assert "would not be named" in found[0].limit
    found = findings("idle", [plan()], RailPlan(ports={(1, 3): 0.0}))
    assert named_by(found, "idle-port") == [("node2", "mlx5_3:1")]


def test_pipelines_are_compared_with_their_own() -> None:
    late = [plan(rails=2, late_ms={1: 20.0}), plan(rails=2, stage_ms=dict.fromkeys(range(6), 157.0), seed=9)]
    found = findings("pipelines", late)
    assert named_by(found, "late") == [("node2",)]
    assert "(ports mlx5_0:1, mlx5_1:1)" in found[0].sentence


def test_nobody_is_late_across_stages() -> None:
    stages = plan(stage_ms={4: 30.0, 5: 30.0}, late_ms={4: 12.0, 5: 12.0})
    labels = {f"node{number + 1}": {"stage": "last" if number > 3 else "first"} for number in range(6)}
    assert kinds(findings("staged", [stages], labels=labels)) == QUIET
    found = findings("unstaged", [stages])
    assert named_by(found, "late") == []
    assert sorted(named_by(found, "ends-apart")) == [("node5",), ("node6",)]


@pytest.mark.parametrize(("steps", "words"), [(2, "step"), (3, "2 steps")])
def test_silence_at_the_first_steps_is_joining_late(steps: int, words: str) -> None:
    found = findings(f"behind{steps}", [plan(first_step={3: steps})])
    assert kinds(found) == {*QUIET, "fewer-steps"}
    (behind,) = (finding for finding in found if finding.kind == "fewer-steps")
    # no silence is before the first step of all, so it is not counted
    assert behind.sentence == f"node4 joined late: it is silent during the first {words} of its peers."


@pytest.mark.parametrize(
    ("before_ms", "first", "verdict"),
    [(110.0, [("node4",)], "node, node4 sent its last byte "), (0.5, [()], "together, all 6 nodes sent their last ")],
)
def test_first_silent_node_is_named_beyond_uncertainty(before_ms: float, first: list[str], verdict: str) -> None:
    stops = dict.fromkeys(range(6), 5900.0) | {3: 5900.0 - before_ms}
    found = findings(f"stall{before_ms:g}", [plan(stop_ms=stops)])
    assert found[0].kind == "stall"
    assert found[0].sentence.startswith("All 6 nodes are silent")
    assert f" Verdict at its end: {verdict}" in found[0].sentence
    assert named_by(found, "stall") == first


def test_silent_nodes_are_named_and_ordered_by_known_clocks() -> None:
    found = findings("alone", [plan(nodes=1, stop_ms={0: 5900.0})])
    assert found[0].sentence.startswith("The only node is silent from ")
    assert found[0].sentence.endswith(", up to the end. It is node1.")
    assert named_by(found, "stall") == [("node1",)]
    stops = dict.fromkeys(range(6), 5900.0) | {3: 5790.0}
    found = findings("clockless", [plan(stop_ms=stops)], clocks={})
    assert named_by(found, "stall") == [()]
    assert "no order is certain" in found[0].evidence
    leaving = plan(left_ms={3: 6000.0})
    (left,) = (one for one in findings("leaves", [leaving]) if one.kind == "fewer-steps")
    assert left.sentence.startswith("node4 left early: it is silent during the last ")
    assert named_by(findings("leaves0", [leaving], clocks={}), "fewer-steps") == []


def test_missing_data_and_coarse_counters_hide_no_late_node() -> None:
    found = findings("lossy", [plan(missing=0.03, late_ms={2: 20.0})])
    assert named_by(found, "late") == [("node3",)]
    assert len(named_by(found, "missing")[0]) == 6
    assert "ends-apart" not in kinds(found)
    found = findings("coarse", [plan(stride={1: 10}, late_ms={2: 12.0})])
    assert kinds(found) == {"late", "coarse", "clocks"}
    assert named_by(found, "late") == [("node3",)]
    assert named_by(found, "coarse") == [("node2",)]


def test_jobs_are_compared_with_an_interval() -> None:
    folder = dataset("jobs", [plan()], job="1001", clocks={})
    dataset("jobs", [plan(period_ms=345.1, seed=5)], job="1002", clocks={}, start_ns=1_763_690_400_000_000_000)
    report = describe_dataset(folder, DatasetChoice(job="1002"), DatasetChoice(job="1001"))
    step = next(change for change in report.changes.changes if change.key == "step_seconds")
    assert step.ratio == pytest.approx(1.1, abs=0.01)
    assert step.low <= step.ratio <= step.high
    assert step.significant
    same = describe_dataset(folder, DatasetChoice(job="1001"), DatasetChoice(job="1001"))
    assert not any(change.significant for change in same.changes.changes)


def test_places_and_shared_leaves_are_listed() -> None:
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


def test_places_that_differ_and_uncollected_spans_are_named() -> None:
    labels = {f"node{number + 1}": {"leaf": f"leaf{number // 3 + 1}"} for number in range(6)}
    slow = RailPlan(ports={(node, rail): 0.5 for node in (3, 4, 5) for rail in range(4)})
    folder = dataset("slow-leaf", [plan(late_ms={0: 20.0, 1: 20.0})], slow, labels=labels)
    parts = (Part("1001", "node9", START_NS), Part("1001", "node2", START_NS + 7 * 10**9))
    write_missing(DatasetStore(str(folder)), [MissingSpan(part, part.start_ns + 10**9, "gone") for part in parts])
    found = find_sentences(describe_dataset(folder, DatasetChoice()))
    assert named_by(found, "place") == [("leaf1",), ("leaf2",), ("leaf1",)]
    faster, slower, late = (one.sentence for one in found if one.kind == "place")
    assert ("% more than" in faster, "% less than" in slower) == (True, True)
    assert late == "All late nodes are at leaf leaf1: node1, node2."
    assert named_by(found, "different-node") == [(f"node{number}",) for number in range(1, 7)]
    (missing,) = (one for one in found if one.kind == "not-collected")
    assert missing.sentence == "2 s of node time were not collected, on node2, node9."


def test_lateness_from_half_time_on_is_named() -> None:
    for late_from, words in ((0.5, "in the second half, from +"), (0.0, None)):
        found = findings(f"half{late_from:g}", [plan(late_ms={2: 12.0}, late_from=late_from, clock_ms=2.0)], clocks={})
        assert named_by(found, "late") == [("node3",)]
        assert (words is None) or words in found[0].sentence
        assert ("in the other half" in found[0].sentence) == (words is not None)
        assert "nobody-late" not in kinds(found)


def test_bounds_of_edges_cover_the_stride() -> None:
    source = ReportSource(dataset("strides", [plan(stride={1: 10})]), DatasetChoice())
    groups = {group.node: group.columns for group in source.steps()}
    assert source.nodes["node2"].resolution_ns == 100_000_000
    source.close()
    for name in ("begin", "transmit_first", "receive_first"):
        assert groups["node2"][f"{name}_bound"].min() >= 100e6
        assert not groups["node2"][f"{name}_resolved"].any()
        assert groups["node1"][f"{name}_bound"].max() <= 10e6


def test_fewer_than_three_peers_name_nobody() -> None:
    found = findings("pair", [plan(nodes=2, late_ms={1: 20.0})], RailPlan(ports={(1, 2): 0.5}))
    assert kinds(found) == {"unknown-late", "clocks"}
    assert "no node has 3 peers" in found[0].sentence
    few = findings("few", [plan(nodes=3, rails=3, late_ms={1: 20.0})], RailPlan(hot={1: 1.5}))
    assert kinds(few) == {"unknown-late", "clocks"}


def test_no_step_is_missing_of_cut_recordings_and_lost_edges() -> None:
    """The last step of the first stages ends before the samples do, that of the last stage after."""
    stages = {node: 30.0 * (node // 2) for node in range(6)}
    for seconds in (6.30, 6.34, 6.38, 6.42, 6.46, 6.50, 6.54, 6.58):
        found = findings(f"cut{seconds}", [plan(stage_ms=stages, seconds=seconds)])
        assert named_by(found, "fewer-steps") == []
    # silences of steps that vary are too short at times to divide two steps
    for seed in range(4):
        found = findings(f"lost{seed}", [plan(duty=0.8, step_sd=0.06, seed=seed)])
        assert named_by(found, "fewer-steps") == []


def observed(missing: list[int], samples: int, interval_ns: int) -> list[tuple[float, float]]:
    """The spans with samples, in seconds from the beginning of the first one."""
    rates = np.full((2, samples), 1e9, dtype=np.float32)
    rates[:, missing] = np.nan
    node = FleetNode("a", (), interval_ns, 0, None, False, None, None, {})
    found = describe_node(node, NodeSums(interval_ns, rates, np.zeros(samples, dtype=np.bool_)), 0, 1.0)
    return list(found.observed)


@pytest.mark.parametrize("interval_ns", [10_000_000, SECOND_NS // 8, SECOND_NS, 5 * SECOND_NS])
def test_contiguous_samples_are_one_span(interval_ns: int) -> None:
    assert observed([], 20, interval_ns) == [(0.0, pytest.approx(20 * interval_ns / SECOND_NS))]


def test_gaps_below_a_second_divide_no_span() -> None:
    assert observed(list(range(10, 17)), 40, SECOND_NS // 8) == [(0.0, 5.0)]
    assert observed(list(range(10, 18)), 40, SECOND_NS // 8) == [(0.0, 1.25), (2.25, 5.0)]
    assert observed([3], 10, 2 * SECOND_NS) == [(0.0, 6.0), (8.0, 20.0)]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["fleet", *words])
    return status, *capsys.readouterr()


def test_page_escapes_names_and_loads_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"node1": {"leaf": "<script>alert(1)</script>"}}
    folder = dataset("hostile", [plan(nodes=2, steps=6)], labels=labels)
    _, out, _ = run(capsys, "report", str(folder), "--format=html")
    assert not re.search(r"(?i)<(script|link|img|iframe)", out)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in out
    assert out.count("<table") == 4


@pytest.mark.parametrize(("kind", "order"), [("waterfall", "rack"), ("rails", "name"), ("lateness", "lateness")])
def test_pictures_have_the_given_width(
    kind: str, order: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["render", str(busy_dataset()), "-o", str(tmp_path / "a.png"), f"--picture={kind}", "--width=800"]
    status, out, _ = run(capsys, *words, "--dpi=80", f"--sort={order}")
    assert (status, kind in out) == (0, True)
    picture = Image.open(tmp_path / "a.png")
    assert picture.width == 800
    colours = np.asarray(picture.convert("RGB").resize((80, 40))).reshape(-1, 3)
    assert len(np.unique(colours, axis=0)) > 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "{dataset}", "--from=yesterday"], "'yesterday' is not a time"),
        (["report", "{dataset}", "--from=2025-11-21T00:00:02Z", "--to=2025-11-21T00:00:01Z"], "ends before it begins"),
        (["report", "{dataset}", "--from=2030-01-01T00:00:00Z"], "has no complete part of all jobs in this span"),
        (["render", "{dataset}", "-o", "a.gif"], "can only be written as .png or .svg"),
        (["render", "{dataset}", "-o", "a.png", "--width=10"], "too few for the labels"),
    ],
)
def test_faults_are_one_sentence(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, error = run(capsys, *(word.format(dataset=busy_dataset()) for word in words))
    assert status != 0
    assert out == ""
    assert message in error


def test_damaged_tiers_are_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = dataset("damaged", [plan(nodes=2, steps=6)])
    path = next(folder.glob("tier=node10ms/**/*.parquet"))
    path.write_bytes(path.read_bytes()[:200])
    status, _, error = run(capsys, "report", str(folder))
    assert status != 0
    assert "cannot be read" in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("tier", ["files", "node10ms", "rails1s", "steps"])
def test_too_many_rows_are_refused_before_reading(
    tier: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAX_ROWS, tier, 0)
    status, _, error = run(capsys, "report", str(busy_dataset()))
    assert status == 1
    assert f"rows in the tier {tier}, more than the 0 of an hour; collect this part again" in error


def test_spans_beyond_spare_memory_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "spare_bytes", lambda: 10_000)
    status, _, error = run(capsys, "report", str(busy_dataset()))
    assert status == 1
    assert re.search(r"takes \d+ kB of memory at once, more than the 10 kB that can be spared; choose", error), error


def test_only_the_chosen_time_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--from=2025-11-21T00:00:03Z", "--to=2025-11-21T00:00:06Z", "--format=json"]
    _, out, _ = run(capsys, "report", str(busy_dataset()), *words)
    steps = {row["steps"] for row in json.loads(out)["steps"] if len(row["ports"]) > 1}
    assert steps <= {9, 10}
