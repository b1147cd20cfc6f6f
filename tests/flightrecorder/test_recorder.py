"""Captures from the request to the file, with a real ring; the wall clock is passed in.

Tests that are marked real have the real writing process, the others write in this one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from ibpulse.agent.config import load as load_settings
from ibpulse.agent.flightrecorder import recorder as recorder_module
from ibpulse.agent.flightrecorder.recorder import WRITER_BYTES, FlightRecorder, KnownPorts, Pending, run_writer
from ibpulse.agent.flightrecorder.store import CaptureOptions
from ibpulse.agent.flightrecorder.triggers import API, Trigger
from ibpulse.agent.flightrecorder.writer import Job, parse_job, write_capture
from ibpulse.agent.jobs.watch import JobsView
from ibpulse.agent.node.node import capture_options
from ibpulse.base import limits
from ibpulse.base.errors import CaptureError, IbpulseError
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.core.events import Event, EventLog
from ibpulse.core.jobs import Claim, PlacedJob, job_details
from ibpulse.core.model import PortId, PortState
from ibpulse.core.recordings import Recording, load
from ibpulse.core.recordings.recording import trace_holdings
from ibpulse.core.ring.layout import H_CREATED_WALL_NS
from ibpulse.workbench.simulate.workloads import ExpertParallel
from tests.aggregator.rings import Ring, constant, port, square, update
from tests.flightrecorder.played import Act, play
from tests.ring.tiny import tiny_tmpfs
from tests.running import HANG_SECONDS

__all__ = ["tiny_tmpfs"]

INTERVAL_NS = 10_000_000
SECOND_NS = 10**9
# the newest tick of the ring is complete at this wall time
NOW_NS = 900 * INTERVAL_NS
CLOCK: Any = SimpleNamespace(time_ns=lambda: NOW_NS)
TRIGGER = Trigger(API, "test", NOW_NS - 2 * SECOND_NS, {"job": "llama"}, 3 * SECOND_NS, SECOND_NS)


async def write_here(job: Job, _: float) -> None:
    """What the writing process does."""
    try:
        write_capture(parse_job(job.dump()))
    except IbpulseError as error:
        raise CaptureError(str(error)) from error


@pytest.fixture(autouse=True)
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("real") is None:
        monkeypatch.setattr(recorder_module, "run_writer", write_here)


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    made = Ring.create(tmp_path, port("mlx5_0:1"), port("mlx5_1:1"), seconds=30)
    for number in range(2):
        traffic = square((number + 1) * 5e9, 20, 30), constant(1e9)
        made.write(f"mlx5_{number}:1", traffic, 1, 900)
    yield made
    del made.reader
    made.file.close()


def make_recorder(
    ring: Ring,
    directory: Path,
    events: EventLog | None = None,
    internal_errors: InternalErrors | None = None,
    jobs: JobsView | None = None,
    **changes: Any,
) -> FlightRecorder:
    given = {"directory": directory, "host": "node7", "min_free_bytes": 0, "writer_seconds": HANG_SECONDS, **changes}
    watch: Any = SimpleNamespace(view=jobs) if jobs else None
    made = FlightRecorder(ring.reader, CaptureOptions(**given), CLOCK, events, internal_errors, watch)
    made.note(update(ring, Aggregator(ring.reader, AggregatorOptions()), 8))
    return made


@pytest.fixture
async def recorder(ring: Ring, tmp_path: Path) -> AsyncIterator[FlightRecorder]:
    made = make_recorder(ring, tmp_path / "captures")
    await made.start()
    yield made
    await made.close()


async def taken(recorder: FlightRecorder, pending: Pending) -> Recording:
    """The capture, once it is whole."""
    await finished(recorder)
    return load(recorder.store.path(pending.name))


async def captured(ring: Ring, tmp_path: Path, events: EventLog | None = None, **changes: Any) -> Recording:
    """The capture of `TRIGGER` by a recorder of its own."""
    recorder = make_recorder(ring, tmp_path / "captures", events, **changes)
    return await taken(recorder, recorder.ask(TRIGGER))


async def finished(recorder: FlightRecorder) -> None:
    while recorder.pending():
        await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name().startswith("capture ")])


@pytest.mark.real("process")
async def test_a_capture_holds_the_ring_around_its_trigger(ring: Ring, recorder: FlightRecorder) -> None:
    capture = await taken(recorder, recorder.ask(TRIGGER))
    ticks = np.arange(401, 801)
    assert capture.time_ns().tolist() == (ticks * INTERVAL_NS).tolist()
    sent = np.where((ticks - 1) % 50 < 20, 10e9, 0.0)
    np.testing.assert_allclose(capture.bytes_per_second[1, 0], sent, rtol=1e-6)
    np.testing.assert_allclose(capture.seconds, 0.01)
    assert (capture.meta.host, capture.meta.source, capture.meta.reason) == ("node7", "capture", "test")
    assert (capture.meta.labels, capture.meta.trigger_ns) == ({"trigger": "api", "job": "llama"}, TRIGGER.instant_ns)
    assert [str(port.id) for port in capture.meta.ports] == ["mlx5_0:1", "mlx5_1:1"]


UP = PortState("ACTIVE", "LinkUp", True, 50e9, True)
DOWN = PortState("DOWN", "Polling", False, 50e9, True)


def changed(ring: Ring, tick: int, subject: str, before: PortState | None, after: PortState | None) -> Event:
    """A change of state that was noticed in the middle of a tick."""
    kind = "link-down" if before == UP else "link-up"
    created = ring.file.words[H_CREATED_WALL_NS]
    return Event((tick * 2 + 1) * INTERVAL_NS // 2, kind, subject, "A.", 0, before, after, {}, tick, created)


async def test_a_capture_has_states_and_their_events(ring: Ring, tmp_path: Path) -> None:
    events = EventLog()
    for name in ("mlx5_0:1", "mlx5_1:1"):
        events.history.begin(name, UP)
    flap = [(100, UP, DOWN), (450, DOWN, UP), (600, UP, DOWN), (850, DOWN, UP)]
    for tick, before, after in flap:
        events.add(changed(ring, tick, "mlx5_1:1", before, after))
    events.add(Event(5 * SECOND_NS, "clock-step", "", "The clock was set."))
    capture = await captured(ring, tmp_path, events)
    assert [event.kind for event in capture.meta.events] == ["link-up", "clock-step", "link-down"]
    assert [port.first_state for port in capture.meta.ports] == [UP, DOWN]
    states = [capture.states.at("mlx5_1:1", tick - 401) for tick in range(401, 801)]
    assert states == [DOWN] * 49 + [UP] * 150 + [DOWN] * 201


def placed(name: str, device: str) -> PlacedJob:
    return PlacedJob(Claim(name, "slurm", "file"), (PortId(device, 1),), "gpus")


def job_event(ring: Ring, tick: int, kind: str, job: PlacedJob, ahead_ns: int = 0) -> Event:
    """An event that was noticed at a tick, by a clock that was so far ahead."""
    created = ring.file.words[H_CREATED_WALL_NS]
    return Event(tick * INTERVAL_NS + ahead_ns, kind, "", "", details=job_details(job), tick=tick, ring=created)


async def test_a_capture_and_its_event_name_the_jobs(ring: Ring, tmp_path: Path) -> None:
    events = EventLog()
    early, first, moved, later = map(placed, ("early", "1", "1", "late"), ("mlx5_0", "mlx5_0", "mlx5_1", "mlx5_0"))
    story = [(100, "job-began", early), (200, "job-began", first), (300, "job-ended", early)]
    story += [(600, "job-change", moved), (790, "job-began", later)]
    for tick, kind, job in story:
        events.add(job_event(ring, tick, kind, job))
    view = JobsView((moved, later))
    recorder = make_recorder(ring, tmp_path / "captures", events, jobs=view)
    pending = recorder.ask(TRIGGER)
    meta = (await taken(recorder, pending)).meta
    # the window has the samples 401 to 800
    assert [(each.job.claim.id, str(each.job.ports[0])) for each in meta.jobs] == [
        ("1", "mlx5_0:1"),
        ("late", "mlx5_0:1"),
    ]
    assert [each.began_ns for each in meta.jobs] == [200 * INTERVAL_NS, 790 * INTERVAL_NS]
    found, at_end = trace_holdings(meta.jobs, meta.events)
    assert [str(each.ports[0]) for each in found.holdings] == ["mlx5_0:1", "mlx5_1:1"]
    assert at_end.holdings[0].since is not None
    # the list takes them from the event log
    assert recorder.jobs_of() == {str(pending.name): meta.jobs}


async def test_jobs_in_the_event_are_bounded(ring: Ring, tmp_path: Path) -> None:
    events, ports = EventLog(), tuple(PortId(f"mlx5_{number}", 1) for number in range(100))
    view = JobsView(tuple(PlacedJob(Claim(str(number), "slurm", "file"), ports, "gpus") for number in range(20)))
    recorder = make_recorder(ring, tmp_path / "captures", events, jobs=view)
    pending = recorder.ask(TRIGGER)
    assert len((await taken(recorder, pending)).meta.jobs) == 20
    (event,) = events.events()
    assert (len(event.details["jobs"]), event.details["jobs_left_out"]) == (16, 4)
    assert {len(each["ports"]) for each in event.details["jobs"]} == {64}
    for damaged in (7, [7], [{"job_id": "../x"}]):
        events.add(replace(event, details={"name": str(pending.name), "jobs": damaged}))
    # the file of this one is gone
    events.add(replace(event, details={**event.details, "name": "gone"}))
    assert {name: len(jobs) for name, jobs in recorder.jobs_of().items()} == {str(pending.name): 16}


@pytest.mark.parametrize(("ahead_seconds", "began"), [(3600, 350), (-3, 50)])
async def test_jobs_and_events_follow_samples_when_the_clock_is_set(
    ring: Ring, tmp_path: Path, ahead_seconds: int, began: int
) -> None:
    events, running, over = EventLog(), placed("1", "mlx5_0"), placed("2", "mlx5_1")
    events.history.begin("mlx5_0:1", UP)
    for tick, kind, job in [(350, "job-began", running), (360, "job-began", over), (500, "job-ended", over)]:
        events.add(job_event(ring, tick, kind, job, ahead_seconds * SECOND_NS))
    late = changed(ring, 700, "mlx5_0:1", UP, DOWN)
    events.add(replace(late, time_ns=late.time_ns + ahead_seconds * SECOND_NS))
    capture = await captured(ring, tmp_path, events, jobs=JobsView((running,)))
    one, other = capture.meta.jobs
    assert (one.job, other.job) == (running, over)
    # a begin before the capture keeps its time if that is before the capture too
    assert (one.began_ns, one.ended_ns) == (began * INTERVAL_NS, None)
    assert other.ended_ns == 500 * INTERVAL_NS
    assert capture.meta.events[-1].time_ns == 700 * INTERVAL_NS
    assert capture.states.at("mlx5_0:1", 299) == DOWN


async def test_unknown_jobs_are_not_no_jobs(ring: Ring, tmp_path: Path) -> None:
    for view, expected in ((JobsView(), False), (JobsView(()), True)):
        recorder = make_recorder(ring, tmp_path / str(expected), EventLog(), jobs=view)
        await taken(recorder, recorder.ask(TRIGGER))
        assert bool(recorder.jobs_of()) is expected


async def test_ports_may_appear_and_disappear_within_a_capture(ring: Ring, tmp_path: Path) -> None:
    events = EventLog()
    events.add(changed(ring, 500, "mlx5_0:1", None, UP))
    events.history.begin("mlx5_1:1", UP)
    events.add(changed(ring, 700, "mlx5_1:1", UP, None))
    capture = await captured(ring, tmp_path, events)
    assert [port.first_state for port in capture.meta.ports] == [UP, UP]
    assert [capture.states.at("mlx5_0:1", tick - 401) for tick in (499, 500)] == [None, UP]
    assert [capture.states.at("mlx5_1:1", tick - 401) for tick in (699, 700)] == [UP, None]


async def test_a_stored_capture_is_an_event(ring: Ring, tmp_path: Path) -> None:
    events = EventLog()
    recorder = make_recorder(ring, tmp_path / "captures", events)
    name = recorder.ask(TRIGGER).name
    assert events.events() == ()
    await finished(recorder)
    (event,) = events.events()
    assert (event.kind, event.subject, event.time_ns, event.tick) == ("capture", "", TRIGGER.instant_ns, 700)
    labels = {"trigger": "api", "job": "llama"}
    assert event.details == {"name": str(name), "reason": "test", "labels": labels}
    recorder.ask(replace(TRIGGER, labels={"text": "x" * 3000}))
    await finished(recorder)
    assert events.events()[-1].details["labels"] == {"trigger": "api"}


@pytest.mark.parametrize(("flags", "host"), [({}, socket.gethostname()), ({"capture.node": ["gpu7,gpu7.ib"]}, "gpu7")])
async def test_the_host_of_a_capture_comes_from_the_settings(
    ring: Ring, tmp_path: Path, flags: dict[str, list[str]], host: str
) -> None:
    given = {"capture.dir": [str(tmp_path / "captures")], "capture.min-free": ["0B"], **flags}
    options = capture_options(load_settings(given, {}))
    recorder = FlightRecorder(ring.reader, options, CLOCK)
    recorder.note(update(ring, Aggregator(ring.reader, AggregatorOptions()), 8))
    capture = await taken(recorder, recorder.ask(TRIGGER))
    assert capture.meta.host == host


async def test_a_capture_waits_for_the_end_of_its_window(
    recorder: FlightRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def wait_for(awaited: Coroutine[Any, Any, object], seconds: float) -> None:
        awaited.close()
        waited.append(seconds)
        raise TimeoutError

    monkeypatch.setattr(asyncio, "wait_for", wait_for)
    pending = recorder.ask(replace(TRIGGER, instant_ns=NOW_NS, after_ns=SECOND_NS // 2))
    assert recorder.pending() == [pending]
    assert recorder.counts().stored == 0
    await finished(recorder)
    # and for the ticks that the sampler may still be writing
    (seconds,) = waited
    assert 0.5 < seconds < 0.6
    assert recorder.counts().stored == 1


async def test_a_trigger_without_a_window_uses_the_settings(ring: Ring, tmp_path: Path) -> None:
    recorder = make_recorder(ring, tmp_path / "captures", before_ns=2 * SECOND_NS, after_ns=0)
    capture = await taken(recorder, recorder.ask(replace(TRIGGER, before_ns=None, after_ns=None)))
    assert (capture.ticks, capture.end_ns) == (200, TRIGGER.instant_ns + INTERVAL_NS)


async def test_a_repeated_request_gets_the_same_capture(recorder: FlightRecorder) -> None:
    pending = recorder.ask(TRIGGER)
    assert recorder.ask(replace(TRIGGER, instant_ns=TRIGGER.instant_ns + 1)) is pending
    others = [
        replace(TRIGGER, reason="other"),
        replace(TRIGGER, labels={}),
        replace(TRIGGER, instant_ns=TRIGGER.instant_ns + 2 * SECOND_NS),
    ]
    assert {recorder.ask(other) for other in others} == set(recorder.pending()) - {pending}


async def test_a_thousand_requests_start_only_a_few_captures(recorder: FlightRecorder) -> None:
    accepted, refused = [], []
    for number in range(1000):
        try:
            accepted.append(recorder.ask(replace(TRIGGER, labels={"number": str(number)})))
        except CaptureError as error:
            refused.append(error)
    assert (len(accepted), len(refused)) == (4, 996)
    assert all(error.busy for error in refused)
    assert str(refused[0]) == "4 captures are already pending, which is the maximum; try again in a few seconds"
    await finished(recorder)
    assert len(await recorder.refresh()) == 4
    assert dict(recorder.counts().taken)["api"] == 4


async def test_the_counts_are_those_of_the_directory(recorder: FlightRecorder) -> None:
    assert recorder.counts().newest_seconds is None
    pending = recorder.ask(TRIGGER)
    await finished(recorder)
    counts = recorder.counts()
    path = recorder.store.path(pending.name)
    assert (counts.stored, counts.stored_bytes, counts.errors) == (1, path.stat().st_size, 0)
    assert counts.newest_seconds == TRIGGER.instant_ns / SECOND_NS
    assert await recorder.remove(pending.name)
    assert recorder.counts().stored == 0


async def test_shutdown_writes_pending_captures(ring: Ring, recorder: FlightRecorder) -> None:
    pending = recorder.ask(replace(TRIGGER, after_ns=600 * SECOND_NS))
    await recorder.close()
    capture = load(recorder.store.path(pending.name))
    assert capture.end_ns == NOW_NS - INTERVAL_NS
    with pytest.raises(CaptureError, match="are already pending, which is the maximum"):
        recorder.ask(TRIGGER)


async def test_shutdown_gives_up_on_a_capture_that_takes_too_long(
    ring: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(recorder_module, "CLOSE_SECONDS", 0.01)
    monkeypatch.setattr(recorder_module, "run_writer", hang)
    recorder = make_recorder(ring, tmp_path / "captures")
    recorder.ask(TRIGGER)
    await recorder.close()
    assert recorder.counts().errors == 1
    assert "failed: the daemon stopped before it was written" in caplog.text
    assert list((tmp_path / "captures").glob("*")) == []


async def test_no_capture_begins_without_room_for_its_writer(
    ring: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_module, "run_writer", run_writer)
    monkeypatch.setattr(limits, "left_in_cgroups", lambda: WRITER_BYTES - 1_000_000)
    recorder = make_recorder(ring, tmp_path / "captures")
    pending = recorder.ask(TRIGGER)
    await recorder.close()
    assert (recorder.counts().errors, recorder.counts().stored) == (1, 0)
    assert caplog.messages == [
        f"capture {pending.name} failed: only 35 MB are left of the memory limit of this service, and its writer needs "
        "36 MB; raise the limit"
    ]


@pytest.mark.real("process")
async def test_the_kernel_kills_the_writer_first(recorder: FlightRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder.ask(TRIGGER)
    scores: list[str] = []
    communicate = Process.communicate

    async def look(self: Process, given: bytes) -> tuple[bytes, bytes]:
        # it waits for its job, so it is there
        scores.append(Path(f"/proc/{self.pid}/oom_score_adj").read_text())
        return await communicate(self, given)

    monkeypatch.setattr(Process, "communicate", look)
    await finished(recorder)
    assert scores == ["1000\n"]
    assert Path("/proc/self/oom_score_adj").read_text() != "1000\n"
    assert recorder.counts().stored == 1


@pytest.mark.real("process")
async def test_a_writer_that_takes_too_long_is_killed(
    ring: Ring, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = make_recorder(ring, tmp_path / "captures", writer_seconds=0.01)
    recorder.ask(TRIGGER)
    await finished(recorder)
    assert recorder.counts().errors == 1
    assert (
        "failed: writing it took longer than 0.01 s; is the disk of capture.dir slow, or the machine busy?"
        in caplog.text
    )
    assert list((tmp_path / "captures").iterdir()) == []


async def test_an_unexpected_exception_is_counted_and_logged(
    ring: Ring, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a bug would be: the threads for the disk are gone."""
    errors = InternalErrors()
    recorder = make_recorder(ring, tmp_path / "captures", internal_errors=errors)
    await recorder.start()
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    recorder.threads = ended  # type: ignore[assignment]
    recorder.ask(TRIGGER)
    await finished(recorder)
    assert errors.counts()["captures"] == recorder.counts().errors == 1
    assert "RuntimeError: cannot schedule new futures after shutdown; retrying" in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.real("process")
async def test_a_disk_that_fills_up_fails_one_capture(
    ring: Ring, tiny_tmpfs: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = make_recorder(ring, tiny_tmpfs / "captures")
    monkeypatch.setattr(recorder_module, "BYTES_PER_ROW", 0)
    await recorder.start()
    fill(tiny_tmpfs / "other")
    recorder.ask(TRIGGER)
    await finished(recorder)
    assert recorder.counts().errors == 1
    assert "cannot be written: No space left on device; free some space or choose another file" in caplog.text
    assert list((tiny_tmpfs / "captures").iterdir()) == []


def fill(path: Path) -> None:
    """Take the last byte of a small file system."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass


async def test_an_impossible_directory_is_logged_at_every_capture(
    ring: Ring, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    recorder = make_recorder(ring, tmp_path / "file" / "captures")
    with caplog.at_level(logging.WARNING):
        await recorder.start()
        assert "captures cannot be taken: capture.dir:" in caplog.text
        recorder.ask(TRIGGER)
        await finished(recorder)
    assert "failed: capture.dir:" in caplog.text
    assert recorder.counts().errors == 1


async def test_without_samples_or_ports_nothing_is_captured(
    ring: Ring, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = EventLog()
    recorder = make_recorder(ring, tmp_path / "captures", events)
    recorder.ask(replace(TRIGGER, instant_ns=NOW_NS + 10 * SECOND_NS, before_ns=SECOND_NS))
    await recorder.close()
    assert "failed: the ring holds no samples for the capture's window" in caplog.text
    assert events.events() == ()
    (tmp_path / "empty").mkdir()
    recorder = make_recorder(Ring.create(tmp_path / "empty", seconds=10), tmp_path / "captures")
    with pytest.raises(CaptureError, match="no port is sampled, so there is nothing to capture"):
        recorder.ask(TRIGGER)


async def test_without_pyarrow_the_error_explains_how_to_install_it(
    recorder: FlightRecorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CaptureError, match=r"need pyarrow; install with `"):
        recorder.ask(TRIGGER)
    await recorder.start()
    assert "captures cannot be taken: captures are Parquet files, which need pyarrow" in caplog.text


@pytest.mark.real("process")
async def test_a_writer_that_cannot_be_started_is_an_error(
    recorder: FlightRecorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/missing/python")
    recorder.ask(TRIGGER)
    await finished(recorder)
    assert "cannot start its writer: No such file or directory" in caplog.text


@pytest.mark.real("process")
async def test_a_ring_that_was_deleted_is_captured_all_the_same(ring: Ring, recorder: FlightRecorder) -> None:
    ring.file.path.unlink()
    pending = recorder.ask(TRIGGER)
    await finished(recorder)
    assert load(recorder.store.path(pending.name)).ticks > 0


WORKLOAD = ExpertParallel()


def test_a_down_port_keeps_its_last_rate(tmp_path: Path) -> None:
    book = KnownPorts(10_000)
    for snapshot in play(tmp_path, Act(WORKLOAD, 5), Act(WORKLOAD, 5, down=(2,))):
        book.update(snapshot)
    ports = {port.device: port for port in book.since(1)}
    assert len(ports) == 8
    assert (ports["mlx5_2"].active, ports["mlx5_2"].state, ports["mlx5_2"].rate_bytes_per_second) == (
        False,
        "DOWN",
        50e9,
    )
    assert (ports["mlx5_0"].active, ports["mlx5_0"].rail, ports["mlx5_0"].source) == (True, True, "words")
    assert (ports["mlx5_0"].stride, ports["mlx5_0"].identity.link_layer) == (1, "InfiniBand")


def test_the_ports_of_a_simulator_are_simulated(tmp_path: Path) -> None:
    book = KnownPorts(10_000)
    for snapshot in play(tmp_path, Act(WORKLOAD, 5)):
        book.update(snapshot)
        assert not book.simulated
        book.update(replace(snapshot, fabric=replace(snapshot.fabric, simulated=True)))
        assert book.simulated


def test_a_lost_port_is_known_while_the_ring_has_it(tmp_path: Path) -> None:
    book = KnownPorts(1000)
    snapshots = list(play(tmp_path, Act(WORKLOAD, 5), Act(WORKLOAD, 20, gone=(2,))))
    for snapshot in snapshots[:10]:
        book.update(snapshot)
    gone = [port for port in book.since(450) if port.device == "mlx5_2"]
    assert [(port.state, port.active) for port in gone] == [("GONE", False)]
    assert len(book.since(501)) == 7
    for snapshot in snapshots[10:]:
        book.update(snapshot)
    assert len(book.since(1)) == 7
