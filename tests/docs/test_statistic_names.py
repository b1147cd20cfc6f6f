"""Each statistic has the same number in every view, and docs/traffic.md has the names that differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from ibpulse.agent.metrics.page import TABLE, rows_of
from ibpulse.agent.web.stream import describe_second
from ibpulse.workbench.simulate.workloads import DENSE
from tests.aggregator.rings import Ring, port
from tests.docs.pages import ROOT
from tests.reports.recordings import run_of
from tests.reports.test_daemon_agreement import DEVICES, FIRST_TICK, SECONDS, fill, recording_of

Views = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]
ROWS = (
    ("ibpulse_node_transmit_bytes_per_second", "transmit_bytes_per_second", "transmit_bytes_per_second"),
    ("ibpulse_node_receive_bytes_per_second", "receive_bytes_per_second", "receive_bytes_per_second"),
    ("ibpulse_node_bandwidth_peak_bytes_per_second", "bandwidth_peak_bytes_per_second", "peak_bytes_per_second"),
    ("ibpulse_node_line_rate_bytes_per_second", "line_rate_bytes_per_second", "line_bytes_per_second"),
    ("ibpulse_node_bandwidth_peak_utilization_ratio", "bandwidth_peak_utilization_ratio", "peak_utilization_ratio"),
    (
        "ibpulse_node_bandwidth_active_mean_bytes_per_second",
        "bandwidth_active_mean_bytes_per_second",
        "active_mean_bytes_per_second",
    ),
    ("ibpulse_node_bandwidth_peak_to_mean_ratio", "peak_to_mean_ratio", "peak_to_mean_ratio"),
    ("ibpulse_node_duty_cycle_ratio", "duty_cycle_ratio", "duty_cycle_ratio"),
    ("ibpulse_node_burstiness_cv", "burstiness_cv.10ms", "burstiness_cv_10ms"),
    ("ibpulse_node_burst_duration_seconds", "bursts.count", "bursts"),
    ("ibpulse_node_burst_bytes_total", "bursts.mean_bytes", "burst_bytes"),
    ("ibpulse_node_gap_duration_seconds", "gaps.count", "gaps"),
    ("ibpulse_node_step_period_seconds", "step_period_seconds", "step_period_seconds"),
    ("ibpulse_node_step_period_score", "step_period_score", "step_period_score"),
    ("ibpulse_node_rails", "rails", "rails"),
    ("ibpulse_node_active_rails", "active_rails", "active_rails"),
    ("ibpulse_node_rail_fairness_ratio", "rail_fairness_ratio", "fairness_ratio"),
    ("ibpulse_node_workload_signature", "workload_signature", "signature"),
    ("ibpulse_node_workload_signature_confidence_ratio", "workload_signature_confidence", "signature_confidence"),
)
"""The metric, the member of a summary, and the key of a report."""
# the daemon's bins begin elsewhere, and it looks for the period every five seconds only
LOOSE = {"step_period_seconds": 2e-3, "step_period_score": 0.05}
# the daemon has the bytes across missing samples, a recording has not
LOOSE |= dict.fromkeys(("transmit_bytes_per_second", "receive_bytes_per_second", "peak_to_mean_ratio"), 1e-3)


def at(document: Mapping[str, Any], path: str) -> Any:
    for key in path.split("."):
        document = document[key]
    return document


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Views:
    """The node in the summary, in the stream (its window beside the rest), in the report, and the families' names."""
    ring = Ring.create(tmp_path_factory.mktemp("ring"), *(port(f"{device}:1") for device in DEVICES), seconds=90)
    # of an incomplete recording, a report gives fewer
    fill(ring, DENSE, holes=())
    last = FIRST_TICK - 1 + SECONDS * 100
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    snapshot = aggregator.update(ring.fabric, ring.now_after(last // 100))
    assert snapshot.end_tick == last
    summary = aggregator.summarize(ring.fabric.ports, SECONDS, int(ring.reader.wall_ns(np.array([last]))[0]))
    streamed = orjson.loads(describe_second(snapshot).encode_given())["node"]
    report = run_of(recording_of(ring)).values
    families = {row.name: row for row in rows_of(snapshot)}
    return summary.node.model_dump(), streamed | streamed["windows"]["1m"], report, families


def test_names_that_differ_are_on_the_page() -> None:
    page = (ROOT / "docs/traffic.md").read_text().partition("## The same statistic in every view")[2]
    for metric, summary, report in ROWS:
        member = summary.partition(".")[0]
        assert f"_{member}" in metric or member in ("bursts", "gaps", "peak_to_mean_ratio")
        assert report.startswith((member, "burst", "gap")) or f"`{report}`" in page, report


@pytest.mark.parametrize(("metric", "summary", "report"), ROWS, ids=str)
def test_every_view_gives_the_same_number(views: Views, metric: str, summary: str, report: str) -> None:
    in_summary, in_stream, in_report, families = views
    assert metric in {row.name for row in TABLE}
    assert metric in families
    value = at(in_summary, summary)
    assert value is not None
    tolerance = LOOSE.get(summary, 1e-9)
    assert in_report[report] == (value if isinstance(value, str) else pytest.approx(value, rel=tolerance))
    if summary.split(".")[0] not in ("bursts", "gaps", "rail_fairness_ratio"):
        streamed = at(in_stream, summary)
        assert streamed == (value if isinstance(value, str) else pytest.approx(value, rel=tolerance))
