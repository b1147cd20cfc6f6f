"""The supervisor and its samplers: whatever happens to them, the ports stay sampled."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from ibpulse.agent.sampler.plan import plan_path
from ibpulse.agent.sampler.process import EXIT_NO_RING, SamplerProcess
from ibpulse.agent.sampler.supervisor import SupervisorOptions
from ibpulse.base.errors import SamplerError
from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.log import EventFile
from ibpulse.core.model import ByteSource
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from tests.ring.tiny import tiny_tmpfs
from tests.sampler.tree import port
from tests.virtual.samplers import INTERVAL_NS, Make, Supervised

__all__ = ["tiny_tmpfs"]


class BrokenFile(EventFile):
    """A file of events with a fault in its code."""

    broken = False

    def append(self, event: Event) -> bool:
        if self.broken:
            raise ZeroDivisionError
        return super().append(event)


def test_a_scan_that_fails_leaves_the_last_one_in_force(node: Supervised) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    scan, node.inventory.scan = node.inventory.scan, fail  # type: ignore[method-assign, assignment]
    node.run(2)
    assert node.errors.counts()["fabric"] > 0
    assert {node.sampled(name, 0.5) for name in node.names} == {"x" * 50}
    assert [str(port.id) for port in node.supervisor.fabric.ports] == ["mlx5_0:1", "mlx5_1:1"]
    assert any("Too many open files" in notice for notice in node.errors.notices())
    node.inventory.scan = scan  # type: ignore[method-assign]
    node.list_ports(node.inventory.fabric.ports[:1])
    node.run(1)
    assert [str(port.id) for port in node.supervisor.fabric.ports] == ["mlx5_0:1"]


def test_an_event_that_cannot_be_recorded_ends_nothing(make: Make, folder: Path) -> None:
    file = BrokenFile(folder / "events")
    events = EventLog(file)
    events.load(0)
    node = make(events=events)
    node.start()
    file.broken = True
    node.list_ports(node.inventory.fabric.ports[:1])
    node.run(1)
    assert node.errors.counts()["events"] > 0
    assert node.sampled("mlx5_0", 0.5) == "x" * 50
    events.close()


def test_a_hung_device_is_not_read_again_because_of_a_plan_that_cannot_be_written(node: Supervised) -> None:
    """The last plan still has the device, so a sampler that followed it would hang as well, and the next one too."""
    obstacle = node.ring.path.with_name("plan-0.json.new")
    obstacle.mkdir()
    node.hang("mlx5_1")
    node.run(12)
    assert node.supervisor.health().quarantined_devices == ("mlx5_1",)
    assert node.supervisor.health().takeovers == 1
    obstacle.rmdir()
    node.run(6)
    assert node.sampled("mlx5_0", 0.5) == "x" * 50
    assert node.supervisor.health().takeovers == 1


def test_a_program_that_cannot_be_started_is_an_error_at_the_start(make: Make) -> None:
    node = make()
    node.samplers.error = errno.ENOENT
    with pytest.raises(SamplerError, match=r"the sampler process \S+ cannot be started: No such file or directory"):
        node.start()


def test_a_take_over_that_finds_no_free_process_is_finished_later(
    node: Supervised, caplog: pytest.LogCaptureFixture
) -> None:
    node.hang("mlx5_1")
    node.samplers.error = errno.EAGAIN
    node.run(4)
    assert node.word(at.L_TICKS) == pytest.approx(95, abs=2)
    node.samplers.error = 0
    node.run(6)
    assert node.sampled("mlx5_0", 0.5) == "x" * 50
    assert node.supervisor.health().quarantined_devices == ("mlx5_1",)
    assert "the sampler could not be started; restarting it" in caplog.messages


def test_health_reports_the_state_of_the_sampler_and_a_refused_request_is_logged_once(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    node = make(options=SupervisorOptions(scheduler="fifo", cpu=4095))
    assert node.supervisor.heartbeat_age_seconds() is None
    node.start()
    health = node.supervisor.health()
    assert (health.restarts, health.takeovers, health.quarantined_devices) == (0, 0, ())
    assert (health.scheduler_requested, health.scheduler_actual) == ("fifo", "other")
    assert (health.cpu_requested, health.cpu_actual) == ("4095", "")
    # the last tick began just before this whole second
    assert health.heartbeat_age_seconds == pytest.approx(0.00995, abs=1e-5)
    node.samplers.kill()
    node.run(2)
    assert node.supervisor.health().restarts == 1
    assert caplog.text.count("sampler.cpu was refused (Invalid argument); the sampler continues without it") == 1


def test_every_port_that_goes_and_comes_is_named(node: Supervised, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ports = node.inventory.fabric.ports
    for present in ((), ports):
        node.list_ports(present)
        node.run(1)
    assert [message for message in caplog.messages if "port mlx5_0:1, mlx5_1:1" in message] == [
        "disappeared: port mlx5_0:1, mlx5_1:1",
        "now sampling: port mlx5_0:1, mlx5_1:1",
    ]


def test_a_file_that_goes_missing_is_logged_once_and_again_when_it_answers(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node = make()
    hidden = node.tree.path("mlx5_0").with_name("hidden")
    node.tree.path("mlx5_0").rename(hidden)
    node.start(2)
    hidden.rename(node.tree.path("mlx5_0"))
    node.run(2)
    assert node.sampled("mlx5_0", 0.5) == "x" * 50
    assert [message for message in caplog.messages if "mlx5_0:1" in message] == [
        "port mlx5_0:1: its device disappeared (ENOENT: No such file or directory); searching for it",
        "port mlx5_0:1: its counter files are readable again",
    ]


def test_a_stopped_sampler_is_replaced(node: Supervised, caplog: pytest.LogCaptureFixture) -> None:
    """A process that gets no CPU between two ticks."""
    node.samplers.by_lane[0].wakes_ns = None
    node.run(3)
    # a second without a heartbeat, and the start of a process
    assert node.hole("mlx5_0", 3.5) == 105
    assert "no heartbeat from the sampler for 1 s; restarting it" in caplog.messages


def test_a_sampler_that_keeps_ending_is_started_with_increasing_delays(
    node: Supervised, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SamplerProcess, "run", lambda _: EXIT_NO_RING)
    node.samplers.kill()
    restarts = []
    for _ in range(20):
        node.run(0.5)
        restarts.append(node.supervisor.health().restarts)
    # at once, then after 0.1, 0.2, 0.4, 0.8, 1.6, 3.2 s, each with some looks in between
    assert restarts[-1] == 7
    assert caplog.text.count("the sampler ended with status 5; restarting it") == 1
    monkeypatch.undo()
    node.run(6)
    assert node.sampled("mlx5_0", 0.5) == "x" * 50


def test_a_damaged_plan_is_written_again_for_a_new_sampler(node: Supervised) -> None:
    plan_path(node.ring.path, 0).write_text("{}")
    node.samplers.kill()
    node.run(2)
    assert node.sampled("mlx5_0", 0.5) == "x" * 50
    assert node.supervisor.health().restarts == 1


def test_a_port_that_leaves_and_comes_back_keeps_its_slot(node: Supervised) -> None:
    ports, slots = node.inventory.fabric.ports, dict(node.supervisor.slots)
    node.list_ports(ports[1:])
    node.run(1)
    assert list(node.supervisor.slots) == ["mlx5_1:1"]
    assert (node.sampled("mlx5_0", 0.5), node.sampled("mlx5_1", 0.5)) == ("." * 50, "x" * 50)
    node.list_ports(ports)
    node.run(1)
    assert node.supervisor.slots == slots
    assert node.sampled("mlx5_0", 0.5) == "x" * 50


def test_a_port_that_changes_its_unit_is_sampled_in_another_slot(node: Supervised) -> None:
    old, source = node.supervisor.slots["mlx5_0:1"], node.tree.source("mlx5_0")
    node.list_ports([port("mlx5_0", ByteSource("bytes", source.transmit, source.receive, 1))])
    node.run(1)
    assert node.supervisor.slots["mlx5_0:1"] != old
    assert node.sampled("mlx5_0", 0.5) == "x" * 50


def test_ports_beyond_the_rings_slots_are_named_and_the_others_sampled(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    node = make()
    source = node.tree.source("mlx5_0")
    node.list_ports([port(f"efa_{number}", source) for number in range(at.SLOT_COUNT + 2)])
    node.start()
    assert len(node.supervisor.slots) == at.SLOT_COUNT
    assert node.sampled("efa_255", 0.5) == "x" * 50
    assert [message for message in caplog.messages if "space" in message] == [
        "the node has 258 ports, but the ring only has space for 256: efa_256:1 and later ports are not sampled; "
        "exclude other ports with ports.exclude"
    ]


@pytest.mark.needs("root")
@pytest.mark.real("process")
def test_a_later_port_without_space_does_not_affect_the_others(
    make: Make, tiny_tmpfs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = make(ring=RingFile.create(tiny_tmpfs / "ring", INTERVAL_NS, 10_000))
    ports = node.inventory.fabric.ports
    node.list_ports(ports[:1])
    node.start()
    node.list_ports(ports)
    node.run(2)
    assert list(node.supervisor.slots) == ["mlx5_0:1"]
    assert node.sampled("mlx5_0", 0.5) == "x" * 50
    (message,) = (message for message in caplog.messages if "no space" in message)
    assert message.endswith("give ring.dir more space or shorten sampler.history; the port is not sampled")
