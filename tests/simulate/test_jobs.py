"""Jobs on fabrics: their documents and traffic, and one job on several nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ibpulse.agent.jobs.files import read_job_documents
from ibpulse.agent.jobs.owners import place_jobs
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.base.errors import ConfigError
from ibpulse.workbench.simulate.fabric import SimulatedFabric, parse_control
from ibpulse.workbench.simulate.jobs import (
    HOT_RAIL,
    JOBS_FOLDER,
    STRAGGLER_DELAY_NS,
    RingMember,
    SharedTraffic,
    SimulatedJob,
    plan_jobs,
    share_job,
)
from ibpulse.workbench.simulate.timeline import LINE_BYTES_PER_SECOND, Schedule, Workload
from ibpulse.workbench.simulate.workloads import DENSE, MOE, Constant, ExpertParallel, Idle, Square
from tests.running import HANG_SECONDS

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
        fabric = Inventory(self.fabric.directory, timeout_seconds=HANG_SECONDS).scan()
        claims = read_job_documents(self.fabric.directory / JOBS_FOLDER, 0, "").claims
        placed = place_jobs(claims, fabric.ports, fabric.topology)
        assert placed.remarks == ()
        return {job.claim.id: [port.device for port in job.ports] for job in placed.jobs}


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    made = Played(tmp_path)
    yield made
    made.fabric.close()


def test_jobs_have_separate_traffic_and_rails(played: Played) -> None:
    begun = played.at(SECOND)
    np.testing.assert_array_equal(played.at(2 * SECOND) - begun, 10_000_000_000)
    played.tell(3 * SECOND, jobs=BOTH)
    begun = played.at(3 * SECOND)
    # half of the time at half of the line rate, and all of it
    expected = [round(2.5 * 12.5e9)] * 4 + [round(2.5 * 25e9)] * 4
    np.testing.assert_array_equal(played.at(5 * SECOND + SECOND // 2) - begun, expected)
    assert played.owners() == {"7": FIRST, "8": SECOND_HALF}


def test_ending_job_leaves_the_other_unchanged(played: Played) -> None:
    played.tell(3 * SECOND, jobs=BOTH)
    begun = played.at(3 * SECOND)
    played.tell(4 * SECOND, jobs={"7": BOTH["7"]})
    ended = played.at(4 * SECOND)
    moved = played.at(6 * SECOND) - begun
    np.testing.assert_array_equal(moved, [round(3 * 12.5e9)] * 4 + [25_000_000_000] * 4)
    np.testing.assert_array_equal(played.at(6 * SECOND)[4:], ended[4:])
    assert played.owners() == {"7": FIRST}


def test_hanging_job_keeps_its_document(tmp_path: Path) -> None:
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


def test_job_traffic_stays_within_line_rate(played: Played) -> None:
    """At half of the line rate, the bytes of 1 ms of the line take 2 ms."""
    played.tell(SECOND, jobs=BOTH)
    shown = played.fabric.advance(SECOND + 10_000_000, 1_000_000)
    assert shown == pytest.approx(SECOND + 2_000_000, abs=2)


def test_two_jobs_have_their_own_rhythm() -> None:
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


EXAMPLE = '{"7": {"workload": "moe", "devices": ["mlx5_0", "mlx5_1"]}}'


@pytest.mark.parametrize(
    ("jobs", "sentence"),
    [
        ([], f"here: jobs: [] is not valid; give jobs by id, for example {EXAMPLE}"),
        ({"7": "moe"}, f'here: jobs: "7": "moe" is not valid; write for example {EXAMPLE}'),
        ({"../7": {"workload": "moe", "devices": ["a"]}}, 'here: jobs: "../7": {"workload": "moe", "devices"'),
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


MS = 1_000_000
START = 1_700_000_000 * SECOND
OFFSETS = (100_000, -1_200_000, 2_600_000, 48_700_000)
STRAGGLER = 2
WITH_PAUSES = [DENSE, MOE, ExpertParallel(), Square(), Square(rate_bytes_per_second=1e8)]
ALL = [*WITH_PAUSES, Constant(), Idle()]


def shared(workload: Workload, rails: int = 4) -> list[SharedTraffic]:
    return share_job(workload, STRAGGLER, OFFSETS, 7, rails, START)


def moved(node: SharedTraffic, true_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes by true instants, (instants, rails, 2)."""
    return np.array([node.cumulative_bytes(int(at) + node.offset_ns) for at in true_ns])


@pytest.mark.parametrize("workload", ALL, ids=lambda each: each.name)
def test_next_node_receives_what_a_node_transmits(workload: Workload) -> None:
    nodes = shared(workload)
    instants = START + np.arange(0, 3 * SECOND, 7 * MS)
    bytes_of = [moved(node, instants) for node in nodes]
    for number, its in enumerate(bytes_of):
        assert (its[..., 1] == bytes_of[number - 1][..., 0]).all()


@pytest.mark.parametrize("workload", WITH_PAUSES, ids=lambda each: each.name)
def test_straggler_transmits_late_in_every_step(workload: Workload) -> None:
    nodes = shared(workload)
    starts = Schedule(nodes[0].workload, 7, 4, START).step_starts_ns(START, START + 5 * SECOND)
    for begin in starts[:3]:
        instants = begin + np.arange(-MS, 25 * MS, MS // 100)
        first = [
            [float(instants[np.flatnonzero(np.diff(its[:, 0, way]))[0]] - begin) / MS for way in (0, 1)]
            for its in (moved(node, instants) for node in nodes)
        ]
        late = STRAGGLER_DELAY_NS / MS
        leads = [transmit - receive for transmit, receive in first]
        assert leads == pytest.approx([0, 0, late, -late], abs=0.02)
        assert first[0] == pytest.approx([0, 0], abs=0.1)


@pytest.mark.parametrize("workload", ALL, ids=lambda each: each.name)
def test_steps_are_equal_on_all_nodes(workload: Workload) -> None:
    punctual, late = (RingMember(workload, 4, straggler) for straggler in (False, True))
    for seed in range(3):
        ours, theirs = (each.step(np.random.default_rng(seed)) for each in (punctual, late))
        assert ours.durations_ns.sum() == theirs.durations_ns.sum()
        assert ours.durations_ns.min() > 0
        sent = [float((step.durations_ns * step.rates_bytes_per_second).sum()) for step in (ours, theirs)]
        alone = workload.step(np.random.default_rng(seed))
        by_itself = float((alone.durations_ns * alone.rates_bytes_per_second).sum()) * workload.weights(4).sum()
        assert [each * punctual.weights(4).sum() for each in sent] == pytest.approx([by_itself] * 2, rel=1e-6)
        assert max(ours.rates_bytes_per_second.max(), theirs.rates_bytes_per_second.max()) <= LINE_BYTES_PER_SECOND


@pytest.mark.parametrize("rails", [1, 2, 4, 8])
def test_hot_rail_carries_more_on_every_node(rails: int) -> None:
    for node in shared(DENSE, rails):
        total = node.cumulative_bytes(START + 10 * SECOND + node.offset_ns)
        hot = total[min(HOT_RAIL, rails - 1)]
        # one of eight rails is idle
        others = [each for each in np.delete(total, min(HOT_RAIL, rails - 1), axis=0) if each.any()]
        assert (hot > 0).all()
        assert all(hot == pytest.approx(each / 0.75, rel=1e-4) for each in others)


def test_latest_within_respects_the_limit() -> None:
    node = shared(DENSE)[STRAGGLER]
    begin = START + SECOND + node.offset_ns
    for most in (0, 1e6, 1e8):
        end = node.latest_within(begin, begin + 300 * MS, most)
        grown = [node.port_bytes(end, HOT_RAIL, way) - node.port_bytes(begin, HOT_RAIL, way) for way in (0, 1)]
        assert max(grown) <= most
        assert (
            max(node.port_bytes(end + MS, HOT_RAIL, way) - node.port_bytes(begin, HOT_RAIL, way) for way in (0, 1))
            >= most - 8
        )
