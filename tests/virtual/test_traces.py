"""Traces for Perfetto of a daemon, and of a job of a gateway over four nodes whose clocks differ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import ibpulse
from ibpulse.base.errors import DaemonError
from ibpulse.core.client.connection import DaemonConnection
from ibpulse.core.recordings.perfetto import write_trace
from ibpulse.workbench.fleet import traces
from ibpulse.workbench.recorder.from_daemon import fetch_recent
from ibpulse.workbench.reports.span import ReportOptions
from tests.docs.pages import ROOT
from tests.perfetto_reader import Track, read_trace
from tests.virtual.fleet import Fleet

JOB = "1001"
SECOND = 10**9


class FleetTransport(httpx.BaseTransport):
    """Blocking requests to the applications of a fleet."""

    def __init__(self, fleet: Fleet, **_: Any) -> None:
        self._fleet = fleet

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        found = self._fleet.loop.run_frozen(self._fleet.transport.handle_async_request(request))
        content = self._fleet.loop.run_frozen(found.aread())
        return httpx.Response(found.status_code, headers=found.headers, stream=httpx.ByteStream(content))


@pytest.fixture(scope="module")
def fleet(shared_folder: Path) -> Iterator[Fleet]:
    with Fleet(shared_folder, 4, straggler=2, rails=2, workload="dense") as made:
        made.run(12)
        yield made


@pytest.fixture(autouse=True)
def _connected(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    made = partial(DaemonConnection, make_transport=partial(FleetTransport, fleet))
    for module in ("fleet.traces", "recorder.from_daemon", "python.node"):
        monkeypatch.setattr(f"ibpulse.workbench.{module}.DaemonConnection", made)


def traced(*sources: str, job: str = "", seconds: int = 5) -> dict[tuple[str, ...], Track]:
    nodes = traces.open_sources(sources, job, ReportOptions(), 0, seconds * SECOND)
    return read_trace(b"".join(write_trace(nodes)))


def test_a_daemon_gives_what_its_window_has() -> None:
    tracks = traced("http://node-1", seconds=4)
    recording = fetch_recent("http://node-1", 4 * SECOND)
    for row, port in enumerate(recording.meta.ports):
        samples = tracks[recording.meta.host, str(port.id), f"{port.id} receive"].samples
        assert [time for time, _ in samples[:-1]] == (recording.time_ns() - 10_000_000).tolist()
        found = np.array([value for _, value in samples[:-1]]) * 1e9
        np.testing.assert_allclose(found, recording.bytes_per_second[row, 1], rtol=0, atol=1)
        assert math.isnan(samples[-1][1])


def test_a_job_has_its_nodes_and_their_steps(fleet: Fleet) -> None:
    tracks = traced("http://gateway", job=JOB, seconds=8)
    nodes = {path[0] for path in tracks}
    assert nodes == {"node-0", "node-1", "node-2", "node-3"}
    for node in nodes:
        assert tracks[node, f"job {JOB}"].slices
        assert tracks[node, "bursts"].slices
        assert {path[1] for path in tracks if path[0] == node and len(path) == 3} == {"mlx5_0:1", "mlx5_1:1"}


def test_jobs_that_do_not_exist_are_named() -> None:
    with pytest.raises(DaemonError, match="job '7' of http://gateway:10055: not known; it has 1001"):
        traced("http://gateway", job="7")


def test_the_python_api_has_the_nodes_of_a_job(tmp_path: Path) -> None:
    """And its example in the documentation runs."""
    page = (ROOT / "docs/python.md").read_text().partition("has the nodes of a job:\n\n```python\n")[2]
    example = page.partition("```")[0].replace("4711", JOB).replace("node7", "node-2")
    exec(example.replace("job.png", str(tmp_path / "job.png")), {"ibpulse": ibpulse})
    assert (tmp_path / "job.png").stat().st_size > 10_000
    with ibpulse.connect("http://gateway").job(JOB) as job:
        assert list(job) == ["node-0", "node-1", "node-2", "node-3"]
        windows = job.window("2s")
        assert {name: samples.node for name, samples in windows.items()} == {name: name for name in job}
        recording = fetch_recent("http://node-2", 2 * SECOND)
        both = np.intersect1d(windows["node-2"].recording.time_ns(), recording.time_ns(), return_indices=True)[1:]
        found, expected = (
            each.bytes_per_second[..., places]
            for each, places in zip((windows["node-2"].recording, recording), both, strict=True)
        )
        assert len(both[0]) > 150
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert {name: summary["job"]["job_id"] for name, summary in job.summary("2s").items()} == dict.fromkeys(
            job, JOB
        )
        assert job["node-1"].ports().ports[0].name == "mlx5_0:1"
    with pytest.raises(ibpulse.IbpulseError, match=r"is a gateway, not a daemon; for a node use .*/node/node-0"):
        ibpulse.connect("http://gateway").window()
    with pytest.raises(ibpulse.IbpulseError, match="http://node-1:10055 is a daemon, not a gateway"):
        ibpulse.connect("http://node-1").job(JOB)
