"""Signs of what limited the rails of a node: asked for, counted, in a capture and its report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ibpulse.agent.aggregator import AggregatorOptions
from ibpulse.agent.aggregator.aggregator import LimitTotals
from ibpulse.agent.aggregator.ports import PortTable
from ibpulse.core.events import PortHistory
from ibpulse.core.recordings import load
from ibpulse.core.recordings.limits import find_recorded_signs
from ibpulse.core.recordings.perfetto import TracedNode, write_trace
from ibpulse.core.statistics.signs import LETTERS
from ibpulse.workbench.reports.run import describe_run
from ibpulse.workbench.reports.span import ReportOptions
from ibpulse.workbench.simulate.workloads import Constant
from tests.perfetto_reader import read_trace
from tests.virtual.node import Node

HALF = {"congested": {"mlx5_2": 0.02}, "trained-down": ["mlx5_1"]}
METRIC = "transmit_limit_seconds_total"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Two rails at their usual rate, then one whose link trained down, and one that waits."""
    flags = ("--capture.allow-unauthenticated=true",)
    with Node(tmp_path, *flags, rails=4, workload=Constant(45e9)) as node:
        node.run(20)
        node.fault(HALF)
        node.run(12)
        yield node


def letters(answer: dict[str, Any], port: str) -> str:
    (strip,) = (each["strip"] for each in answer["ports"] if each["port"] == f"{port}:1")
    return str(strip)


def test_signs_of_a_span(node: Node) -> None:
    found = node.get("/api/v1/limits", last="5s")
    assert (found["bin_ms"], found["bins"]) == (100, 50)
    assert {port["port"] for port in found["ports"]} == {f"mlx5_{n}:1" for n in range(4)}
    assert set(letters(found, "mlx5_0")) == {"="}
    assert set(letters(found, "mlx5_1")) == {"k"}
    assert list(found["legend"]) == list(LETTERS)
    link, unknown = (limit["text"] for limit in found["limits"])
    assert link == (
        "25 % of the communication shows signs of the link on mlx5_1:1: at what the link is trained down to"
    )
    assert unknown == "75 % is unknown: 75 % at the usual peak"
    assert sum(limit["share"] for limit in found["limits"]) == pytest.approx(1)


def test_counted_seconds_are_those_of_the_spans(node: Node) -> None:
    metrics = node.metrics()
    assert metrics.port(METRIC, "mlx5_1", sign="link") > 5
    # a sign that has not occurred has no series
    assert not metrics.find(f"ibpulse_port_{METRIC}", device="mlx5_0", port="1", sign="link")
    assert metrics.port(METRIC, "mlx5_0", sign="usual-peak") > 25


def test_a_port_that_vanished_has_no_seconds(node: Node) -> None:
    node.vanish("mlx5_3")
    node.run(6)
    assert not node.metrics().find(f"ibpulse_port_{METRIC}", device="mlx5_3")
    totals = LimitTotals(node.daemon.node.reader, PortHistory(), AggregatorOptions())
    totals.peaks["mlx5_9:1"] = 1e9
    totals.count([], np.zeros(0, dtype=np.intp), PortTable(1, 1), 0, 15)
    assert not totals.peaks


def test_a_capture_has_the_signs_of_the_node(node: Node, tmp_path: Path) -> None:
    node.post("/api/v1/captures", {"before": "10s", "after": "1s"})
    node.run(10)
    (path,) = node.captures.glob("*.parquet")
    run = describe_run(path, load(path), ReportOptions(resamples=0))
    assert "link" in {limit.sign for limit in run.limits}
    recording = load(path)
    assert {port.name for port in find_recorded_signs(recording, range(4), 1e8)} == {f"mlx5_{n}:1" for n in range(4)}
    tracks = read_trace(b"".join(write_trace([TracedNode(recording.meta, [recording])])))
    signs = {path[-1]: {name for name, _, _ in track.slices} for path, track in tracks.items() if "signs" in path[-1]}
    assert "link" in signs["signs of limits, mlx5_1:1"]
