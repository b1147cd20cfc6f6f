"""Another workload in a running fabric, by its faults file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.workbench.simulate.fabric import SimulatedFabric, parse_control
from ibpulse.workbench.simulate.fsdp import DENSE, MOE
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import Constant, Idle, Stretched

SECOND = 1_000_000_000
LINE = 50e9


def counter(fabric: SimulatedFabric, rail: int = 0) -> int:
    path = fabric.directory / f"class/infiniband/mlx5_{rail}/ports/1/counters/port_xmit_data"
    return 4 * int(path.read_text())


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


def test_faults_are_read_with_a_workload() -> None:
    found = parse_control('{"workload": "idle", "idle-rail": ["mlx5_0"]}', ["mlx5_0"], "here")
    assert found.workload == Idle()
    assert found.faults["mlx5_0"].flow == 0.0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"workload": 5}', "here: workload: 5 is not valid; give a name, or for example"),
        ('{"workload": {"name": "moe", "speed": 2}}', "here: workload: {"),
        ('{"workload": "sparse"}', 'here: unknown workload "sparse"; choose one of dense, moe'),
        (
            '{"workload": {"name": "moe", "stretch": 0}}',
            "here: workload: stretch: 0 is not valid; give a number between 0.1 and 10",
        ),
        ('{"workload": {"name": "moe", "stretch": true}}', "here: workload: stretch: true is not valid; give a number"),
        ("{", "here: not JSON"),
        ("[]", "here: holds list, not an object"),
    ],
)
def test_an_invalid_workload_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_control(text, ["mlx5_0"], "here")
    assert refusal.value.faults[0].startswith(sentence)


def test_a_stretched_workload_moves_the_same_bytes_in_a_longer_time() -> None:
    plain, longer = (one.step(np.random.default_rng(1)) for one in (DENSE, Stretched(DENSE, 1.1)))
    assert longer.durations_ns.sum() == pytest.approx(1.1 * plain.durations_ns.sum(), rel=1e-6)
    moved = [(step.durations_ns * step.rates_bytes_per_second).sum() for step in (plain, longer)]
    assert moved[1] == pytest.approx(moved[0])
    stretched = Stretched(DENSE, 1.1)
    assert stretched.name == "dense"
    np.testing.assert_array_equal(stretched.weights(8), DENSE.weights(8))


def test_counters_go_on_from_where_they_stand_when_the_workload_changes(tmp_path: Path) -> None:
    fabric = SimulatedFabric(tmp_path / "sys", Schedule(Constant(10e9), rails=2, start_ns=0), 10_000_000)
    fabric.build(0)
    start = counter(fabric)
    fabric.write(1 * SECOND)
    assert counter(fabric) - start == pytest.approx(10e9)
    fabric.faults_file.write_text(json.dumps({"workload": "constant"}))
    fabric.write(2 * SECOND)
    assert counter(fabric) - start == pytest.approx(20e9)
    fabric.write(3 * SECOND)
    assert counter(fabric) - start == pytest.approx(20e9 + LINE / 2)
    fabric.faults_file.unlink()
    fabric.write(4 * SECOND)
    fabric.write(5 * SECOND)
    assert counter(fabric) - start == pytest.approx(20e9 + LINE + 10e9)
    fabric.close()


def test_faults_outlast_a_change_of_the_workload(tmp_path: Path) -> None:
    fabric = SimulatedFabric(tmp_path / "sys", Schedule(Constant(10e9), rails=2, start_ns=0), 10_000_000)
    fabric.build(0, {"slow-rail": {"mlx5_1": 0.5}})
    starts = [counter(fabric, rail) for rail in range(2)]
    fabric.write(1 * SECOND)
    fabric.faults_file.write_text(json.dumps({"workload": "constant", "slow-rail": {"mlx5_1": 0.5}}))
    fabric.write(2 * SECOND)
    fabric.write(3 * SECOND)
    moved = [counter(fabric, rail) - start for rail, start in enumerate(starts)]
    assert moved == [pytest.approx(20e9 + LINE / 2), pytest.approx((20e9 + LINE / 2) / 2)]
    fabric.close()
