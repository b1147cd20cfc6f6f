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

pytestmark = pytest.mark.needs("fuse")


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


def pass_time(fabric: FuseFabric, seconds: float) -> None:
    """Lets the schedule go on; its clock is real, so there is nothing to wait for but time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.005)


def test_a_read_is_the_schedule_at_the_moment_of_the_read(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_2", "port_rcv_data") as descriptor:
        for _ in range(100):
            before = time.monotonic_ns()
            words = read(descriptor) - START_WORDS[1] - 2
            after = time.monotonic_ns()
            least, most = (fabric.schedule.port_bytes(at_ns, 2, 1) // 4 for at_ns in (before, after))
            assert least <= words <= most


def test_the_truth_between_two_reads_is_what_they_counted(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_0") as descriptor:
        instants = [time.monotonic_ns()]
        first = read(descriptor)
        instants.append(time.monotonic_ns())
        pass_time(fabric, 0.3)
        instants.append(time.monotonic_ns())
        last = read(descriptor)
        instants.append(time.monotonic_ns())
    inner, outer = (
        fabric.truth(begin, end, end - begin, rails=[0], directions=(0,)).total_bytes
        for begin, end in ((instants[1], instants[2]), (instants[0], instants[3]))
    )
    assert inner - 4 <= (last - first) * 4 <= outer + 4


def test_the_tree_is_shaped_as_sysfs(fabric: FuseFabric) -> None:
    base = fabric.root / "class/infiniband"
    assert sorted(os.listdir(base)) == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_an0"]
    assert (base / "mlx5_1/ports/1/rate").read_text() == "400 Gb/sec (4X NDR)\n"
    assert (base / "mlx5_an0/ports/1/link_layer").read_text() == "Ethernet\n"
    assert (base / "mlx5_1/device/driver").resolve().name == "mlx5_core"
    assert fabric.counter_path("mlx5_0").stat().st_size == 4096
    assert len(os.listdir(fabric.counter_path("mlx5_0").parent)) == 21
    assert not (base / "mlx5_9").exists()
    with pytest.raises(OSError, match="Read-only"):
        (base / "mlx5_1/ports/1/rate").write_text("1")


def test_packets_and_errors_can_be_read(fabric: FuseFabric) -> None:
    assert int(fabric.counter_path("mlx5_0", "port_xmit_packets").read_text()) > 10**11
    assert fabric.counter_path("mlx5_0", "symbol_error").read_text() == "0\n"


def test_a_second_read_at_the_end_gives_nothing(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_0") as descriptor:
        assert os.pread(descriptor, 64, 64) == b""


def test_a_hung_read_blocks_nobody_else_and_ends_when_released(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_0") as sick, opened(fabric, "mlx5_1") as well:
        fabric.set("mlx5_0", hang_seconds=60)
        done = threading.Event()
        readers = [threading.Thread(target=lambda: (read(sick), done.set())) for _ in range(20)]
        for reader in readers:
            reader.start()
        eventually(lambda: fabric.hung_reads("mlx5_0") == len(readers))
        assert read(well) > 0
        assert int(fabric.counter_path("mlx5_2").read_text()) > 0
        assert not done.is_set()
        fabric.clear()
        for reader in readers:
            reader.join(10)
        assert done.is_set()
    assert fabric.hung_reads("mlx5_0") == 0


def test_a_hang_of_a_time_ends_by_itself_and_reads_the_value_then(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_0") as descriptor:
        fabric.set("mlx5_0", hang_seconds=0.2)
        begin_ns = time.monotonic_ns()
        words = read(descriptor) - START_WORDS[0]
        assert time.monotonic_ns() - begin_ns >= 190_000_000
    assert words >= fabric.schedule.port_bytes(begin_ns + 190_000_000, 0, 0) // 4


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO, errno.ENODEV], ids=errno.errorcode.get)
def test_a_read_fails_as_told_and_recovers(fabric: FuseFabric, number: int) -> None:
    with opened(fabric, "mlx5_0") as descriptor:
        fabric.set("mlx5_0", errno=number)
        assert error_of(descriptor) == number
        assert (fabric.root / "class/infiniband/mlx5_0/ports/1/state").read_text() == "4: ACTIVE\n"
        fabric.clear()
        assert error_of(descriptor) is None


def test_a_rule_can_be_for_some_files_only(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_0") as transmit, opened(fabric, "mlx5_0", "port_rcv_data") as receive:
        fabric.set("mlx5_0", errno=errno.EIO, files=("port_rcv_data", "state"))
        assert (error_of(transmit), error_of(receive)) == (None, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            (fabric.root / "class/infiniband/mlx5_0/ports/1/state").read_text()


def test_a_vanished_device_leaves_the_class_and_kills_its_handles_for_ever(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_3") as old, opened(fabric, "mlx5_1") as other:
        fabric.set("mlx5_3", vanished=True)
        assert error_of(old) == errno.ENODEV
        assert "mlx5_3" not in os.listdir(fabric.root / "class/infiniband")
        assert not fabric.counter_path("mlx5_3").exists()
        assert error_of(other) is None
        at_ns = fabric.set("mlx5_3")
        assert error_of(old) == errno.ENODEV
        with opened(fabric, "mlx5_3") as new:
            assert read(new) <= fabric.schedule.port_bytes(time.monotonic_ns() - at_ns + fabric.start_ns, 0, 0) // 4 + 1


def test_a_hung_read_of_a_device_that_vanishes_fails(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_3") as descriptor:
        fabric.set("mlx5_3", hang_seconds=60)
        seen: list[int | None] = []
        reader = threading.Thread(target=lambda: seen.append(error_of(descriptor)))
        reader.start()
        eventually(lambda: fabric.hung_reads("mlx5_3") == 1)
        fabric.set("mlx5_3", vanished=True)
        reader.join(10)
    assert seen == [errno.ENODEV]


def test_a_reset_starts_again_at_zero(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_3") as descriptor:
        at_ns = fabric.set("mlx5_3", reset=True)
        words = read(descriptor)
    assert 0 <= words * 4 <= (time.monotonic_ns() - at_ns) * 4 + 4


def test_a_saturated_counter_stays_at_its_limit(fabric: FuseFabric) -> None:
    fabric.set("mlx5_0", value=2**32 - 1, files=("port_xmit_wait",))
    assert fabric.counter_path("mlx5_0", "port_xmit_wait").read_text() == "4294967295\n"
    assert int(fabric.counter_path("mlx5_0").read_text()) > 2**32


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


def test_a_slow_rail_counts_its_part_and_a_stuck_one_nothing(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_0") as slow, opened(fabric, "mlx5_1") as stuck, opened(fabric, "mlx5_2") as whole:
        fabric.set("mlx5_0", factor=0.25)
        fabric.set("mlx5_1", stuck=True)
        first = read(slow), read(stuck), read(whole)
        pass_time(fabric, 0.3)
        moved = read(slow) - first[0], read(stuck) - first[1], read(whole) - first[2]
    assert moved[0] / moved[2] == pytest.approx(0.25, rel=0.15)
    assert moved[1] == 0


def test_a_link_that_is_down_says_so(fabric: FuseFabric) -> None:
    fabric.set("mlx5_0", down=True)
    port = fabric.root / "class/infiniband/mlx5_0/ports/1"
    assert (port / "state").read_text() == "1: DOWN\n"
    assert (port / "rate").read_text() == "10 Gb/sec (4X SDR)\n"


def test_a_flap_shows_in_link_downed_alone(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_0", "link_downed") as descriptor, opened(fabric, "mlx5_0") as counter:
        before, words = read(descriptor), read(counter)
        fabric.set("mlx5_0", flapped=True)
        assert read(descriptor) == before + 1
        assert read(counter) > words
    assert (fabric.root / "class/infiniband/mlx5_0/ports/1/state").read_text() == "4: ACTIVE\n"


def test_no_change_of_a_rule_makes_a_counter_fall(fabric: FuseFabric) -> None:
    stop = threading.Event()
    fell: list[int] = []

    def watch() -> None:
        with opened(fabric, "mlx5_0") as descriptor:
            last = read(descriptor)
            while not stop.is_set():
                now = read(descriptor)
                fell.extend([last - now] if now < last else [])
                last = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(100):
        fabric.set("mlx5_0", stuck=True)
        fabric.set("mlx5_0", factor=0.5)
    stop.set()
    watcher.join()
    assert fell == []


def test_a_wrong_command_is_refused_and_the_fabric_lives_on(fabric: FuseFabric) -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'mlx5_9'"):
        fabric.set("mlx5_9", stuck=True)
    assert fabric.set("mlx5_0", stuck=True) > 0


def test_a_hundred_ports_are_served_and_unmounted_again(tmp_path: Path) -> None:
    with FuseFabric(tmp_path / "sys", "moe", ports=104) as fabric:
        assert len(os.listdir(fabric.root / "class/infiniband")) == 104
        assert int(fabric.counter_path("mlx5_103").read_text()) >= START_WORDS[0] + 103
    assert os.listdir(tmp_path / "sys") == []
    with pytest.raises(RuntimeError, match="not mounted: use it as a context manager"):
        FuseFabric(tmp_path / "sys").clear()


def test_a_server_that_dies_is_named_and_leaves_no_mount(tmp_path: Path) -> None:
    with FuseFabric(tmp_path / "sys", "idle", ports=1) as fabric:
        assert fabric._server is not None
        fabric._server.kill()
        with pytest.raises((RuntimeError, BrokenPipeError)):
            fabric.clear()
    assert os.listdir(tmp_path / "sys") == []


def test_a_delayed_read_takes_its_time_and_counts_at_a_moment_of_it(fabric: FuseFabric) -> None:
    with opened(fabric, "mlx5_0") as slow, opened(fabric, "mlx5_0", "port_rcv_data") as quick:
        quick_ns = []
        for _ in range(5):
            earlier = read(slow)
            fabric.set("mlx5_0", delay_seconds=0.05, files=("port_xmit_data",))
            before = time.monotonic_ns()
            read(quick)
            between = time.monotonic_ns()
            delayed = read(slow)
            after = time.monotonic_ns()
            fabric.clear()
            assert earlier < delayed < read(slow)
            # the other read takes a fraction of a millisecond, and more only while the machine is busy
            assert after - between >= 50_000_000
            quick_ns.append(between - before)
        assert min(quick_ns) < 50_000_000


def test_other_texts_stand_in_place_of_those_of_the_link(fabric: FuseFabric) -> None:
    port = fabric.root / "class/infiniband/mlx5_0/ports/1"
    fabric.set("mlx5_0", texts={"rate": "200 Gb/sec (4X HDR)\n", "phys_state": ""})
    assert (port / "rate").read_text() == "200 Gb/sec (4X HDR)\n"
    assert (port / "phys_state").read_text() == ""
    assert (port / "state").read_text() == "4: ACTIVE\n"
    fabric.clear()
    assert (port / "rate").read_text() == "400 Gb/sec (4X NDR)\n"


def test_every_file_can_hang_and_then_shows_the_rule_of_that_moment(fabric: FuseFabric) -> None:
    port = fabric.root / "class/infiniband/mlx5_0/ports/1"
    fabric.set("mlx5_0", hang_seconds=60, files=EVERY_FILE)
    texts: dict[str, str] = {}
    names = ("state", "rate", "counters/port_xmit_data", "hw_counters/lifespan")
    readers = [
        threading.Thread(target=lambda name=name: texts.update({name: (port / name).read_text()})) for name in names
    ]
    for reader in readers:
        reader.start()
    eventually(lambda: fabric.hung_reads("mlx5_0") == len(names))
    assert texts == {}
    fabric.set("mlx5_0", down=True)
    for reader in readers:
        reader.join(10)
    assert sorted(texts) == sorted(names)
    assert (texts["state"], texts["rate"]) == ("1: DOWN\n", "10 Gb/sec (4X SDR)\n")


def test_a_device_returns_with_its_guid(fabric: FuseFabric) -> None:
    guid = fabric.root / "class/infiniband/mlx5_3/node_guid"
    before = guid.read_text()
    fabric.set("mlx5_3", vanished=True)
    assert not guid.exists()
    fabric.set("mlx5_3")
    assert guid.read_text() == before


@pytest.mark.parametrize("name", ["<b>&", "a\nb", "mlx5_\udcff", "x" * 200], ids=ascii)
def test_a_device_can_have_any_name(fabric: FuseFabric, name: str) -> None:
    base = fabric.root / "class/infiniband"
    with opened(fabric, "mlx5_3") as old:
        fabric.set("mlx5_3", name=name)
        assert sorted(os.listdir(base)) == sorted(["mlx5_0", "mlx5_1", "mlx5_2", name, "mlx5_an0"])
        assert not (base / "mlx5_3").exists()
        assert int((base / name / "ports/1/counters/port_xmit_data").read_text()) >= read(old) - 10**9
        fabric.clear()
        assert not (base / name).exists()
        assert (base / "mlx5_3/ports/1/state").read_text() == "4: ACTIVE\n"


def test_a_port_can_have_any_number(fabric: FuseFabric) -> None:
    ports = fabric.root / "class/infiniband/mlx5_3/ports"
    fabric.set("mlx5_3", port="999")
    assert os.listdir(ports) == ["999"]
    assert (ports / "999/state").read_text() == "4: ACTIVE\n"
    assert len(os.listdir(ports / "999/counters")) == 21
    assert not (ports / "1/state").exists()
    fabric.clear()
    assert os.listdir(ports) == ["1"]
