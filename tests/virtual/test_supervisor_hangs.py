"""The supervisor and devices that hang, vanish or answer slowly: the others are sampled as before."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.agent.sampler import kernel
from ibpulse.agent.sampler.supervisor import SupervisorOptions
from ibpulse.core.ring import layout as at
from tests.virtual.samplers import INTERVAL_NS, Supervised

MS = 1_000_000
SLOW = "mlx5_1"


@pytest.fixture
def node(folder: Path) -> Iterator[Supervised]:
    """A supervisor of three devices that has run for a second."""
    node = Supervised(folder, 3, SupervisorOptions(scan_seconds=0.2, steady_seconds=3))
    node.start()
    yield node
    node.close()


def test_a_hung_device_is_sampled_in_isolation_until_it_responds(
    node: Supervised, caplog: pytest.LogCaptureFixture
) -> None:
    node.hang("mlx5_1")
    node.run(2)
    assert node.supervisor.health().quarantined_devices == ("mlx5_1",)
    # 0.3 s until it is certain, and the start of a process; `mlx5_0` is read before the device that hangs
    assert [node.hole(name, 2.5) for name in ("mlx5_0", "mlx5_2")] == [34, 35]
    assert node.sampled("mlx5_1", 1.95) == "." * 195
    assert node.samplers.running() == [0, 1]
    node.answer("mlx5_1")
    node.run(1)
    assert node.sampled("mlx5_1", 0.5) == "x" * 50
    assert node.supervisor.health().quarantined_devices == ("mlx5_1",)
    node.run(3)
    assert node.supervisor.health().quarantined_devices == ()
    assert {node.sampled(name, 0.5) for name in node.names} == {"x" * 50}
    assert node.samplers.running() == [0]
    assert node.supervisor.health().takeovers == 1
    assert [message for message in caplog.messages if "mlx5_1" in message] == [
        "device mlx5_1: a read has hung for over 0.25 s; quarantining the device: sampling it in a separate process "
        "until it responds steadily",
        "device mlx5_1 responds again; sampling it together with the others",
    ]


@pytest.mark.parametrize(
    ("state", "cpu_share", "takeovers"),
    [("D", 0.0, 1), ("S", 0.0, 1), ("R", 1.0, 1), ("R", 0.1, 0), ("", 0.0, 1)],
    ids=["asleep", "waiting", "spinning", "starved", "unknown"],
)
def test_a_read_that_waits_for_the_processor_does_not_hang(
    node: Supervised, caplog: pytest.LogCaptureFixture, state: str, cpu_share: float, takeovers: int
) -> None:
    node.world.patch(kernel, "state_of", lambda _: (state, cpu_share * node.clock.monotonic()))
    node.hang("mlx5_1")
    node.run(2)
    assert node.supervisor.health().takeovers == takeovers
    kinds = [event.kind for event in node.supervisor.events.events() if event.kind in ("quarantined", "starved")]
    assert kinds == (["quarantined"] if takeovers else ["starved"])
    assert caplog.text.count("the sampler did not get the processor") == 1 - takeovers
    node.answer("mlx5_1")
    node.run(1)
    assert node.sampled("mlx5_0", 0.5) == "x" * 50


def test_a_sampler_that_hangs_in_its_first_tick_is_no_step_of_the_clock(node: Supervised) -> None:
    """The sampler before it ended seconds ago, so the last tick that was read whole is that old."""
    node.samplers.error = errno.EAGAIN
    node.samplers.kill()
    node.run(2)
    node.hang("mlx5_0")
    node.samplers.error = 0
    node.run(10)
    assert node.supervisor.health().takeovers == 1
    assert len(node.ring.segments()) == 1
    # it is about to begin the tick of now
    assert node.ring.latest_tick() == node.clock.time_ns() // INTERVAL_NS - 1
    assert node.sampled("mlx5_1", 0.5) == "x" * 50
    node.answer("mlx5_0")
    node.run(2)
    assert node.sampled("mlx5_0", 0.5) == "x" * 50


def test_a_hung_device_that_leaves_the_fabric_leaves_its_quarantine(node: Supervised) -> None:
    node.hang("mlx5_1")
    node.run(2)
    node.list_ports([port for port in node.inventory.fabric.ports if port.id.device != "mlx5_1"])
    node.run(1)
    assert node.supervisor.health().quarantined_devices == ()
    # its process ends once the read returns
    assert node.samplers.running() == [0, 1]
    node.answer("mlx5_1")
    node.run(0.1)
    assert node.samplers.running() == [0]


def test_stopping_does_not_wait_for_a_read_that_hangs(node: Supervised) -> None:
    """A killed process that hangs in the kernel ends when the device responds, and runs no code of ours until then."""
    node.hang("mlx5_0")
    node.run(2)
    began = node.world.monotonic_ns
    node.stop()
    # asked to end, and killed after a second
    assert node.world.monotonic_ns - began == pytest.approx(2e9, abs=5 * MS)
    ticks = [node.word(at.L_TICKS, lane) for lane in range(at.LANE_COUNT)]
    node.answer("mlx5_0")
    node.world.pause(10 * MS)
    assert node.samplers.running() == []
    assert [node.word(at.L_TICKS, lane) for lane in range(at.LANE_COUNT)] == ticks
