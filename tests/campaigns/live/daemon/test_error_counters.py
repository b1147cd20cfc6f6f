"""Error counters through the whole daemon: totals over resets, full counters, files that refuse, a file that hangs."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.simulate.tree import COUNTERS, HW_COUNTERS
from tests.fusefabric.client import FuseFabric, why_not
from tests.running import Running, eventually

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not())]

RATE = 20e9
PORTS = 8
REMARK = "some of its error counters have no value"


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuseFabric]:
    mountpoint = tmp_path_factory.mktemp("fabric") / "sys"
    with FuseFabric(mountpoint, "constant", {"rate_bytes_per_second": RATE}, ports=PORTS) as mounted:
        yield mounted


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, fabric: FuseFabric) -> Iterator[Running]:
    ring = tmp_path_factory.mktemp("daemon") / "ring"
    with Running(fabric.root, ring, "--slow.interval=1s", "--slow.xmit-wait-tick=8") as running:
        yield running


@pytest.fixture(autouse=True)
def healthy(fabric: FuseFabric) -> Iterator[None]:
    yield
    fabric.clear()


def symbol_errors(daemon: Running, device: str) -> float | None:
    found = daemon.metrics().find("ibpulse_symbol_error_total", device=device)
    return next(iter(found.values()), None)


def is_sampled(daemon: Running, device: str) -> bool:
    """Whether its newest 200 ms have the rate of the fabric, in all samples but those that were late."""
    known = [rate for rate in daemon.window("200ms")[f"{device}:1 transmit"] if rate is not None]
    return len(known) > 10 and known == pytest.approx([RATE] * len(known), rel=0.2)


def test_a_healthy_port_has_its_counters_and_no_more(daemon: Running) -> None:
    metrics = daemon.metrics()
    found = {
        name
        for name, labels in metrics.samples
        if name.endswith("_total") and {("device", "mlx5_7"), ("port", "1")} == labels
    }
    assert {"ibpulse_symbol_error_total", "ibpulse_local_ack_timeout_errors_total"} <= found
    assert "ibpulse_np_cnp_packets_sent_total" not in found
    assert not metrics.find("ibpulse_port_counter_saturated")


def test_a_total_goes_on_over_a_reset(daemon: Running, fabric: FuseFabric) -> None:
    fabric.set("mlx5_1", value=100, files=("symbol_error",))
    eventually(lambda: symbol_errors(daemon, "mlx5_1") == 100)
    fabric.set("mlx5_1", value=30, files=("symbol_error",))
    eventually(lambda: symbol_errors(daemon, "mlx5_1") == 130)
    fabric.set("mlx5_1", value=35, files=("symbol_error",))
    eventually(lambda: symbol_errors(daemon, "mlx5_1") == 135)


def test_a_total_goes_on_when_its_device_was_away(daemon: Running, fabric: FuseFabric) -> None:
    fabric.set("mlx5_2", value=50, files=("symbol_error",))
    eventually(lambda: symbol_errors(daemon, "mlx5_2") == 50)
    fabric.set("mlx5_2", vanished=True)
    eventually(lambda: symbol_errors(daemon, "mlx5_2") is None)
    fabric.set("mlx5_2", value=4, files=("symbol_error",))
    eventually(lambda: symbol_errors(daemon, "mlx5_2") == 54)


def test_a_full_counter_is_named_until_it_is_cleared(daemon: Running, fabric: FuseFabric) -> None:
    name = "ibpulse_port_counter_saturated"
    fabric.set("mlx5_3", value=65535, files=("port_xmit_discards",))
    eventually(lambda: daemon.metrics().find(name))
    assert daemon.metrics().find(name) == {
        frozenset({("device", "mlx5_3"), ("port", "1"), ("counter", "port_xmit_discards")}): 1
    }
    fabric.clear()
    eventually(lambda: not daemon.metrics().find(name))


def test_the_stalled_share_is_absent_while_its_counter_is_full(daemon: Running, fabric: FuseFabric) -> None:
    name = "ibpulse_port_transmit_stalled_ratio"
    eventually(lambda: len(daemon.metrics().find(name)) == PORTS)
    assert set(daemon.metrics().find(name).values()) == {0.0}
    fabric.set("mlx5_3", value=2**32 - 1, files=("port_xmit_wait",))
    eventually(lambda: not daemon.metrics().find(name, device="mlx5_3"))


def test_a_counter_that_hangs_leaves_the_others_fresh(daemon: Running, fabric: FuseFabric) -> None:
    fabric.set("mlx5_4", hang_seconds=60.0, files=("out_of_sequence",))
    fabric.set("mlx5_5", value=11, files=("symbol_error",))
    eventually(lambda: symbol_errors(daemon, "mlx5_4") is None)
    eventually(lambda: symbol_errors(daemon, "mlx5_5") == 11)
    fabric.set("mlx5_5", value=12, files=("symbol_error",))
    eventually(lambda: symbol_errors(daemon, "mlx5_5") == 12)
    metrics = daemon.metrics()
    # its bytes are sampled and its status is the last that was known
    assert metrics.port("up", "mlx5_4") == 1
    eventually(lambda: is_sampled(daemon, "mlx5_4"))
    fabric.clear()
    eventually(lambda: symbol_errors(daemon, "mlx5_4") is not None)


def test_hundreds_of_refusing_files_are_a_few_lines(daemon: Running, fabric: FuseFabric) -> None:
    files = (*HW_COUNTERS, *(name for name in COUNTERS if name not in ("port_xmit_data", "port_rcv_data")))
    for number in range(PORTS):
        fabric.set(f"mlx5_{number}", errno=errno.EINVAL, files=files)
    assert PORTS * len(files) > 300
    eventually(lambda: symbol_errors(daemon, "mlx5_0") is None)
    eventually(lambda: REMARK in daemon.log())
    time.sleep(4.0)
    lines = [line for line in daemon.log().splitlines() if REMARK in line]
    # ports that came to it in one scan share a line
    assert 1 <= len(lines) <= PORTS
    assert all("which cannot be read: Invalid argument" in line for line in lines)
    assert not daemon.metrics().find("ibpulse_symbol_error_total")
    eventually(lambda: is_sampled(daemon, "mlx5_0"))


def test_all_counters_can_be_asked_for(tmp_path: Path, fabric: FuseFabric) -> None:
    with Running(fabric.root, tmp_path / "ring", "--slow.counters=all") as daemon:
        metrics = daemon.metrics()
    sent = metrics.value("ibpulse_port_data_transmitted_bytes_total", device="mlx5_0", port="1")
    assert sent > metrics.port("transmit_bytes_total", "mlx5_0")
    assert metrics.find("ibpulse_np_cnp_packets_sent_total", device="mlx5_0")


def test_no_counters_can_be_asked_for(tmp_path: Path, fabric: FuseFabric) -> None:
    with Running(fabric.root, tmp_path / "ring", "--slow.counters=none") as daemon:
        assert not daemon.metrics().find("ibpulse_link_downed_total")
