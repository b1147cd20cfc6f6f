"""The supervisor and a device with slow reads: it gets a separate process and a longer interval."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest

from ibpulse.model import Fabric
from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader
from ibpulse.sampler.supervisor import Supervisor, SupervisorOptions
from tests.campaigns.live.sampler.test_supervisor_hangs import fuse_fabric
from tests.fusefabric import FuseFabric, why_not
from tests.sampler.supervised import children, running, sampled_anew, soon
from tests.sampler.tree import ListedInventory

pytestmark = [pytest.mark.skipif(why_not() != "", reason=why_not())]

SLOW = "mlx5_1"


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[FuseFabric]:
    with FuseFabric(tmp_path / "fuse", ports=3) as mounted:
        yield mounted


@pytest.fixture
def inventory(fabric: FuseFabric) -> ListedInventory:
    return ListedInventory(fuse_fabric(fabric))


@pytest.fixture
async def slow(
    ring: RingFile, fabric: FuseFabric, inventory: ListedInventory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Supervisor]:
    """A supervisor that has found out that one of three devices is slow."""
    monkeypatch.setattr("ibpulse.sampler.adaptive.PATIENCE_SECONDS", 2.0)
    async with running(ring, inventory, SupervisorOptions(scan_seconds=0.2, steady_seconds=0.3)) as supervisor:
        fabric.set(SLOW, delay_seconds=0.008)
        await soon(lambda: ring.slot_word(supervisor.slots[f"{SLOW}:1"], at.S_STRIDE) >= 10)
        await soon(lambda: len(children()) == 2)
        yield supervisor


def lengthened(supervisor: Supervisor) -> list[str]:
    return [reads.device for reads in supervisor.health().reads if reads.interval_lengthened]


async def test_it_is_sampled_at_its_interval_and_the_others_at_theirs(ring: RingFile, slow: Supervisor) -> None:
    stride = ring.slot_word(slow.slots[f"{SLOW}:1"], at.S_STRIDE)
    first = ring.latest_tick()
    await sampled_anew(ring, slow.slots[f"{SLOW}:1"], 10)
    ticks = np.arange(first, ring.latest_tick() + 1)
    block = RingReader(ring).read([slow.slots[f"{SLOW}:1"], slow.slots["mlx5_0:1"]], first, int(ticks[-1]))
    assert set((ticks[block.present[0]] % stride).tolist()) == {0}
    assert block.strides is None
    # every tick of the others that does not come as this one reads
    assert block.present[1].mean() > 0.7
    assert lengthened(slow) == [SLOW]
    assert slow.health().quarantined_devices == ()


async def test_it_returns_to_the_others_when_it_is_quick_again(
    ring: RingFile, slow: Supervisor, fabric: FuseFabric, caplog: pytest.LogCaptureFixture
) -> None:
    fabric.clear()
    slot = slow.slots[f"{SLOW}:1"]
    await soon(lambda: ring.slot_word(slot, at.S_STRIDE) == 1, 60)
    await soon(lambda: len(children()) == 1)
    await sampled_anew(ring, slot, 20)
    assert lengthened(slow) == []
    assert f"device {SLOW}: reads now take" in caplog.text
    assert "sampling it every 10 ms from now on" in caplog.text


async def test_when_it_hangs_it_is_a_sick_one_in_the_process_that_it_has(
    ring: RingFile, slow: Supervisor, fabric: FuseFabric, caplog: pytest.LogCaptureFixture
) -> None:
    processes = children()
    fabric.set(SLOW, hang_seconds=300)
    await soon(lambda: slow.health().quarantined_devices == (SLOW,))
    assert children() == processes
    assert f"device {SLOW}: a read has hung for over 0.25 s in its separate process" in caplog.text
    fabric.set(SLOW, delay_seconds=0.008)
    await soon(lambda: slow.health().quarantined_devices == ())
    await soon(lambda: len(children()) == 2)
    await sampled_anew(ring, slow.slots[f"{SLOW}:1"])
    assert slow.health().takeovers == 0


async def test_it_leaves_its_process_with_the_fabric(
    ring: RingFile, slow: Supervisor, inventory: ListedInventory
) -> None:
    inventory.fabric = Fabric(tuple(port for port in inventory.fabric.ports if port.id.device != SLOW))
    await soon(lambda: len(children()) == 1)
    await sampled_anew(ring, slow.slots["mlx5_2:1"])
    assert SLOW not in {reads.device for reads in slow.health().reads}


async def test_it_is_sampled_still_less_often_when_it_becomes_slower(
    ring: RingFile, slow: Supervisor, fabric: FuseFabric
) -> None:
    slot, processes = slow.slots[f"{SLOW}:1"], children()
    before = ring.slot_word(slot, at.S_STRIDE)
    fabric.set(SLOW, delay_seconds=0.022)
    await soon(lambda: ring.slot_word(slot, at.S_STRIDE) > before)
    await sampled_anew(ring, slot)
    assert children() == processes
