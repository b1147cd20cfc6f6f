"""The exact fabric itself: each read is the schedule at that moment, and each rule does what it says."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from ibpulse.workbench.simulate.fabric import START_WORDS
from tests.fusefabric import EVERY_FILE, FuseFabric
from tests.running import eventually
from tests.tables import for_each

pytestmark = pytest.mark.needs("fuse")
SENT, RECEIVED = "counters/port_xmit_data", "counters/port_rcv_data"


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuseFabric]:
    options = {"rate_bytes_per_second": 4e9}
    with FuseFabric(tmp_path_factory.mktemp("fuse") / "sys", "constant", options, ports=4, management=True) as fabric:
        yield fabric


@pytest.fixture
def fabric(mounted: FuseFabric) -> Iterator[FuseFabric]:
    yield mounted
    mounted.clear()


@contextmanager
def opened(fabric: FuseFabric, device: str, name: str = "port_xmit_data") -> Iterator[int]:
    descriptor = os.open(fabric.counter_path(device, name), os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read(descriptor: int) -> int:
    return int(os.pread(descriptor, 64, 0))


def error_of(descriptor: int) -> int | None:
    try:
        read(descriptor)
    except OSError as error:
        return error.errno
    return None


def port_of(fabric: FuseFabric, device: str) -> Path:
    return fabric.root / f"class/infiniband/{device}/ports/1"


def test_a_read_is_the_schedule_at_the_moment_of_the_read(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_2", "port_rcv_data") as descriptor:
        for _ in range(100):
            before = time.monotonic_ns()
            words = read(descriptor) - START_WORDS[1] - 2
            after = time.monotonic_ns()
            least, most = (fabric.schedule.port_bytes(at_ns, 2, 1) // 4 for at_ns in (before, after))
            assert least <= words <= most
        assert os.pread(descriptor, 64, 64) == b""


def test_the_tree_is_shaped_as_sysfs(fabric: FuseFabric) -> None:
    base = fabric.root / "class/infiniband"
    assert sorted(os.listdir(base)) == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_an0"]
    assert (base / "mlx5_an0/ports/1/link_layer").read_text() == "Ethernet\n"
    assert (base / "mlx5_1/device/driver").resolve().name == "mlx5_core"
    assert fabric.counter_path("mlx5_0").stat().st_size == 4096
    assert len(os.listdir(fabric.counter_path("mlx5_0").parent)) == 21
    with pytest.raises(OSError, match="Read-only"):
        (base / "mlx5_1/ports/1/rate").write_text("1")


@for_each(
    [
        ({}, {"state": "4: ACTIVE\n", "rate": "400 Gb/sec (4X NDR)\n", "counters/symbol_error": "0\n"}),
        ({"flapped": True}, {"state": "4: ACTIVE\n", "counters/link_downed": "1\n"}),
        ({"down": True}, {"state": "1: DOWN\n", "rate": "10 Gb/sec (4X SDR)\n"}),
        ({"texts": {"rate": "200 Gb/sec (4X HDR)\n"}}, {"state": "4: ACTIVE\n", "rate": "200 Gb/sec (4X HDR)\n"}),
        ({"texts": {"phys_state": ""}}, {"phys_state": ""}),
        ({"value": 2**32 - 1, "files": ("port_xmit_wait",)}, {"counters/port_xmit_wait": "4294967295\n"}),
    ]
)
def test_a_rule_changes_what_a_file_says(rule: dict[str, object], texts: dict[str, str], fabric: FuseFabric) -> None:
    fabric.set("mlx5_3", **rule)
    assert {name: (port_of(fabric, "mlx5_3") / name).read_text() for name in texts} == texts


@for_each(
    [
        *((number, (), number, number) for number in (errno.EINVAL, errno.EIO, errno.ENODEV)),
        (errno.EIO, ("port_rcv_data",), None, errno.EIO),
    ]
)
def test_a_read_fails_as_told_and_recovers(
    number: int, files: tuple[str, ...], sent: int | None, received: int | None, fabric: FuseFabric
) -> None:
    with opened(fabric, "mlx5_0") as transmit, opened(fabric, "mlx5_0", "port_rcv_data") as receive:
        fabric.set("mlx5_0", errno=number, **({"files": files} if files else {}))
        assert (error_of(transmit), error_of(receive)) == (sent, received)
        assert (port_of(fabric, "mlx5_0") / "state").read_text() == "4: ACTIVE\n"
        fabric.clear()
        assert (error_of(transmit), error_of(receive)) == (None, None)


def test_every_file_can_hang_blocks_nobody_else_and_then_shows_the_rule_of_that_moment(fabric: FuseFabric) -> None:
    names = ("state", SENT, RECEIVED, "hw_counters/lifespan")
    texts: dict[str, str] = {}
    with opened(fabric, "mlx5_0") as well:
        fabric.set("mlx5_1", hang_seconds=60, files=EVERY_FILE)

        def look(name: str) -> None:
            texts[name] = (port_of(fabric, "mlx5_1") / name).read_text()

        readers = [threading.Thread(target=look, args=(name,)) for name in names]
        for reader in readers:
            reader.start()
        eventually(lambda: fabric.hung_reads("mlx5_1") == len(names))
        assert read(well) > 0
        assert texts == {}
        fabric.set("mlx5_1", down=True)
        for reader in readers:
            reader.join(10)
    assert sorted(texts) == sorted(names)
    assert texts["state"] == "1: DOWN\n"
    assert fabric.hung_reads("mlx5_1") == 0


def test_a_hang_of_a_time_ends_by_itself_and_reads_the_value_then(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_0") as descriptor:
        fabric.set("mlx5_0", hang_seconds=0.2)
        begin_ns = time.monotonic_ns()
        words = read(descriptor) - START_WORDS[0]
        assert time.monotonic_ns() - begin_ns >= 190_000_000
    assert words >= fabric.schedule.port_bytes(begin_ns + 190_000_000, 0, 0) // 4


def test_a_vanished_device_kills_its_handles_for_ever_and_returns_with_its_guid(fabric: FuseFabric) -> None:
    guid = fabric.root / "class/infiniband/mlx5_3/node_guid"
    before, seen = guid.read_text(), []
    with opened(fabric, "mlx5_3") as old, opened(fabric, "mlx5_1") as other:
        fabric.set("mlx5_3", hang_seconds=60)
        reader = threading.Thread(target=lambda: seen.append(error_of(old)))
        reader.start()
        eventually(lambda: fabric.hung_reads("mlx5_3") == 1)
        fabric.set("mlx5_3", vanished=True)
        reader.join(10)
        assert seen == [errno.ENODEV]
        assert "mlx5_3" not in os.listdir(fabric.root / "class/infiniband")
        assert error_of(other) is None
        at_ns = fabric.set("mlx5_3")
        assert error_of(old) == errno.ENODEV
        with opened(fabric, "mlx5_3") as new:
            assert read(new) <= fabric.schedule.port_bytes(time.monotonic_ns() - at_ns + fabric.start_ns, 0, 0) // 4 + 1
    assert guid.read_text() == before


def test_a_reset_starts_again_at_zero(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_3") as descriptor:
        at_ns = fabric.set("mlx5_3", reset=True)
        words = read(descriptor)
    assert 0 <= words * 4 <= (time.monotonic_ns() - at_ns) * 4 + 4


def test_old_values_repeat_between_refreshes(fabric: FuseFabric) -> None:
    words_per_refresh = 100_000_000  # 100 ms at 4 GB/s
    at_ns = fabric.set("mlx5_0", refresh_ns=100_000_000)
    seen = []
    with opened(fabric, "mlx5_0") as descriptor:
        while time.monotonic_ns() < at_ns + 450_000_000:
            seen.append(read(descriptor))
            time.sleep(0.001)
    # the first value may stand from the moment of the change
    steps = {later - earlier for earlier, later in pairwise(sorted(set(seen))[1:])}
    assert len(seen) > len(set(seen)) > 2
    assert all(min(step % words_per_refresh, -step % words_per_refresh) <= 1 for step in steps)


def test_a_slow_rail_counts_its_part_a_stuck_one_nothing_and_none_falls(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_0") as slow, opened(fabric, "mlx5_1") as stuck, opened(fabric, "mlx5_2") as whole:
        fabric.set("mlx5_0", factor=0.25)
        fabric.set("mlx5_1", stuck=True)
        first = read(slow), read(stuck), read(whole)
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            time.sleep(0.005)
        moved = read(slow) - first[0], read(stuck) - first[1], read(whole) - first[2]
        assert moved[0] / moved[2] == pytest.approx(0.25, rel=0.15)
        assert moved[1] == 0
        seen = []
        for _ in range(50):
            for rule in ({"stuck": True}, {"factor": 0.5}):
                fabric.set("mlx5_0", **rule)
                seen.append(read(slow))
        assert seen == sorted(seen)


def test_a_delayed_read_takes_its_time_and_counts_at_a_moment_of_it(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_0") as slow:
        earlier = read(slow)
        fabric.set("mlx5_0", delay_seconds=0.05, files=("port_xmit_data",))
        before = time.monotonic_ns()
        delayed = read(slow)
        assert time.monotonic_ns() - before >= 50_000_000
        fabric.clear()
        assert earlier < delayed < read(slow)


def test_a_wrong_command_is_refused_and_the_fabric_lives_on(fabric: FuseFabric) -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'mlx5_9'"):
        fabric.set("mlx5_9", stuck=True)
    assert fabric.set("mlx5_0", stuck=True) > 0


def test_a_hundred_ports_are_served_and_a_server_that_dies_leaves_no_mount(tmp_path: Path) -> None:
    with FuseFabric(tmp_path / "sys", "moe", ports=104) as fabric:
        assert len(os.listdir(fabric.root / "class/infiniband")) == 104
        assert fabric._server is not None
        fabric._server.kill()
        with pytest.raises((RuntimeError, BrokenPipeError)):
            fabric.clear()
    assert os.listdir(tmp_path / "sys") == []


@for_each(["<b>&", "a\nb", "mlx5_\udcff", "x" * 200])
def test_a_device_can_have_any_name(name: str, fabric: FuseFabric) -> None:
    base = fabric.root / "class/infiniband"
    fabric.set("mlx5_3", name=name)
    assert sorted(os.listdir(base)) == sorted(["mlx5_0", "mlx5_1", "mlx5_2", name, "mlx5_an0"])
    assert int((base / name / "ports/1" / SENT).read_text()) > 0
    fabric.clear()
    assert (port_of(fabric, "mlx5_3") / "state").read_text() == "4: ACTIVE\n"


def test_a_port_can_have_any_number(fabric: FuseFabric) -> None:
    ports = fabric.root / "class/infiniband/mlx5_3/ports"
    fabric.set("mlx5_3", port="999")
    assert os.listdir(ports) == ["999"]
    assert len(os.listdir(ports / "999/counters")) == 21
    fabric.clear()
    assert os.listdir(ports) == ["1"]
