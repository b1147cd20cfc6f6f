"""The supervisor with real sampler processes: whatever happens to them, the ports stay sampled."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from ibpulse.model import ByteSource, Fabric
from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader
from ibpulse.sampler.plan import plan_path
from ibpulse.sampler.supervisor import Supervisor, SupervisorOptions
from tests.sampler.conftest import INTERVAL_NS
from tests.sampler.supervised import LO, MAIN, children, longest_hole, running, sampled_anew, scanned_anew, soon, word
from tests.sampler.tree import ListedInventory, Tree, port


async def test_every_port_is_sampled_and_the_rest_is_not(
    ring: RingFile, inventory: ListedInventory, tree: Tree
) -> None:
    inventory.fabric = Fabric((*inventory.fabric.ports, port("mlx5_9", None)))
    async with running(ring, inventory) as supervisor:
        assert sorted(supervisor.slots) == ["mlx5_0:1", "mlx5_1:1"]
        assert supervisor.fabric == inventory.fabric
        for slot in supervisor.slots.values():
            await sampled_anew(ring, slot)
    assert ring.slots() == supervisor.slots


async def test_stopping_leaves_no_process_behind(ring: RingFile, inventory: ListedInventory) -> None:
    async with running(ring, inventory):
        assert children() == [word(ring, at.L_PID)]
    assert children() == []


async def test_health_reports_the_state_of_the_sampler(ring: RingFile, inventory: ListedInventory) -> None:
    supervisor = Supervisor(ring, inventory, SupervisorOptions(scheduler="fifo", cpu=4095))
    assert supervisor.heartbeat_age_seconds() is None
    cpu = min(os.sched_getaffinity(0))
    async with running(ring, inventory, SupervisorOptions(cpu=cpu)) as supervisor:
        await soon(lambda: word(ring, at.L_TICKS) > 3)
        health = supervisor.health()
        assert (health.restarts, health.takeovers, health.quarantined_devices) == (0, 0, ())
        assert (health.scheduler_requested, health.scheduler_actual) == ("other", "other")
        assert (health.cpu_requested, health.cpu_actual) == (str(cpu), str(cpu))
        assert health.heartbeat_age_seconds is not None
        assert 0 <= health.heartbeat_age_seconds < 20


async def test_a_refused_wish_is_logged_once(
    ring: RingFile, inventory: ListedInventory, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(ring, inventory, SupervisorOptions(cpu=4095)) as supervisor:
        await soon(lambda: "refused" in caplog.text)
        os.kill(word(ring, at.L_PID), signal.SIGKILL)
        await soon(lambda: supervisor.health().restarts == 1)
        await sampled_anew(ring, 0, 20)
        assert supervisor.health().cpu_actual == ""
    said = [record.message for record in caplog.records if "refused" in record.message]
    assert said == ["sampler.cpu was refused (Invalid argument); the sampler continues without it"]


async def test_a_killed_sampler_is_restarted_and_its_ticks_are_missing(
    ring: RingFile, inventory: ListedInventory, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(ring, inventory) as supervisor:
        slot = supervisor.slots["mlx5_0:1"]
        await sampled_anew(ring, slot)
        first, pid, missed = ring.latest_tick(), word(ring, at.L_PID), word(ring, at.L_MISSED)
        os.kill(pid, signal.SIGKILL)
        await soon(lambda: word(ring, at.L_PID) != pid)
        await sampled_anew(ring, slot, 10)
        assert supervisor.health().restarts == 1
        hole = longest_hole(ring, slot, first)
        assert 1 <= hole < 1000
        assert word(ring, at.L_MISSED) - missed >= hole
        assert ring.segments() == [(1, 0)]
        assert RingReader(ring).read([slot], first, first).present.all()
    assert "the sampler ended with status -9; restarting it" in caplog.text


async def test_a_stopped_sampler_is_replaced(
    ring: RingFile, inventory: ListedInventory, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(ring, inventory) as supervisor:
        slot = supervisor.slots["mlx5_1:1"]
        await sampled_anew(ring, slot)
        pid = word(ring, at.L_PID)
        os.kill(pid, signal.SIGSTOP)
        await soon(lambda: word(ring, at.L_PID) != pid)
        await sampled_anew(ring, slot)
        assert pid not in children()
    assert "no heartbeat from the sampler for 1 s" in caplog.text or "a read has hung" in caplog.text


async def test_a_sampler_that_keeps_ending_is_started_ever_slower_until_it_can_run(
    ring: RingFile, inventory: ListedInventory, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = ring.path.with_name("hidden")
    async with running(ring, inventory) as supervisor:
        await sampled_anew(ring, 0)
        begun = time.monotonic()
        ring.path.rename(hidden)
        os.kill(word(ring, at.L_PID), signal.SIGKILL)
        await soon(lambda: supervisor.health().restarts >= 5)
        # at once, then after 0.1, 0.2 and 0.4 s
        assert time.monotonic() - begun > 0.7
        hidden.rename(ring.path)
        await sampled_anew(ring, 0)
    assert caplog.text.count("the sampler ended with status 5; restarting it") == 1


async def test_a_damaged_plan_is_written_again_for_a_new_sampler(ring: RingFile, inventory: ListedInventory) -> None:
    async with running(ring, inventory) as supervisor:
        await sampled_anew(ring, 0)
        plan_path(ring.path, 0).write_text("{}")
        os.kill(word(ring, at.L_PID), signal.SIGKILL)
        await sampled_anew(ring, 0)
        assert supervisor.health().restarts == 1


async def test_a_daemon_that_starts_on_an_old_ring_counts_no_missed_ticks(
    ring: RingFile, inventory: ListedInventory
) -> None:
    async with running(ring, inventory):
        await sampled_anew(ring, 0)
    missed, last = word(ring, at.L_MISSED), ring.latest_tick()
    ring.words[MAIN + at.L_TICK] -= 500
    async with running(ring, inventory) as supervisor:
        first = await soon(lambda: word(ring, at.L_BEGUN) > last and word(ring, at.L_BEGUN))
        assert word(ring, at.L_MISSED) - missed < 400
        await sampled_anew(ring, 0)
        assert RingReader(ring).read([supervisor.slots["mlx5_0:1"]], first - 5000, last).present.any()


async def test_a_port_that_leaves_and_comes_back_keeps_its_slot(
    ring: RingFile, inventory: ListedInventory, tree: Tree
) -> None:
    whole = inventory.fabric
    async with running(ring, inventory) as supervisor:
        slots = dict(supervisor.slots)
        inventory.fabric = Fabric(whole.ports[1:])
        await soon(lambda: list(supervisor.slots) == ["mlx5_1:1"])
        generation = word(ring, at.L_PLAN_WANTED)
        await soon(lambda: word(ring, at.L_PLAN_APPLIED) == generation)
        await sampled_anew(ring, slots["mlx5_1:1"])
        newest = ring.latest_begun_tick()
        assert not RingReader(ring).read([slots["mlx5_0:1"]], newest - 1, newest).present.any()
        inventory.fabric = whole
        await soon(lambda: len(supervisor.slots) == 2)
        assert supervisor.slots == slots
        await sampled_anew(ring, slots["mlx5_0:1"])


async def test_a_port_that_changes_its_unit_is_sampled_in_another_slot(
    ring: RingFile, inventory: ListedInventory, tree: Tree
) -> None:
    async with running(ring, inventory) as supervisor:
        old = supervisor.slots["mlx5_0:1"]
        source = tree.source("mlx5_0")
        inventory.fabric = Fabric((port("mlx5_0", ByteSource("bytes", source.transmit, source.receive, 1)),))
        await soon(lambda: supervisor.slots["mlx5_0:1"] != old)
        await sampled_anew(ring, supervisor.slots["mlx5_0:1"])


async def test_a_cached_port_is_sampled_at_its_stride(ring: RingFile, inventory: ListedInventory, tree: Tree) -> None:
    inventory.fabric = Fabric((port("mlx5_0", tree.source("mlx5_0", 0.01)),))
    async with running(ring, inventory) as supervisor:
        slot = supervisor.slots["mlx5_0:1"]
        assert ring.slot_word(slot, at.S_STRIDE) == 4
        await sampled_anew(ring, slot)
        newest = ring.latest_tick()
        ticks = np.arange(newest - 40, newest + 1)
        held = ticks[RingReader(ring).read([slot], newest - 40, newest).present[0]]
        assert np.all(held % 4 == 0)


async def test_a_file_that_goes_missing_is_said_once_and_again_when_it_answers(
    ring: RingFile, inventory: ListedInventory, tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hidden = tree.path("mlx5_0").with_name("hidden")
    tree.path("mlx5_0").rename(hidden)
    async with running(ring, inventory) as supervisor:
        await soon(lambda: "its device disappeared" in caplog.text)
        await scanned_anew(inventory)
        hidden.rename(tree.path("mlx5_0"))
        await soon(lambda: "readable again" in caplog.text)
        await sampled_anew(ring, supervisor.slots["mlx5_0:1"])
    said = [record.message for record in caplog.records if "mlx5_0:1" in record.message]
    assert said == [
        "port mlx5_0:1: its device disappeared (ENOENT: No such file or directory); searching for it",
        "port mlx5_0:1: its counter files are readable again",
    ]


async def test_a_file_that_keeps_failing_is_said_once_also_by_a_new_sampler(
    ring: RingFile, inventory: ListedInventory, tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    tree.write("mlx5_0", "N/A (no PMA)", 5)
    async with running(ring, inventory) as supervisor:
        await soon(lambda: "keeps failing" in caplog.text)
        os.kill(word(ring, at.L_PID), signal.SIGKILL)
        await soon(lambda: supervisor.health().restarts == 1)
        await sampled_anew(ring, supervisor.slots["mlx5_1:1"], 30)
    said = [record.message for record in caplog.records if "mlx5_0:1" in record.message]
    assert said == [
        "port mlx5_0:1: a counter file keeps failing (its content is not a number); pausing it and retrying within a "
        "minute. If it never recovers, add the port to ports.exclude"
    ]


async def test_notices_of_the_scan_are_logged_once_though_they_come_and_go(
    ring: RingFile, inventory: ListedInventory, caplog: pytest.LogCaptureFixture
) -> None:
    ports = inventory.fabric.ports
    async with running(ring, inventory, SupervisorOptions(scan_seconds=0.02)):
        for notices in (("mlx5_0: odd.",), ("mlx5_0: odd.", "mlx5_1: odd too."), (), ("mlx5_0: odd.",)):
            inventory.fabric = Fabric(ports, notices)
            await scanned_anew(inventory)
    said = [record.message for record in caplog.records if "odd" in record.message]
    assert said == ["mlx5_0: odd.", "mlx5_1: odd too."]


async def test_a_notice_is_logged_again_after_a_long_absence(
    ring: RingFile, inventory: ListedInventory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ibpulse.internal_errors.FORGET_SECONDS", 0.0)
    inventory.fabric = Fabric(inventory.fabric.ports, ("mlx5_0: odd.",))
    async with running(ring, inventory, SupervisorOptions(scan_seconds=0.02)):
        await scanned_anew(inventory)
        await scanned_anew(inventory)
    assert caplog.text.count("mlx5_0: odd.") >= 2


async def test_every_port_that_goes_and_comes_is_named(
    ring: RingFile, inventory: ListedInventory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    ports = inventory.fabric.ports
    async with running(ring, inventory, SupervisorOptions(scan_seconds=0.02)):
        for present in ((), ports):
            inventory.fabric = Fabric(present)
            await scanned_anew(inventory)
    said = [record.message for record in caplog.records if "port mlx5_0:1, mlx5_1:1" in record.message]
    assert said == [
        "disappeared: port mlx5_0:1, mlx5_1:1",
        "now sampling: port mlx5_0:1, mlx5_1:1",
    ]


async def test_ports_beyond_the_rings_slots_are_named_and_the_others_sampled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring = RingFile.create(tmp_path / "ring", INTERVAL_NS, 200)
    source = ByteSource("counters", (f"{LO}/tx_bytes",), (f"{LO}/rx_bytes",), 1)
    fabric = Fabric(tuple(port(f"efa_{number}", source) for number in range(at.SLOT_COUNT + 2)))
    async with running(ring, ListedInventory(fabric)) as supervisor:
        assert len(supervisor.slots) == at.SLOT_COUNT
        await sampled_anew(ring, supervisor.slots["efa_255:1"])
    assert [record.message for record in caplog.records if "space" in record.message] == [
        "the node has 258 ports, but the ring only has space for 256: efa_256:1 and later ports are not sampled; "
        "exclude other ports with ports.exclude"
    ]


async def test_a_port_without_space_at_the_start_does_not_affect_the_others(
    tiny_tmpfs: Path, inventory: ListedInventory
) -> None:
    ring = RingFile.create(tiny_tmpfs / "ring", INTERVAL_NS, 10_000)
    async with running(ring, inventory) as supervisor:
        assert list(supervisor.slots) == ["mlx5_0:1"]
        await sampled_anew(ring, 0)
        (notice,) = supervisor.fabric.notices
        assert "has no space for port mlx5_1:1" in notice
    ring.close()


async def test_a_later_port_without_space_does_not_affect_the_others(
    tiny_tmpfs: Path,
    inventory: ListedInventory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ring = RingFile.create(tiny_tmpfs / "ring", INTERVAL_NS, 10_000)
    whole, inventory.fabric = inventory.fabric, Fabric(inventory.fabric.ports[:1])
    async with running(ring, inventory) as supervisor:
        await sampled_anew(ring, 0)
        inventory.fabric = whole
        await scanned_anew(inventory)
        assert list(supervisor.slots) == ["mlx5_0:1"]
        await sampled_anew(ring, 0)
    said = [record.message for record in caplog.records if "no space" in record.message]
    assert len(said) == 1
    assert said[0].endswith("give ring.dir more space or shorten sampler.history; the port is not sampled")
    ring.close()
