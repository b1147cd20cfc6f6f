"""Jobs that come and go are events, once each."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from ibpulse.agent.jobs.watch import GONE_SECONDS, JobSources, JobWatch
from ibpulse.agent.web.jobs import describe_jobs
from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.log import EventFile
from ibpulse.core.jobs import MAX_JOBS, Claim, Found, trace_jobs
from ibpulse.core.model import Fabric
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.layout import H_CREATED_WALL_NS
from ibpulse.core.ring.reader import RingReader
from tests.clocks import GivenClock
from tests.jobs.test_owners import PAIRS, PORTS
from tests.running import HANG_SECONDS
from tests.web.rings import make_node

SECONDS = 5.0
FABRIC = Fabric(PORTS, topology=PAIRS)
BEGIN_NS = 1_763_683_200 * 10**9


def wait_for(name: str) -> None:
    """Return once no thread of this name runs."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(HANG_SECONDS)


@dataclass
class Node:
    """A watch over one source, which a test sets, and the event log of a daemon that can be started again."""

    directory: Path
    names: bool = False
    now: float = 0.0

    def __post_init__(self) -> None:
        self.found = Found()
        self.clock = GivenClock(lambda: self.now, self.wall_ns)
        self.ring = RingFile.open_or_create(self.directory / "ring", 10_000_000, 30_000)
        if not self.ring.segments():
            self.ring.begin_segment(1, 0)
        self.reader = RingReader(self.ring)
        self.start()

    def wall_ns(self) -> int:
        return BEGIN_NS + round(self.now * 10**9)

    def start(self) -> None:
        """A new daemon, which finds the events of the one before."""
        self.log = EventLog(EventFile(self.directory / "events"))
        self.log.load(self.ring.words[H_CREATED_WALL_NS])
        sources = JobSources({"slurm-map": lambda: self.found}, clock=self.clock)
        self.watch = JobWatch(sources, self.log, self.reader, SECONDS, names=self.names, clock=self.clock)
        self.told = len(self.log.events())

    def restart(self) -> None:
        """The daemon ends, and another one starts."""
        self.log.close()
        self.start()

    def see(self, *claims: Claim) -> list[Event]:
        """The events of a reading that finds these jobs."""
        return self.look(Found(claims))

    def look(self, found: Found, fabric: Fabric = FABRIC) -> list[Event]:
        self.found = found
        self.now += SECONDS
        self.watch.update(fabric)
        wait_for("jobs-slurm-map")
        self.watch.update(fabric)
        fresh = self.log.events()[self.told :]
        self.told = len(self.log.events())
        return list(fresh)


def watch_over(node: Node, found: dict[str, Callable[[], Found]]) -> JobWatch:
    """A watch over sources of these names, which find what is set at the time."""
    sources = JobSources({name: lambda name=name: found[name]() for name in found}, clock=node.clock)
    return JobWatch(sources, node.log, node.reader, SECONDS, clock=node.clock)


def look(node: Node, watch: JobWatch, *answering: str) -> int:
    """The wall time of a reading that these sources answer."""
    node.now += 2 * SECONDS
    watch.update(FABRIC)
    for name in answering:
        wait_for(f"jobs-{name}")
    watch.update(FABRIC)
    return node.wall_ns()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node(tmp_path)
    monkeypatch.setattr(time, "time_ns", made.wall_ns)
    yield made
    made.ring.close()


def job(name: str, *indexes: int) -> Claim:
    return Claim(name, "slurm", "slurm-map", "llama", "team", gpu_indexes=indexes)


def texts(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.kind, event.text) for event in events]


def test_jobs_that_come_and_go_are_events(node: Node) -> None:
    assert node.see() == []
    assert texts(node.see(job("12", 0), job("13", 2))) == [
        ("job-began", "job 12 (slurm) began on a:1"),
        ("job-began", "job 13 (slurm) began on b:1"),
    ]
    assert node.see(job("12", 0), job("13", 2)) == []
    # the one that is left keeps its rails
    assert texts(node.see(job("12", 0))) == [("job-ended", "job 13 (slurm) ended")]
    assert texts(node.see()) == [("job-ended", "job 12 (slurm) ended")]


def test_a_job_that_was_running_when_it_was_first_seen_has_no_known_begin(node: Node) -> None:
    (event,) = node.see(job("12"))
    assert texts([event]) == [("job-began", "job 12 (slurm) was running already on a:1, b:1")]
    assert event.details["running_before"] is True
    (record,) = trace_jobs(node.log.events())
    assert (record.began_ns, record.ended_ns) == (None, None)


def test_an_event_says_when_the_jobs_were_seen_before(node: Node) -> None:
    node.see()
    (event,) = node.see(job("12"))
    assert (event.time_ns, event.uncertainty_ns) == (node.wall_ns(), round(SECONDS * 10**9))
    assert (event.tick, event.ring) == (node.wall_ns() // 10**7, node.ring.words[H_CREATED_WALL_NS])
    assert event.subject == ""


def test_events_describe_the_job_without_names(node: Node) -> None:
    node.see()
    (event,) = node.see(job("12"))
    assert event.details == {
        "job_id": "12",
        "scheduler": "slurm",
        "source": "slurm-map",
        "ports": ["a:1", "b:1"],
        "basis": "alone",
    }
    assert [(job.claim.name, job.claim.namespace) for job in node.watch.view.jobs or ()] == [("", "")]


def test_names_are_shown_where_the_setting_asks_for_them(tmp_path: Path) -> None:
    node = Node(tmp_path, names=True)
    node.see()
    (event,) = node.see(job("12"))
    assert (event.details["name"], event.details["namespace"]) == ("llama", "team")
    assert [(job.claim.name, job.claim.namespace) for job in node.watch.view.jobs or ()] == [("llama", "team")]
    node.ring.close()


def test_a_job_that_runs_across_a_restart_begins_once(node: Node) -> None:
    node.see()
    (began,) = node.see(job("12", 0))
    node.restart()
    assert node.see(job("12", 0)) == []
    (record,) = trace_jobs(node.log.events())
    assert record.began_ns == began.time_ns


def test_a_job_that_ended_while_no_daemon_was_running_ended_within_the_pause(node: Node) -> None:
    node.see()
    (began,) = node.see(job("12", 0))
    node.restart()
    (ended,) = node.see()
    assert texts([ended]) == [("job-ended", "job 12 (slurm) ended")]
    # the last sign of the earlier daemon is that event, and it had read the jobs at most so long before
    assert ended.time_ns - ended.uncertainty_ns == began.time_ns - int(SECONDS + 1) * 10**9


def test_the_jobs_of_the_past_are_always_those_of_the_event_log(node: Node) -> None:
    for found in (Found(), Found((job("12", 0), job("13", 2))), Found((job("13", 2),)), Found(knows=False), Found()):
        node.look(found)
        assert node.watch.view.records == trace_jobs(node.log.events())
    before = node.watch.view.records
    assert [record.job.claim.id for record in before] == ["12", "13"]
    node.restart()
    assert node.watch.view.records == before


def test_a_job_is_not_over_because_its_source_hangs_at_the_start(node: Node, tmp_path: Path) -> None:
    node.see()
    node.see(job("12"))
    node.restart()
    os.mkfifo(tmp_path / "pipe")

    def hang() -> Found:
        (tmp_path / "pipe").read_text()
        return node.found

    sources = JobSources({"slurm-map": hang, "slurm-cgroup": Found}, clock=node.clock)
    watch = JobWatch(sources, node.log, node.reader, 1000.0, clock=node.clock)
    watch.update(FABRIC)
    wait_for("jobs-slurm-cgroup")
    node.now += 6
    watch.update(FABRIC)
    assert watch.view.jobs == ()
    assert watch.view.notices == ("slurm-map: reading it does not return; showing the jobs known before.",)
    (tmp_path / "pipe").write_text("")
    wait_for("jobs-slurm-map")
    watch.update(FABRIC)
    assert [job.claim.id for job in watch.view.jobs or ()] == ["12"]
    assert [event.kind for event in node.log.events()] == ["job-began"]


def test_another_role_of_a_port_changes_the_ports_of_a_job(node: Node) -> None:
    node.see()
    node.see(job("12"))
    fewer = Fabric(tuple(port for port in PORTS if port.id.device != "b"), topology=PAIRS)
    assert texts(node.look(Found((job("12"),)), fewer)) == [("job-change", "job 12 (slurm) is on a:1")]


def test_remarks_are_notices_and_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        node.look(Found((job("12", 9), job("13")), ("a remark.",)))
    expected = ("a remark.", "job 12: it holds GPU 9, which this node does not have.")
    assert node.watch.view.notices == expected
    assert [record.message for record in caplog.records] == list(expected)


def test_a_job_is_not_over_because_its_directory_may_not_be_read(node: Node) -> None:
    node.see()
    node.see(job("12", 0))
    watch = watch_over(node, {"slurm-map": lambda: node.found, "slurm-cgroup": Found})
    for found in (Found(knows=False), Found(whole=False), Found((job("12", 0),))):
        node.found = found
        look(node, watch, "slurm-map", "slurm-cgroup")
    assert [each.claim.id for each in watch.view.jobs or ()] == ["12"]
    assert [event.kind for event in node.log.events()] == ["job-began"]


def test_no_job_ends_while_listings_are_cut_short(node: Node) -> None:
    node.see(job("12", 0), job("13", 1))
    whole_ns = node.wall_ns()
    assert node.look(Found((job("12", 0),), whole=False, cut=True)) == []
    assert [each.claim.id for each in node.watch.view.jobs or ()] == ["12"]
    # when it began is as uncertain as for how long the listing was cut
    (began,) = node.look(Found((job("11", 2), job("12", 0)), whole=False, cut=True))
    assert (began.details["job_id"], began.time_ns - began.uncertainty_ns) == ("11", whole_ns)
    # it was among those that were not listed
    assert node.see(job("11", 2), job("12", 0), job("13", 1)) == []
    (ended,) = node.see(job("11", 2), job("12", 0))
    assert (ended.kind, ended.details["job_id"]) == ("job-ended", "13")


def test_the_jobs_beyond_the_most_of_a_node_do_not_end(node: Node) -> None:
    node.see(*(job(str(number)) for number in range(MAX_JOBS)))
    assert {event.kind for event in node.see(*(job(str(number)) for number in range(-1, MAX_JOBS)))} <= {"job-began"}


def test_a_job_of_a_source_that_no_daemon_read_before_has_no_known_begin(node: Node) -> None:
    node.see()
    node.see(job("12", 0))
    node.restart()
    flux = Found((Claim("f", "flux", "file"),))
    watch = watch_over(node, {"slurm-map": lambda: Found((job("12", 0), job("13", 2))), "file": lambda: flux})
    look(node, watch, "slurm-map", "file")
    found = {event.details["job_id"]: "running_before" in event.details for event in node.log.events()}
    assert found == {"12": False, "13": False, "f": True}


def test_a_source_that_hangs_makes_no_begin_of_another_one_uncertain(node: Node, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    flux = Found((Claim("f", "flux", "file"),))
    found: dict[str, Callable[[], Found]] = {"slurm-map": Found, "file": Found}
    watch = watch_over(node, found)

    def hang() -> Found:
        (tmp_path / "pipe").read_text()
        return flux

    before_hang = look(node, watch, "slurm-map", "file")
    found["file"] = hang
    look(node, watch, "slurm-map")
    seen = look(node, watch, "slurm-map")
    found["slurm-map"] = lambda: Found((job("12"),))
    look(node, watch, "slurm-map")
    (tmp_path / "pipe").write_text("")
    wait_for("jobs-file")
    found["file"] = lambda: flux
    look(node, watch, "slurm-map", "file")
    earliest = {(each.kind, each.details["job_id"]): each.time_ns - each.uncertainty_ns for each in node.log.events()}
    # the reading before was the last one that did not find the job
    assert earliest.pop(("job-began", "12")) == seen
    # since the other one began it has not been alone
    assert earliest.keys() == {("job-began", "f"), ("job-change", "12")}
    assert set(earliest.values()) == {before_hang}


def test_a_job_whose_cgroup_is_gone_ended_after_the_last_reading_that_saw_it(node: Node) -> None:
    found: dict[str, Callable[[], Found]] = {
        "slurm-map": lambda: Found((job("12", 0),)),
        "slurm-cgroup": lambda: Found((Claim("12", "slurm", "slurm-cgroup"),)),
    }
    watch = watch_over(node, found)
    seen = look(node, watch, *found)
    found["slurm-cgroup"] = Found
    look(node, watch, *found)
    node.now += GONE_SECONDS
    look(node, watch, *found)
    _, ended = node.log.events()
    assert ended.kind == "job-ended"
    assert ended.time_ns - ended.uncertainty_ns == seen


def test_only_the_first_notices_are_shown_and_logged(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.look(Found((job("12"),), tuple(f"remark {number}." for number in range(300))))
    shown = node.watch.view.notices
    assert (len(shown), shown[-1]) == (65, "there are 236 more notices about jobs.")
    assert [record.message for record in caplog.records] == list(shown)


def test_nothing_is_read_more_often_than_asked_for(node: Node) -> None:
    calls: list[float] = []

    def count() -> Found:
        calls.append(node.now)
        return Found()

    watch = watch_over(node, {"file": count})
    for _ in range(21):
        watch.update(FABRIC)
        wait_for("jobs-file")
        node.now += 1.0
    assert calls == [0.0, 5.0, 10.0, 15.0, 20.0]


def test_the_route_has_running_jobs_then_those_that_ended_within_the_history(tmp_path: Path, node: Node) -> None:
    for claims in ((), (job("12", 0, 2),), (), (job("13"), job("14", 3))):
        node.see(*claims)
    (tmp_path / "web").mkdir()
    ring = make_node(tmp_path / "web")

    def listed(wall_ns: int) -> list[tuple[str, bool, list[str]]]:
        parts = ring.parts(events=node.log, jobs=lambda: node.watch.view, wall_clock_ns=lambda: wall_ns)
        answer = orjson.loads(describe_jobs(parts).encode())
        return [(each["job_id"], each["running"], each["ports"]) for each in answer["jobs"]]

    running = [("13", True, []), ("14", True, ["b:1"])]
    assert listed(node.wall_ns()) == [*running, ("12", False, ["a:1", "b:1"])]
    # the history is 40 seconds long
    assert listed(node.wall_ns() + 60 * 10**9) == running
    ring.ring.close()
