"""A supervisor that cannot write its plan, start its sampler, scan or record an event continues, and says so."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ibpulse.agent.sampler.plan import plan_path
from ibpulse.base.errors import SamplerError
from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.log import EventFile
from ibpulse.core.ring import layout as at
from tests.virtual.samplers import Make, Supervised


class BrokenFile(EventFile):
    """A file of events with a fault in its code."""

    broken = False

    def append(self, event: Event) -> bool:
        if self.broken:
            raise ZeroDivisionError
        return super().append(event)


def test_a_plan_that_cannot_be_written_at_the_start_is_written_later(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    node = make()
    plan = plan_path(node.ring.path, 0)
    plan.mkdir()
    node.start(6)
    sentence = (
        f"the sampler's plan {plan} cannot be written: Is a directory; "
        "set ring.dir to a writable directory with free space; retrying"
    )
    assert node.errors.notices() == (f"internal error in plan (main sampler): {sentence}",)
    assert caplog.text.count(sentence) == 1
    assert node.samplers.running() == []
    plan.rmdir()
    node.run(6)
    assert node.sampled("mlx5_1", 0.5) == "x" * 50


def test_a_plan_that_cannot_be_written_leaves_the_last_one_in_force(make: Make) -> None:
    node = make()
    ports = node.inventory.fabric.ports
    node.list_ports(ports[:1])
    node.start()
    plan_path(node.ring.path, 0).unlink()
    plan_path(node.ring.path, 0).mkdir()
    node.list_ports(ports)
    node.run(2)
    assert node.errors.counts()["plan"] > 0
    assert [node.sampled(name, 0.5) for name in node.names] == ["x" * 50, "." * 50]
    plan_path(node.ring.path, 0).rmdir()
    node.run(1)
    assert {node.sampled(name, 0.5) for name in node.names} == {"x" * 50}
    assert node.supervisor.health().restarts == 0


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


def test_a_sampler_that_cannot_be_started_for_a_while_is_started_later(
    node: Supervised, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine without a free process for a moment must not lose its daemon."""
    node.samplers.error = errno.EAGAIN
    node.samplers.kill()
    node.run(4)
    assert caplog.text.count("cannot be started: Resource temporarily unavailable; retrying") == 1
    node.samplers.error = 0
    node.run(6)
    assert node.sampled("mlx5_0", 0.5) == "x" * 50


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
