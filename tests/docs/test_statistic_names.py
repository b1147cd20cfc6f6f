"""The table of docs/traffic.md names each statistic as the views do, and they give the same number."""

from __future__ import annotations

import re
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
ROWS = [
    re.findall(r"`([^`]+)`", line)
    for line in (ROOT / "docs/traffic.md").read_text().partition("## The same statistic in every view")[2].splitlines()
    if re.match(r"\| [^|]+ \| `ibpulse_", line)
]
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


def test_the_table_is_there() -> None:
    assert len(ROWS) == 19
    assert all(len(row) == 3 for row in ROWS)


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
