"""A simulated fabric while it runs: counters, faults, workloads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.base.errors import ConfigError, FabricError
from ibpulse.workbench.simulate.fabric import REQUEST_BYTES, START_WAITS, START_WORDS, SimulatedFabric, parse_control
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.tree import SimulatedCounterFile
from ibpulse.workbench.simulate.workloads import DENSE, MOE, Constant, Stretched
from tests.running import HANG_SECONDS

SECOND = 1_000_000_000
TICK = 10_000_000
START = 1_700_000_000 * SECOND
RATE = 4e9  # 10 million words per tick


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[SimulatedFabric]:
    fabric = SimulatedFabric(tmp_path, Schedule(Constant(RATE), rails=2, start_ns=START), TICK, management=True)
    fabric.build(START)
    yield fabric
    fabric.close()


def port(fabric: SimulatedFabric, device: str) -> Path:
    return fabric.directory / "class/infiniband" / device / "ports/1"


def count(fabric: SimulatedFabric, device: str, name: str = "port_xmit_data") -> int:
    return int((port(fabric, device) / "counters" / name).read_text())


def advance(fabric: SimulatedFabric, seconds: float) -> int:
    """Writes each tick from where the fabric stands."""
    at_ns = getattr(fabric, "stands", START)
    end = at_ns + round(seconds * SECOND)
    while at_ns < end:
        at_ns += TICK
        fabric.write(at_ns)
    object.__setattr__(fabric, "stands", at_ns)
    return at_ns


def switch(fabric: SimulatedFabric, faults: dict[str, object]) -> None:
    """Write the faults file and let the fabric read it."""
    fabric.faults_file.write_text(json.dumps(faults))
    advance(fabric, 0.3)


WORDS_PER_SECOND = int(RATE / 4)


def moved(fabric: SimulatedFabric, device: str, seconds: float, name: str = "port_xmit_data") -> int:
    before = count(fabric, device, name)
    advance(fabric, seconds)
    return count(fabric, device, name) - before


def test_tree_stays_marked_as_simulated(fabric: SimulatedFabric) -> None:
    assert Inventory(fabric.directory, timeout_seconds=HANG_SECONDS).scan().simulated
    fabric.faults_file.unlink()
    advance(fabric, 0.3)
    assert Inventory(fabric.directory, timeout_seconds=HANG_SECONDS).scan().simulated


def test_counters_follow_the_schedule_exactly(fabric: SimulatedFabric) -> None:
    assert count(fabric, "mlx5_0") == START_WORDS[0]
    assert count(fabric, "mlx5_1", "port_rcv_data") == START_WORDS[1] + 1
    for tick in range(1, 50):
        fabric.write(START + tick * TICK)
        assert count(fabric, "mlx5_0") == START_WORDS[0] + tick * 10_000_000


def test_device_appears_with_its_counter_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedFabric, "write", lambda *_: None)
    fabric = SimulatedFabric(tmp_path, Schedule(Constant(RATE), rails=2, start_ns=START), TICK)
    fabric.build(START)
    fabric.close()
    assert count(fabric, "mlx5_0") == START_WORDS[0]
    assert count(fabric, "mlx5_1", "port_rcv_data") == START_WORDS[1] + 1
    assert count(fabric, "mlx5_0", "port_xmit_packets") > 0


def test_slow_and_trained_down_rails_carry_their_part(fabric: SimulatedFabric) -> None:
    switch(fabric, {"slow-rail": {"mlx5_0": 0.25}})
    assert moved(fabric, "mlx5_0", 1) == pytest.approx(WORDS_PER_SECOND / 4, abs=2)
    switch(fabric, {"trained-down": ["mlx5_0", "mlx5_an0"], "slow-rail": {"mlx5_1": 0.8}})
    assert (port(fabric, "mlx5_0") / "rate").read_text() == "200 Gb/sec (2X NDR)\n"
    assert (port(fabric, "mlx5_an0") / "rate").read_text() == "50 Gb/sec (2X EDR)\n"
    assert moved(fabric, "mlx5_0", 1) == pytest.approx(WORDS_PER_SECOND / 2, abs=2)
    switch(fabric, {"trained-down": ["mlx5_1"], "slow-rail": {"mlx5_1": 0.8}})
    assert (port(fabric, "mlx5_0") / "rate").read_text() == "400 Gb/sec (4X NDR)\n"
    assert moved(fabric, "mlx5_1", 1) == pytest.approx(WORDS_PER_SECOND * 0.4, abs=2)


def test_link_flap_changes_status_and_stops_traffic(fabric: SimulatedFabric) -> None:
    switch(fabric, {"link-flap": ["mlx5_0"]})
    assert (port(fabric, "mlx5_0") / "state").read_text() == "1: DOWN\n"
    assert (port(fabric, "mlx5_0") / "rate").read_text() == "10 Gb/sec (4X SDR)\n"
    assert moved(fabric, "mlx5_0", 0.5) == 0
    switch(fabric, {})
    assert (port(fabric, "mlx5_0") / "state").read_text() == "4: ACTIVE\n"
    assert moved(fabric, "mlx5_0", 1.5) == WORDS_PER_SECOND * 3 // 2
    assert count(fabric, "mlx5_0", "link_downed") == 1


def test_returned_device_counts_from_zero(fabric: SimulatedFabric) -> None:
    function = (fabric.directory / "class/infiniband/mlx5_0/device").resolve()
    switch(fabric, {"vanish": ["mlx5_0"]})
    assert sorted(os.listdir(fabric.directory / "class/infiniband")) == ["mlx5_1", "mlx5_an0"]
    assert sorted(os.listdir(fabric.directory / "class/net")) == ["eth0", "ib1"]
    assert not (function / "infiniband").exists()
    assert (function / "vendor").exists()
    switch(fabric, {"vanish": ["mlx5_0"], "stuck": ["mlx5_0"]})
    switch(fabric, {})
    assert 0 <= count(fabric, "mlx5_0") <= 0.3 * WORDS_PER_SECOND
    assert moved(fabric, "mlx5_0", 1) == WORDS_PER_SECOND


def test_reset_applies_once_per_listing(fabric: SimulatedFabric) -> None:
    switch(fabric, {"reset": ["mlx5_0"]})
    assert count(fabric, "mlx5_0") <= 0.3 * WORDS_PER_SECOND
    advance(fabric, 2)
    assert count(fabric, "mlx5_0") >= 2 * WORDS_PER_SECOND
    switch(fabric, {})
    switch(fabric, {"reset": ["mlx5_0"]})
    assert count(fabric, "mlx5_0") <= 0.3 * WORDS_PER_SECOND
    assert (port(fabric, "mlx5_0") / "counters/port_xmit_data").read_text().count("\n") == 1


def test_shorter_value_overwrites_all_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "counter"
    path.write_text("205143497464492\n")
    seen: list[int] = []
    cut = os.ftruncate
    # the moment between the two system calls is what a reader may meet
    monkeypatch.setattr(os, "ftruncate", lambda *where: (seen.append(int(path.read_text())), cut(*where)))
    file = SimulatedCounterFile(path)
    file.write("7")
    file.close()
    assert seen == [7]
    assert path.read_text() == "7\n"


def test_stuck_counter_resumes_without_jump(fabric: SimulatedFabric) -> None:
    switch(fabric, {"stuck": ["mlx5_0"]})
    before = count(fabric, "mlx5_0")
    advance(fabric, 1)
    assert count(fabric, "mlx5_0") == before
    switch(fabric, {})
    assert count(fabric, "mlx5_0") - before <= 0.3 * WORDS_PER_SECOND


def test_congested_port_waits_a_share_of_time(fabric: SimulatedFabric) -> None:
    switch(fabric, {"congested": {"mlx5_0": 0.25}})
    # the count is written every 100 ms
    before = count(fabric, "mlx5_0", "port_xmit_wait")
    words = moved(fabric, "mlx5_0", 2)
    waited = count(fabric, "mlx5_0", "port_xmit_wait") - before
    assert waited == pytest.approx(words * 4 / 8 * 0.25, rel=0.05)
    assert count(fabric, "mlx5_1", "port_xmit_wait") == START_WAITS
    advance(fabric, 40)
    assert count(fabric, "mlx5_0", "port_xmit_wait") == 2**32 - 1
    switch(fabric, {"congested": ["mlx5_0"], "reset": ["mlx5_0"]})
    assert count(fabric, "mlx5_0", "port_xmit_wait") < RATE / 8 * 0.0005


def hardware(fabric: SimulatedFabric, device: str, name: str) -> int:
    return int((port(fabric, device) / "hw_counters" / name).read_text())


def test_packets_are_marked_only_on_ethernet(fabric: SimulatedFabric) -> None:
    switch(fabric, {"congested": {"mlx5_0": 1, "mlx5_an0": 1}})
    names = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled")
    before = [hardware(fabric, "mlx5_an0", name) for name in names]
    packets = moved(fabric, "mlx5_an0", 4, "port_rcv_data") * 4 / (4096 + 26)
    rises = [hardware(fabric, "mlx5_an0", name) - was for name, was in zip(names, before, strict=True)]
    assert rises == pytest.approx([packets, packets / 4, packets / 4], rel=0.03)
    assert [hardware(fabric, "mlx5_0", name) for name in names] == [0, 0, 0]


def test_bit_errors_saturate_at_16_bits(fabric: SimulatedFabric) -> None:
    switch(fabric, {"bit-errors": {"mlx5_0": 1e-7}})
    before = count(fabric, "mlx5_0", "symbol_error")
    words = moved(fabric, "mlx5_0", 5, "port_rcv_data")
    errors = count(fabric, "mlx5_0", "symbol_error") - before
    assert errors == pytest.approx(words * 4 * 8 * 1e-7, rel=0.03)
    switch(fabric, {})
    assert moved(fabric, "mlx5_0", 1, "symbol_error") == 0
    switch(fabric, {"bit-errors": ["mlx5_0"]})
    assert moved(fabric, "mlx5_0", 4, "symbol_error") > 0
    assert count(fabric, "mlx5_0", "symbol_error") == 65_535


def test_an_unanswered_port_retransmits_instead_of_carrying_traffic(fabric: SimulatedFabric) -> None:
    name = "local_ack_timeout_err"
    switch(fabric, {"unanswered": {"mlx5_0": 2.5}})
    advance(fabric, 2)
    before = hardware(fabric, "mlx5_0", name)
    assert moved(fabric, "mlx5_0", 10) == 0
    assert hardware(fabric, "mlx5_0", name) - before == 25
    switch(fabric, {})
    before = hardware(fabric, "mlx5_0", name)
    assert before in range(28, 34)
    assert moved(fabric, "mlx5_0", 3) > 0
    assert (hardware(fabric, "mlx5_0", name), hardware(fabric, "mlx5_1", name)) == (before, 0)


def requests(fabric: SimulatedFabric, device: str) -> int:
    return hardware(fabric, device, "rx_write_requests")


def test_requests_count_while_port_counters_are_stuck(fabric: SimulatedFabric) -> None:
    switch(fabric, {"stuck": ["mlx5_0"], "idle-rail": ["mlx5_1"]})
    advance(fabric, 2)
    before = requests(fabric, "mlx5_0"), requests(fabric, "mlx5_1")
    advance(fabric, 4)
    assert requests(fabric, "mlx5_0") - before[0] == pytest.approx(4 * RATE / REQUEST_BYTES, rel=0.01)
    # an idle rail receives none: that tells the two apart
    assert requests(fabric, "mlx5_1") == before[1] > 0


def test_refresh_updates_at_multiples_only(fabric: SimulatedFabric) -> None:
    switch(fabric, {"refresh": {"mlx5_0": 100}})
    at_ns = advance(fabric, 0.1)
    seen = []
    for tick in range(1, 101):
        fabric.write(at_ns + tick * TICK)
        seen.append(count(fabric, "mlx5_0"))
    assert len(set(seen)) in (10, 11)
    assert {later - earlier for earlier, later in pairwise(seen)} == {0, WORDS_PER_SECOND // 10}


def test_unreadable_counters_say_so_and_recover(fabric: SimulatedFabric) -> None:
    switch(fabric, {"einval": ["mlx5_0"]})
    folder = port(fabric, "mlx5_0") / "counters"
    assert {file.read_text() for file in folder.iterdir()} == {"N/A (no PMA)\n"}
    switch(fabric, {})
    assert count(fabric, "mlx5_0") > START_WORDS[0]
    assert (folder / "symbol_error").read_text() == "0\n"


def test_bad_faults_file_is_logged_and_ignored(fabric: SimulatedFabric, caplog: pytest.LogCaptureFixture) -> None:
    switch(fabric, {"idle-rail": ["mlx5_0"]})
    fabric.faults_file.write_text("{")
    assert moved(fabric, "mlx5_0", 0.6) == 0
    messages = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(messages) == 1
    assert messages[0].startswith(f"faults file rejected, keeping the current faults: {fabric.faults_file}: not JSON")


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "class/mine").write_text("mine")
    with pytest.raises(FabricError, match="is not empty and holds no simulated fabric: use a new or an empty"):
        SimulatedFabric(tmp_path, Schedule(Constant()), TICK).build(START)
    assert (tmp_path / "class/mine").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "workload"),
    [
        ("", None),
        ("{}", None),
        ('{"workload": "moe"}', MOE),
        ('{"workload": {"name": "dense"}}', DENSE),
        ('{"workload": {"name": "dense", "stretch": 1.1}}', Stretched(DENSE, 1.1)),
    ],
)
def test_the_faults_file_can_name_a_workload(text: str, workload: object) -> None:
    assert parse_control(text, ["mlx5_0"], "here").workload == workload


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"workload": 5}', "here: workload: 5 is not valid; give a name, or for example"),
        ('{"workload": {"name": "moe", "speed": 2}}', "here: workload: {"),
        ('{"workload": "sparse"}', 'here: unknown workload "sparse"; choose one of dense, moe'),
        ('{"workload": {"name": "moe", "stretch": 0}}', "here: workload: stretch: 0 is not valid"),
        ('{"workload": {"name": "moe", "stretch": true}}', "here: workload: stretch: true is not valid; give a number"),
    ],
)
def test_an_invalid_workload_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_control(text, ["mlx5_0"], "here")
    assert refusal.value.faults[0].startswith(sentence)


def test_counters_continue_across_workload_change(tmp_path: Path) -> None:
    fabric = SimulatedFabric(tmp_path / "sys", Schedule(Constant(10e9), rails=2, start_ns=0), 10_000_000)
    fabric.build(0)
    start = count(fabric, "mlx5_0")
    fabric.write(1 * SECOND)
    assert 4 * (count(fabric, "mlx5_0") - start) == pytest.approx(10e9)
    fabric.faults_file.write_text(json.dumps({"workload": "constant"}))
    fabric.write(2 * SECOND)
    assert 4 * (count(fabric, "mlx5_0") - start) == pytest.approx(20e9)
    fabric.write(3 * SECOND)
    assert 4 * (count(fabric, "mlx5_0") - start) == pytest.approx(45e9)
    fabric.faults_file.unlink()
    fabric.write(4 * SECOND)
    fabric.write(5 * SECOND)
    assert 4 * (count(fabric, "mlx5_0") - start) == pytest.approx(80e9)
    fabric.close()
