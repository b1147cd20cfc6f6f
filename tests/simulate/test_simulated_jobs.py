"""Jobs on a simulated fabric: traffic in closed form, and documents that lead to the right rails."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.jobs.job_documents import read_job_documents
from ibpulse.agent.jobs.owners import place_jobs
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.base.errors import ConfigError
from ibpulse.workbench.simulate.fabric import FAULTS_EVERY_NS, SimulatedFabric, parse_control
from ibpulse.workbench.simulate.fsdp import DENSE, MOE
from ibpulse.workbench.simulate.simulated_jobs import JOBS_FOLDER, SimulatedJob, plan_jobs
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import Constant, Idle, Square

SECOND = 1_000_000_000
NAMES = [f"mlx5_{number}" for number in range(8)]
FIRST, SECOND_HALF = NAMES[:4], NAMES[4:]
BOTH = {"7": {"workload": "square", "devices": FIRST}, "8": {"workload": "constant", "devices": SECOND_HALF}}


class Played:
    """A fabric that is told what runs, and shows its counters."""

    def __init__(self, path: Path, jobs: int = 0) -> None:
        self.fabric = SimulatedFabric(path / "sys", Schedule(Constant(10e9), rails=8), 10_000_000, jobs=jobs)
        self.fabric.build(0)
        self._told = 0

    def tell(self, at_ns: int, **control: object) -> None:
        self.fabric.faults_file.write_text(json.dumps(control))
        self._told += 1
        # the file is read again if its time has changed
        os.utime(self.fabric.faults_file, ns=(self._told, self._told))
        self.fabric.write(at_ns)

    def at(self, at_ns: int) -> np.ndarray:
        """The transmitted bytes of each device."""
        self.fabric.write(at_ns)
        paths = (self.fabric.directory / f"class/infiniband/{name}/ports/1/counters/port_xmit_data" for name in NAMES)
        return np.array([4 * int(path.read_text()) for path in paths])

    def owners(self) -> dict[str, list[str]]:
        """The devices of each job, as a daemon finds them."""
        fabric = Inventory(self.fabric.directory).scan()
        claims = read_job_documents(self.fabric.directory / JOBS_FOLDER, 0, "").claims
        placed = place_jobs(claims, fabric.ports, fabric.topology)
        assert placed.remarks == ()
        return {job.claim.id: [port.device for port in job.ports] for job in placed.jobs}


def test_each_job_has_its_own_traffic_and_its_own_rails(tmp_path: Path) -> None:
    played = Played(tmp_path)
    begun = played.at(SECOND)
    np.testing.assert_array_equal(played.at(2 * SECOND) - begun, 10_000_000_000)
    played.tell(3 * SECOND, jobs=BOTH)
    begun = played.at(3 * SECOND)
    # half of the time at half of the line rate, and all of it
    expected = [round(2.5 * 12.5e9)] * 4 + [round(2.5 * 25e9)] * 4
    np.testing.assert_array_equal(played.at(5 * SECOND + SECOND // 2) - begun, expected)
    assert played.owners() == {"7": FIRST, "8": SECOND_HALF}
    played.fabric.close()


def test_the_end_of_one_job_moves_no_number_of_the_other(tmp_path: Path) -> None:
    played = Played(tmp_path)
    played.tell(3 * SECOND, jobs=BOTH)
    begun = played.at(3 * SECOND)
    played.tell(4 * SECOND, jobs={"7": BOTH["7"]})
    ended = played.at(4 * SECOND)
    moved = played.at(6 * SECOND) - begun
    np.testing.assert_array_equal(moved, [round(3 * 12.5e9)] * 4 + [25_000_000_000] * 4)
    np.testing.assert_array_equal(played.at(6 * SECOND)[4:], ended[4:])
    assert played.owners() == {"7": FIRST}
    played.fabric.close()


def test_a_job_that_hangs_keeps_its_document_and_sends_nothing(tmp_path: Path) -> None:
    played = Played(tmp_path, jobs=1)
    assert played.owners() == {"1001": NAMES}
    begun = played.at(SECOND)
    np.testing.assert_array_equal(played.at(2 * SECOND) - begun, 10_000_000_000)
    played.tell(3 * SECOND, workload="idle")
    hung = played.at(3 * SECOND)
    np.testing.assert_array_equal(played.at(9 * SECOND), hung)
    assert played.owners() == {"1001": NAMES}
    played.tell(10 * SECOND)
    np.testing.assert_array_equal(played.at(11 * SECOND) - hung, 10_000_000_000)
    played.fabric.close()


def test_without_jobs_the_workload_goes_on(tmp_path: Path) -> None:
    played = Played(tmp_path)
    played.tell(SECOND, jobs={})
    silent = played.at(SECOND)
    np.testing.assert_array_equal(played.at(5 * SECOND), silent)
    played.tell(6 * SECOND, workload="constant")
    np.testing.assert_array_equal(played.at(8 * SECOND) - silent, 50_000_000_000)
    played.fabric.close()


def test_no_device_of_a_job_is_faster_than_the_line(tmp_path: Path) -> None:
    """At half of the line rate, the bytes of 1 ms of the line take 2 ms."""
    played = Played(tmp_path)
    played.tell(SECOND, jobs=BOTH)
    shown = played.fabric.advance(SECOND + 10_000_000, 1_000_000)
    assert shown == pytest.approx(SECOND + 2_000_000, abs=2)
    played.fabric.close()


def test_two_jobs_begin_and_end_in_their_own_rhythm() -> None:
    def running(second: float) -> dict[str, SimulatedJob]:
        return dict(plan_jobs(2, Idle(), NAMES, round(second * SECOND)))

    assert running(0) == {"1001": SimulatedJob(DENSE, tuple(FIRST)), "1002": SimulatedJob(MOE, tuple(SECOND_HALF))}
    assert [sorted(running(second)) for second in (239.9, 240, 269.9, 270, 329.9, 330, 389.9, 390, 510, 540)] == [
        ["1001", "1002"],
        *(["1002"], ["1002"]),
        *(["1002", "1003"], ["1002", "1003"]),
        *(["1003"], ["1003"]),
        ["1003", "1004"],
        ["1004"],
        ["1004", "1005"],
    ]
    assert plan_jobs(1, Square(), NAMES, 0) == {"1001": SimulatedJob(Square(), tuple(NAMES))}


def test_planned_jobs_end_at_their_time(tmp_path: Path) -> None:
    played = Played(tmp_path, jobs=2)
    assert played.owners() == {"1001": FIRST, "1002": SECOND_HALF}
    played.at(240 * SECOND - FAULTS_EVERY_NS)
    before = played.at(240 * SECOND)
    after = played.at(250 * SECOND) - before
    assert played.owners() == {"1002": SECOND_HALF}
    assert not after[:4].any()
    assert after[4:].all()
    played.at(270 * SECOND)
    assert played.owners() == {"1002": SECOND_HALF, "1003": FIRST}
    # a new fabric knows no earlier job
    played.fabric.close()
    assert Played(tmp_path, jobs=1).owners() == {"1001": NAMES}


EXAMPLE = '{"7": {"workload": "moe", "devices": ["mlx5_0", "mlx5_1"]}}'


@pytest.mark.parametrize(
    ("jobs", "sentence"),
    [
        ([], f"here: jobs: [] is not valid; give jobs by id, for example {EXAMPLE}"),
        ({"7": "moe"}, f'here: jobs: "7": "moe" is not valid; write for example {EXAMPLE}'),
        (
            {"../7": {"workload": "moe", "devices": ["a"]}},
            'here: jobs: "../7": {"workload": "moe", "devices": ["a"]} is',
        ),
        ({"7": {"workload": "moe"}}, 'here: jobs: "7": {"workload": "moe"} is not valid; write for example'),
        ({"7": {"workload": "moe", "devices": []}}, 'here: jobs: "7": {"workload": "moe", "devices": []} is not valid'),
        ({"7": {"workload": "moe", "devices": ["c"]}}, 'here: jobs: "7": device "c" is not in this fabric'),
        ({"7": {"workload": "moe", "devices": ["a", "a"]}}, 'here: jobs: "7": device "a" has another job'),
        ({"7": {"workload": "sparse", "devices": ["a"]}}, 'here: jobs: 7: unknown workload "sparse"; choose one of'),
    ],
)
def test_jobs_that_make_no_sense_are_refused(jobs: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_control(json.dumps({"jobs": jobs}), ["a", "b"], "here")
    assert refusal.value.faults[0].startswith(sentence)
