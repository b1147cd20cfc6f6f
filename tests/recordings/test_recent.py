"""The last seconds of a daemon as a recording: as far back as its history goes, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ibpulse.errors import DaemonError, RecordingError
from ibpulse.recordings.from_daemon import fetch_recent
from tests.client.servers import Canned, canned
from tests.fleet.small_answers import PORT, events_of, jobs_of, port_of, ports_of, state_of


@pytest.fixture
def server() -> Iterator[Canned]:
    with canned() as state:
        port = port_of(identity={**PORT["identity"], "link_layer": "InfiniBand"})
        state.answer("/api/v1/ports", ports_of(port, simulated=True))
        state.answer("/api/v1/jobs", jobs_of())
        state.answer("/api/v1/events", events_of())
        yield state


def answer(server: Canned, values: np.ndarray) -> None:  # type: ignore[type-arg]
    """A window from 100 s to 110 s; the port sends and receives the same."""
    server.answer_window(np.stack([values, values]), start_ms=100_000, history={"oldest_ms": 0, "newest_ms": 110_000})


def test_the_last_seconds_without_what_is_before_the_history(server: Canned) -> None:
    values = np.arange(1001.0)
    values[:300] = np.nan
    values[500] = np.nan
    answer(server, values)
    recording = fetch_recent(server.url, 10 * 10**9)
    assert recording.start_ns == 103_000_000_000
    assert recording.bytes_per_second[0, 0, :3].tolist() == [300, 301, 302]
    assert np.isnan(recording.bytes_per_second[0, 0, 200])
    assert recording.meta.simulated
    asked = next(path for path, _ in server.asked if "from=" in path)
    # 10 s before the newest settled sample
    begin_ms = int(asked.partition("from=")[2].partition("&")[0])
    assert 99_000 < begin_ms < 100_010


def test_it_has_the_events_and_jobs_of_its_span_and_ports_as_of_its_beginning(server: Canned) -> None:
    answer(server, np.ones(1001))
    server.answer("/api/v1/ports", ports_of(port_of(state="DOWN", active=False)))
    up, down = state_of(state="ACTIVE", active=True, rail=True), state_of(state="DOWN", rail=True)
    server.answer("/api/v1/events", events_of({"time_ms": 105_000, "before": up, "after": down}))
    server.answer("/api/v1/jobs", jobs_of({"ended_ms": 99_000, "job_id": "6"}, {"ended_ms": 106_000}))
    meta = fetch_recent(server.url, 10 * 10**9).meta
    assert (meta.ports[0].active, meta.ports[0].state) == (True, "ACTIVE")
    assert [event.time_ns for event in meta.events] == [105 * 10**9]
    assert [(job.job.claim.id, job.ended_ns) for job in meta.jobs] == [("7", 106 * 10**9)]


def test_events_that_are_refused_are_left_out(server: Canned, caplog: pytest.LogCaptureFixture) -> None:
    answer(server, np.ones(1001))
    server.answer("/api/v1/events", b"", 403)
    assert fetch_recent(server.url, 10 * 10**9).meta.events == ()
    assert caplog.messages == [f"{server.url}/api/v1/events: it refuses with 403; the events are left out"]


def test_a_history_without_samples_is_refused(server: Canned) -> None:
    answer(server, np.full(1001, np.nan))
    with pytest.raises(RecordingError, match=r"all samples of the last 10 s of http://.* are missing; try again later"):
        fetch_recent(server.url, 10 * 10**9)
    answer(server, np.zeros(0))
    with pytest.raises(DaemonError, match="has no samples of this time yet; try again in some seconds"):
        fetch_recent(server.url, 10 * 10**9)


def test_a_daemon_that_is_not_there_is_refused() -> None:
    with pytest.raises(DaemonError, match="does not answer"):
        fetch_recent("http://127.0.0.1:9", 10**9)
