"""The writing process, without a daemon around it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.flightrecorder.writer import ROWS_AT_ONCE, Job
from ibpulse.core.events import Event
from ibpulse.core.jobs import Claim, Holding, JobRecord, PlacedJob
from ibpulse.core.model import PortIdentity, PortState
from ibpulse.core.recordings import RecordedPort, RecordingMeta, load, scan
from tests.aggregator.rings import Ring, constant, port
from tests.running import HANG_SECONDS

PORT = RecordedPort("mlx5_0", 1, 50e9, rail=False, source="words", identity=PortIdentity(guid="b8ce:f603:00aa:bb00"))
EVENT = Event(10**18, "link-down", "mlx5_0:1", "The link went down.", before=PortState("ACTIVE", active=True))
OWNER = PlacedJob(Claim("42", "slurm", "file", "Ω"), (PORT.id,), "alone")
META = RecordingMeta(
    "node7",
    10_000_000,
    (PORT,),
    "capture",
    labels={"a": "Ω"},
    trigger_ns=10**18,
    events=(EVENT,),
    events_left_out=3,
    jobs=(JobRecord(OWNER, 10**17, 5, holdings=(Holding(OWNER.ports),)),),
    jobs_left_out=2,
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), seconds=10)
    ring.write("mlx5_0:1", (constant(1e9), constant(2e9)), 1, 500)
    return Job(ring.file.path, tmp_path / "a.parquet", 101, 200, 10**18, META)


def write(job: Job) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ibpulse.agent.flightrecorder.writer", str(int(HANG_SECONDS))]
    return subprocess.run(command, input=job.dump(), capture_output=True, check=False)


@pytest.mark.real("process")
def test_a_job_becomes_a_file(job: Job) -> None:
    ended = write(job)
    assert (ended.returncode, ended.stderr) == (0, b"")
    capture = load(job.path)
    assert (capture.meta, capture.start_ns, capture.ticks) == (META, 10**18, 100)
    np.testing.assert_allclose(capture.bytes_per_second[0, 1], 2e9)


@pytest.mark.real("process")
def test_a_long_capture_is_written_piece_by_piece(job: Job) -> None:
    long = dataclasses.replace(job, first_tick=1, last_tick=2 * ROWS_AT_ONCE + 1)
    assert write(long).returncode == 0
    assert [piece.ticks for piece in scan(job.path)] == [ROWS_AT_ONCE, ROWS_AT_ONCE, 1]


@pytest.mark.real("process")
def test_a_writer_imports_nothing_that_it_can_do_without(job: Job) -> None:
    script = (
        f"import sys; from ibpulse.agent.flightrecorder.writer import main; "
        f"main(['{HANG_SECONDS:.0f}']); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], input=job.dump(), capture_output=True, check=True)
    assert job.path.exists()
    assert {"pydantic", "fastapi", "asyncio", "pandas", "yaml", "prometheus_client"}.isdisjoint(
        done.stdout.decode().split()
    )


@pytest.mark.real("process")
def test_an_error_is_one_sentence(job: Job, tmp_path: Path) -> None:
    ended = write(Job(tmp_path / "missing", job.path, 1, 2, 0, META))
    assert ended.returncode == 1
    assert b"missing cannot be opened: No such file or directory" in ended.stderr
