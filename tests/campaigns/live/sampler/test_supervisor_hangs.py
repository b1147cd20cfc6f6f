"""The supervisor and devices that hang or vanish: the others go on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ibpulse.model import ByteSource, Fabric
from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader
from ibpulse.sampler.supervisor import SupervisorOptions
from tests.fusefabric import FuseFabric, why_not
from tests.sampler.conftest import INTERVAL_NS
from tests.sampler.supervised import children, longest_hole, running, sampled_anew, soon
from tests.sampler.tree import ListedInventory, Tree, port

fuse = pytest.mark.skipif(why_not() != "", reason=why_not())


def fuse_fabric(fabric: FuseFabric) -> Fabric:
    def source(device: str) -> ByteSource:
        paths = [str(fabric.counter_path(device, name)) for name in ("port_xmit_data", "port_rcv_data")]
        return ByteSource("counters", (paths[0],), (paths[1],), 4)

    return Fabric(tuple(port(device.name, source(device.name)) for device in fabric.devices))


@fuse
async def test_a_hung_device_is_sampled_in_isolation_until_it_responds(
    ring: RingFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = SupervisorOptions(scan_seconds=0.2, steady_seconds=0.3)
    with FuseFabric(tmp_path / "fuse", ports=3) as fabric:
        async with running(ring, ListedInventory(fuse_fabric(fabric)), options) as supervisor:
            slots = supervisor.slots
            for slot in slots.values():
                await sampled_anew(ring, slot)
            first = ring.latest_tick()
            fabric.set("mlx5_1", hang_seconds=300)
            await soon(lambda: supervisor.health().quarantined_devices == ("mlx5_1",))
            hung_from = ring.latest_begun_tick()
            for name in ("mlx5_0:1", "mlx5_2:1"):
                await sampled_anew(ring, slots[name], 20)
            assert longest_hole(ring, slots["mlx5_0:1"], first) * INTERVAL_NS < 2_000_000_000
            newest = ring.latest_tick()
            assert not RingReader(ring).read([slots["mlx5_1:1"]], hung_from + 1, newest).present.any()
            fabric.clear()
            await sampled_anew(ring, slots["mlx5_1:1"])
            await soon(lambda: supervisor.health().quarantined_devices == ())
            for slot in slots.values():
                await sampled_anew(ring, slot)
            assert len(children()) == 1
            # a busy machine may hold up a read of the released device once more
            assert 1 <= supervisor.health().takeovers == caplog.text.count("quarantining the device")
    assert "device mlx5_1: a read has hung for over 0.25 s; quarantining the device" in caplog.text
    assert "device mlx5_1 responds again; sampling it together with the others" in caplog.text


@fuse
async def test_a_sick_device_that_leaves_the_fabric_leaves_its_quarantine(ring: RingFile, tmp_path: Path) -> None:
    with FuseFabric(tmp_path / "fuse", ports=2) as fabric:
        inventory = ListedInventory(fuse_fabric(fabric))
        async with running(ring, inventory) as supervisor:
            await sampled_anew(ring, supervisor.slots["mlx5_1:1"])
            fabric.set("mlx5_1", hang_seconds=300)
            await soon(lambda: supervisor.health().quarantined_devices)
            inventory.fabric = Fabric(inventory.fabric.ports[:1])
            await soon(lambda: not supervisor.health().quarantined_devices)
            await sampled_anew(ring, supervisor.slots["mlx5_0:1"])
            fabric.clear()
            await soon(lambda: len(children()) == 1)


@fuse
async def test_stopping_does_not_wait_for_a_read_that_hangs(ring: RingFile, tmp_path: Path) -> None:
    """A killed process that hangs in the kernel ends when the device responds, and runs no code of ours until then."""
    with FuseFabric(tmp_path / "fuse", ports=2) as fabric:
        async with running(ring, ListedInventory(fuse_fabric(fabric))) as supervisor:
            await sampled_anew(ring, supervisor.slots["mlx5_1:1"])
            fabric.set("mlx5_0", hang_seconds=300)
            await soon(lambda: supervisor.health().quarantined_devices)
        ticks = [ring.words[at.lane_at(lane) + at.L_TICKS] for lane in range(at.LANE_COUNT)]
        fabric.clear()
        await soon(lambda: children() == [])
        assert [ring.words[at.lane_at(lane) + at.L_TICKS] for lane in range(at.LANE_COUNT)] == ticks


async def test_a_file_that_hangs_when_it_is_opened_is_found_by_its_device(
    ring: RingFile, inventory: ListedInventory, tree: Tree
) -> None:
    """Opening a pipe without a writer hangs, like a read of a hung device."""
    tree.path("mlx5_1").unlink()
    os.mkfifo(tree.path("mlx5_1"))
    async with running(ring, inventory) as supervisor:
        await soon(lambda: supervisor.health().quarantined_devices == ("mlx5_1",))
        await sampled_anew(ring, supervisor.slots["mlx5_0:1"])


@fuse
async def test_a_device_that_vanishes_and_comes_back_under_its_name_is_sampled_again(
    ring: RingFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FuseFabric(tmp_path / "fuse", ports=2) as fabric:
        async with running(ring, ListedInventory(fuse_fabric(fabric))) as supervisor:
            for slot in supervisor.slots.values():
                await sampled_anew(ring, slot)
            fabric.set("mlx5_0", vanished=True)
            await soon(lambda: "its device disappeared" in caplog.text)
            await sampled_anew(ring, supervisor.slots["mlx5_1:1"])
            fabric.clear()
            await sampled_anew(ring, supervisor.slots["mlx5_0:1"])
            assert supervisor.health().restarts == 0
