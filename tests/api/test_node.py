"""What a daemon says and what arrives in Python is the same."""

from __future__ import annotations

import re
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import orjson
import pytest

import ibpulse
from ibpulse.core.client.connection import DaemonConnection
from tests.api.places import Places


def test_a_window_is_the_same_as_over_http(places: Places) -> None:
    with ibpulse.connect(places.url) as node:
        samples = node.window("1s", ports=["mlx5_1"])
    begin, end = (str(samples.recording.start_ns // 1_000_000 + place) for place in (0, 1000))
    query = [("from", begin), ("to", end), ("port", "mlx5_1"), ("statistic", "mean")]
    answer = orjson.loads(DaemonConnection(places.url).get("/api/v1/window", query).body)
    told = np.array([series["values"] for series in answer["series"]], dtype=np.float64)
    assert samples.simulated
    assert np.allclose(samples.bytes_per_second[0], told, equal_nan=True, rtol=1e-6)
    assert ~np.isnan(told).all()


def test_a_stream_has_every_sample_once(places: Places) -> None:
    with ibpulse.connect(places.url) as node:
        pieces = list(islice(node.stream(), 4))
    assert all(one.end == other.start for one, other in pairwise(pieces))
    assert all(len(piece) for piece in pieces)


def test_a_long_window_is_asked_for_in_parts(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    with ibpulse.connect(places.url) as node:
        whole = node.window("1s")
        monkeypatch.setattr("ibpulse.workbench.recorder.from_daemon.MAX_VALUES", 8 * 30)
        parts = node.window(start=f"{whole.start.isoformat()}", end=f"{whole.end.isoformat()}")
    assert np.array_equal(whole.bytes_per_second, parts.bytes_per_second, equal_nan=True)


def test_a_capture_is_taken_and_saved(places: Places, tmp_path: Path) -> None:
    path = tmp_path / "capture.parquet"
    with ibpulse.connect(places.url) as node:
        samples = node.capture("from a test", before="1s", after="10ms", labels={"why": "test"}, path=path)
    assert samples.recording.meta.labels["why"] == "test"
    assert samples.recording.meta.reason == "from a test"
    again = ibpulse.read(path)
    assert isinstance(again, ibpulse.SampledRates)
    assert again.recording == samples.recording


def test_a_refusal_says_what_the_daemon_said(places: Places) -> None:
    with ibpulse.connect(places.url) as node:
        with pytest.raises(ibpulse.IbpulseError, match="No such job: '77'"):
            node.summary(job="77")
        with pytest.raises(ibpulse.IbpulseError, match="it refuses with 422: before"):
            node.capture(before="9h")
        with pytest.raises(ValueError, match="the newest sample is of"):
            node.window(start="2261-01-01T00:00:00Z")
        with pytest.raises(ValueError, match="last cannot be combined"):
            node.summary("1m", end="2261-01-01T00:00:00Z")


def test_answers_become_tables_and_flat_numbers(places: Places) -> None:
    with ibpulse.connect(places.url) as node:
        events, summary, jobs = node.events(), node.summary("1s"), node.jobs()
    assert events.to_arrow().schema.field("time").type.tz == "UTC"
    assert events.to_pandas()["kind"].tolist() == [event.kind for event in events]
    assert summary.to_arrow().column("transmit_mean_bytes_per_second").to_pylist()[0] > 0
    assert len(jobs.to_pandas()) == len(jobs) == 0
    with ibpulse.connect(places.url) as node:
        summary = node.summary("2s")
    numbers = summary.flat("net/")
    assert numbers["net/transmit_bytes_per_second"] == summary.node["transmit_bytes_per_second"]
    assert numbers["net/burstiness_cv_10ms"] == summary.node["burstiness_cv"]["10ms"]
    port = summary.ports[1]
    assert numbers["net/mlx5_1.1/receive_peak_bytes_per_second"] == port["receive"]["peak_bytes_per_second"]
    assert numbers["net/mlx5_1.1/rail"] == 1.0
    assert all(type(number) is float for number in numbers.values())
    # MLflow allows no other characters
    assert all(re.fullmatch(r"[\w. /-]+", name) for name in numbers)
