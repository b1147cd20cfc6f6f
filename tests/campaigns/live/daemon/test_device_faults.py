"""What goes wrong on a node, done to a running daemon: no false rate, no false peak, holes where nothing was read."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fusefabric.client import FuseFabric, why_not
from tests.running import Running, eventually

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not())]

RATE = 20e9
# instants are uncertain by up to 5 % of the interval at both ends, and a sample may be half an interval long
TOLERANCE = 0.2


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[FuseFabric]:
    """Four ports at a constant 20 GB/s in each direction, computed at the moment of each read."""
    with FuseFabric(tmp_path / "sys", "constant", {"rate_bytes_per_second": RATE}, ports=4) as mounted:
        yield mounted


@pytest.fixture
def daemon(tmp_path: Path, fabric: FuseFabric) -> Iterator[Running]:
    with Running(fabric.root, tmp_path / "ring", "--slow.interval=1s") as running:
        time.sleep(2.0)
        yield running
        # no process ends before its hung reads do
        fabric.clear()


def known(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def longest_hole(values: list[float | None]) -> int:
    """Ticks of the longest run without a sample, after the first sample."""
    longest = run = 0
    begin = next((index for index, value in enumerate(values) if value is not None), len(values))
    for value in values[begin:]:
        run = run + 1 if value is None else 0
        longest = max(longest, run)
    return longest


def assert_no_false_rate(daemon: Running, last: str, **stopped: bool) -> None:
    """Every sample of the window is the constant rate; on the devices named it may fall to 0, over one sample."""
    for name, values in daemon.window(last).items():
        for index, value in enumerate(values):
            between = value is not None and name.split(":")[0] in stopped and 0 <= value <= RATE * (1 + TOLERANCE)
            if value is not None and not between:
                story = f"{name}: sample {index} of {len(values)}, among {values[max(0, index - 3) : index + 4]}"
                assert value == pytest.approx(RATE, rel=TOLERANCE), story


def assert_no_false_peak(daemon: Running) -> None:
    for way in ("transmit", "receive"):
        for peak in daemon.metrics().find(f"ibpulse_port_{way}_peak_bytes_per_second", window="10s").values():
            assert peak < RATE * (1 + TOLERANCE)


def test_a_killed_sampler_is_started_again_and_leaves_a_hole(daemon: Running) -> None:
    before = daemon.metrics()
    os.kill(daemon.sampler_pids()[0], signal.SIGKILL)
    eventually(lambda: daemon.metrics().value("ibpulse_sampler_restarts_total") == 1)
    time.sleep(2.5)
    assert_no_false_rate(daemon, "6s")
    assert_no_false_peak(daemon)
    after = daemon.metrics()
    missed = after.value("ibpulse_sampler_missed_ticks_total") - before.value("ibpulse_sampler_missed_ticks_total")
    hole = longest_hole(daemon.window("6s")["mlx5_0:1 transmit"])
    assert 1 <= hole < 100
    # the first sample after the hole has no rate, nor has one that was read too slowly to be timed, or the one after it
    slow = [
        sum(metrics.find("ibpulse_sampler_uncertain_reads_total", device="mlx5_0").values())
        for metrics in (before, after)
    ]
    assert missed + 2 * (slow[1] - slow[0]) >= hole - 1
    assert "; restarting it" in daemon.log()


def test_totals_count_on_over_the_hole_of_a_killed_sampler(daemon: Running, fabric: FuseFabric) -> None:
    os.kill(daemon.sampler_pids()[0], signal.SIGKILL)
    eventually(lambda: daemon.metrics().value("ibpulse_sampler_restarts_total") == 1)
    time.sleep(2.0)
    first = daemon.metrics()
    time.sleep(4.0)
    second = daemon.metrics()
    covered = second.value("ibpulse_aggregated_until_timestamp_seconds") - first.value(
        "ibpulse_aggregated_until_timestamp_seconds"
    )
    for device in ("mlx5_0", "mlx5_3"):
        moved = second.port("transmit_bytes_total", device) - first.port("transmit_bytes_total", device)
        assert moved == pytest.approx(RATE * covered, rel=0.01)


def test_a_killed_daemon_finds_its_history_again(daemon: Running, tmp_path: Path, fabric: FuseFabric) -> None:
    sampler = daemon.sampler_pids()[0]
    daemon.stop(signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{sampler}").exists() or "Z" in Path(f"/proc/{sampler}/stat").read_text(), 5.0)
    time.sleep(1.0)
    daemon.start()
    values = daemon.window("10s")["mlx5_0:1 transmit"]
    hole = longest_hole(values)
    begin = next(index for index, value in enumerate(values) if value is not None)
    assert hole >= 100
    # samples of the first run, the hole in which nothing ran, samples of the second
    assert len(known(values[begin:])) > 200
    assert known(values[begin : begin + 50])
    assert values[-50:] != [None] * 50
    assert_no_false_rate(daemon, "10s")
    assert_no_false_peak(daemon)
    metrics = daemon.metrics()
    # counters of the new process tell of the new process alone
    assert metrics.port("observed_seconds_total", "mlx5_0") < 30
    assert metrics.value("ibpulse_sampler_missed_ticks_total") < 100


def test_a_machine_suspended_for_five_seconds_has_a_hole_of_five_seconds(daemon: Running) -> None:
    before = daemon.metrics().port("transmit_bytes_total", "mlx5_0")
    begin = daemon.metrics().value("ibpulse_aggregated_until_timestamp_seconds")
    pids = [daemon.pid, *daemon.sampler_pids()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(5.0)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    time.sleep(3.0)
    values = daemon.window("10s")["mlx5_0:1 transmit"]
    assert 480 <= longest_hole(values) <= 620
    assert_no_false_rate(daemon, "10s")
    assert_no_false_peak(daemon)
    metrics = daemon.metrics()
    assert metrics.value("ibpulse_sampler_missed_ticks_total") >= 480
    covered = metrics.value("ibpulse_aggregated_until_timestamp_seconds") - begin
    # bytes flowed while nobody looked: the total has them, the observed time does not
    assert metrics.port("transmit_bytes_total", "mlx5_0") - before == pytest.approx(RATE * covered, rel=0.01)


def test_a_hung_read_costs_the_other_ports_less_than_a_second(daemon: Running, fabric: FuseFabric) -> None:
    fabric.set("mlx5_1", hang_seconds=60.0)
    eventually(lambda: daemon.metrics().value("ibpulse_device_quarantined", device="mlx5_1") == 1)
    time.sleep(3.0)
    window = daemon.window("8s")
    for device in ("mlx5_0", "mlx5_2", "mlx5_3"):
        assert longest_hole(window[f"{device}:1 transmit"]) < 100
        assert known(window[f"{device}:1 transmit"][-50:])
    assert window["mlx5_1:1 transmit"][-100:] == [None] * 100
    assert_no_false_rate(daemon, "8s")
    assert daemon.metrics().value("ibpulse_sampler_takeovers_total") == 1
    assert "device mlx5_1: a read has hung" in daemon.log()


def test_a_device_that_answers_again_is_sampled_with_the_others(daemon: Running, fabric: FuseFabric) -> None:
    fabric.set("mlx5_1", hang_seconds=60.0)
    eventually(lambda: daemon.metrics().value("ibpulse_device_quarantined", device="mlx5_1") == 1)
    fabric.clear()
    eventually(lambda: known(daemon.window("200ms")["mlx5_1:1 transmit"]))
    eventually(lambda: daemon.metrics().value("ibpulse_device_quarantined", device="mlx5_1") == 0, 30.0)
    time.sleep(1.0)
    assert_no_false_rate(daemon, "20s")
    assert_no_false_peak(daemon)
    assert len(known(daemon.window("500ms")["mlx5_1:1 transmit"])) > 10


def test_a_port_that_refuses_is_left_alone_and_said_once(daemon: Running, fabric: FuseFabric) -> None:
    fabric.set("mlx5_2", errno=errno.EINVAL)
    eventually(lambda: daemon.metrics().port("left_alone", "mlx5_2") == 1)
    time.sleep(2.0)
    metrics = daemon.metrics()
    errors = metrics.value("ibpulse_sampler_read_errors_total", device="mlx5_2", port="1")
    # three tries of either file and at most one more each, where every tick would have made hundreds
    assert 6 <= errors <= 10
    assert daemon.log().count("port mlx5_2:1: a counter file keeps failing (EINVAL") == 1
    assert metrics.port("left_alone", "mlx5_0") == 0
    assert_no_false_rate(daemon, "5s")
    assert daemon.window("1s")["mlx5_2:1 transmit"] == [None] * 100


def test_one_bad_file_does_not_hide_the_other_direction(daemon: Running, fabric: FuseFabric) -> None:
    fabric.set("mlx5_2", errno=errno.EINVAL, files=("port_rcv_data",))
    eventually(lambda: daemon.metrics().port("left_alone", "mlx5_2") == 1)
    time.sleep(1.5)
    window = daemon.window("1s")
    assert known(window["mlx5_2:1 receive"]) == []
    assert len(known(window["mlx5_2:1 transmit"])) > 50
    assert_no_false_rate(daemon, "5s")


def test_a_reset_counter_is_counted_and_never_taken_as_traffic(daemon: Running, fabric: FuseFabric) -> None:
    before = daemon.metrics().port("transmit_bytes_total", "mlx5_0")
    fabric.set("mlx5_0", reset=True)
    eventually(lambda: daemon.metrics().port("resets_total", "mlx5_0") >= 1)
    time.sleep(1.5)
    assert_no_false_rate(daemon, "6s")
    assert_no_false_peak(daemon)
    after = daemon.metrics().port("transmit_bytes_total", "mlx5_0")
    assert before < after < before + RATE * 30


def state_of(daemon: Running, name: str) -> str:
    """The state of a port in the list of ports."""
    return next(port["state"] for port in daemon.ask("/api/v1/ports").json()["ports"] if port["name"] == name)


def test_a_device_that_vanishes_and_returns_is_followed(daemon: Running, fabric: FuseFabric) -> None:
    before = daemon.metrics().port("transmit_bytes_total", "mlx5_3")
    fabric.set("mlx5_3", vanished=True)
    eventually(lambda: state_of(daemon, "mlx5_3:1") == "disappeared")
    eventually(lambda: not daemon.metrics().find("ibpulse_port_up", device="mlx5_3"))
    fabric.clear()
    eventually(lambda: state_of(daemon, "mlx5_3:1") == "ACTIVE")
    eventually(lambda: daemon.metrics().find("ibpulse_port_transmit_bytes_total", device="mlx5_3"))
    time.sleep(2.5)
    assert_no_false_rate(daemon, "20s")
    assert_no_false_peak(daemon)
    assert before < daemon.metrics().port("transmit_bytes_total", "mlx5_3") < before + RATE * 60
    assert "its device disappeared (ENODEV" in daemon.log()


def test_a_link_that_flaps_has_no_utilisation_while_it_is_down(daemon: Running, fabric: FuseFabric) -> None:
    fabric.set("mlx5_0", down=True)
    eventually(lambda: daemon.metrics().port("up", "mlx5_0") == 0)
    assert not daemon.metrics().find("ibpulse_port_rate_bytes_per_second", device="mlx5_0")
    time.sleep(2.0)
    first = daemon.metrics().port("observed_seconds_total", "mlx5_0")
    time.sleep(2.0)
    assert daemon.metrics().port("observed_seconds_total", "mlx5_0") == first
    fabric.clear()
    eventually(lambda: daemon.metrics().port("up", "mlx5_0") == 1)
    eventually(lambda: daemon.metrics().port("observed_seconds_total", "mlx5_0") > first)
    assert_no_false_peak(daemon)


def test_a_slow_refresh_is_measured(tmp_path: Path, fabric: FuseFabric) -> None:
    fabric.set("mlx5_1", refresh_ns=100_000_000)
    resolution = "ibpulse_port_effective_resolution_seconds"
    with Running(fabric.root, tmp_path / "ring") as daemon:
        eventually(lambda: len(daemon.metrics().find(resolution)) == 4, 60.0, 0.5)
        metrics = daemon.metrics()
    assert metrics.value(resolution, device="mlx5_1", port="1") == pytest.approx(0.1, rel=0.15)
    assert metrics.value(resolution, device="mlx5_0", port="1") == pytest.approx(0.01, rel=0.15)


def test_a_stuck_counter_reads_as_no_traffic_and_hides_nobody(daemon: Running, fabric: FuseFabric) -> None:
    fabric.set("mlx5_1", stuck=True)
    time.sleep(2.5)
    assert set(known(daemon.window("1s")["mlx5_1:1 transmit"])) == {0.0}
    assert_no_false_rate(daemon, "4s", mlx5_1=True)
    assert_no_false_peak(daemon)


def test_two_hundred_refusing_files_cost_one_line_each_port(tmp_path: Path) -> None:
    with (
        FuseFabric(tmp_path / "sys", "constant", {"rate_bytes_per_second": RATE}, ports=101) as fabric,
        Running(fabric.root, tmp_path / "ring") as daemon,
    ):
        for number in range(1, 101):
            fabric.set(f"mlx5_{number}", errno=errno.EINVAL)
        eventually(lambda: sum(daemon.metrics().find("ibpulse_port_left_alone").values()) == 100, 30.0)
        time.sleep(2.0)
        before = sum(daemon.metrics().find("ibpulse_sampler_read_errors_total").values())
        time.sleep(3.0)
        assert sum(daemon.metrics().find("ibpulse_sampler_read_errors_total").values()) == before
        assert daemon.log().count("keeps failing") == 100

        def of_the_healthy_port() -> list[float] | None:
            found = known(daemon.window("1s", ["mlx5_0:1"])["mlx5_0:1 transmit"])
            return found if len(found) > 30 else None

        # a busy machine takes some seconds to catch up after so many refusals
        values = eventually(of_the_healthy_port, 30.0)
        assert all(value == pytest.approx(RATE, rel=TOLERANCE) for value in values)


def test_traffic_that_no_line_can_carry_is_left_as_it_is_and_said(daemon: Running, fabric: FuseFabric) -> None:
    """Loopback traffic: the counters of a port move 20 GB/s each way, and its line carries 12.5 GB/s."""
    fabric.set("mlx5_1", texts={"rate": "100 Gb/sec (4X EDR)\n"})

    def notices() -> list[str]:
        found = daemon.ask("/api/v1/ports").json()["notices"]
        return [notice for notice in found if "counts more than its line rate" in notice]

    (notice,) = eventually(notices, 30.0)
    assert notice.startswith("mlx5_1:1 counts more than its line rate of 12.5GB/s can carry")
    assert "loopback" in notice

    def unexplained() -> int:
        answer = daemon.ask("/api/v1/window", last="2s", port="mlx5_1:1", statistic="mean")
        assert answer.json()["implausible"]["merged"] == 0
        return int(answer.json()["implausible"]["unexplained"])

    # the change of the rate is uncertain by a second, and only rates after it are judged
    eventually(lambda: unexplained() > 100, 30.0)
    assert_no_false_rate(daemon, "2s")
    assert daemon.metrics().port("implausible_samples_total", "mlx5_0") == 0
    fabric.clear()
