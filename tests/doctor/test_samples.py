"""What the ring shows of some seconds, on rings whose numbers are known; and which ring is that of a running daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ibpulse.agent.doctor import DoctorOptions, samples
from ibpulse.agent.doctor.examination import find_facts
from ibpulse.agent.doctor.facts import PortSamples
from ibpulse.agent.doctor.samples import (
    RingState,
    find_daemon,
    forgotten_ports,
    last_tick_needed,
    quantile_of_lateness,
    read_daemon_samples,
    read_port_samples,
    take_samples,
)
from ibpulse.agent.sampler.plan import STOP, Plan, PlannedPort, plan_path, write_plan
from ibpulse.agent.sampler.supervisor import SupervisorOptions
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.base.errors import RingError, SamplerError
from ibpulse.core.jobs import Claim, PlacedJob
from ibpulse.core.model import Fabric, Port, PortId
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from tests.aggregator.rings import Ring, constant, port, square
from tests.doctor.conftest import Run
from tests.doctor.making import make_request, only_trouble
from tests.sysfs.trees import Tree

MS = 1_000_000
PORTS = tuple(port(f"mlx5_{number}:1") for number in range(3))
LANE = at.lane_at(0)


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    made = Ring.create(tmp_path, *PORTS, seconds=20)
    yield made
    made.file.close()


def fill(ring: Ring, last: int = 500, **changes: Any) -> None:
    """Three rails at 20 GB/s each way; what is changed is that of the last."""
    for number in range(3):
        options = {"traffic": (constant(20e9), constant(20e9)), **(changes if number == 2 else {})}
        ring.write(f"mlx5_{number}:1", options.pop("traffic"), 1, last, **options)


def read_samples(
    ring: Ring, begin_tick: int = 100, last_tick: int = 480, jobs: Sequence[PlacedJob] = ()
) -> dict[PortId, PortSamples]:
    begin = RingState(begin_tick, (0,) * at.LANE_WORDS, {})
    return read_port_samples(ring.reader, ring.fabric, begin, last_tick, 0.1e9, jobs)


def test_an_even_rail_is_as_it_was_written(ring: Ring) -> None:
    fill(ring)
    found = read_samples(ring)[PORTS[2].id]
    assert (found.samples, found.stride) == (380, 1)
    assert found.rates == pytest.approx((20e9, 20e9), rel=1e-6)
    assert found.resolution_seconds == pytest.approx(0.01)
    assert (found.resets, found.errors, found.left_alone, found.gone) == (0, 0, False, False)
    assert (found.standing.rail_idle, found.standing.rail_slow) == (False, False)


def test_a_rail_is_not_compared_with_rails_of_another_job(ring: Ring) -> None:
    fill(ring, traffic=(constant(0), constant(0)))
    jobs = [
        PlacedJob(Claim(name, "slurm", "file"), ports, "gpus") for name, ports in (("a", (PORTS[2].id,)), ("b", ()))
    ]
    standing = read_samples(ring, jobs=jobs)[PORTS[2].id].standing
    assert not standing.rail_idle


@pytest.mark.parametrize(("rate", "idle", "resolution"), [(0.0, True, None), (10e9, False, pytest.approx(0.01))])
def test_a_rail_with_less_traffic_is_idle_or_slow(ring: Ring, rate: float, idle: bool, resolution: Any) -> None:
    fill(ring, traffic=(constant(rate), constant(rate)))
    found = read_samples(ring)[PORTS[2].id]
    assert found.rates == pytest.approx((rate, rate))
    assert (found.standing.rail_idle, found.standing.rail_slow) == (idle, not idle)
    assert found.resolution_seconds == resolution


def test_a_reset_is_counted_once_and_not_if_it_was_long_ago(ring: Ring) -> None:
    fill(ring, last=1700, resets=(300,))
    assert read_samples(ring)[PORTS[2].id].resets == 1
    assert read_samples(ring)[PORTS[0].id].resets == 0
    assert read_samples(ring, 1300, 1680)[PORTS[2].id].resets == 0


def test_a_slow_refresh_is_measured(ring: Ring) -> None:
    # all bytes of 100 ms at one tick
    fill(ring, traffic=(square(200e9, 1, 9), square(200e9, 1, 9)))
    assert read_samples(ring)[PORTS[2].id].resolution_seconds == pytest.approx(0.1)


def test_a_very_slow_refresh_is_measured_by_its_mean(ring: Ring) -> None:
    fill(ring, traffic=(square(2000e9, 1, 99), constant(0)))
    assert read_samples(ring)[PORTS[2].id].resolution_seconds == pytest.approx(1.0, rel=0.35)


def test_a_port_that_gave_nothing_has_no_numbers(ring: Ring) -> None:
    fill(ring, holes=range(1, 501))
    found = read_samples(ring)[PORTS[2].id]
    assert (found.samples, found.reads, found.rates, found.resolution_seconds) == (0, None, None, None)


def test_the_cost_of_reads_is_measured(ring: Ring) -> None:
    fill(ring)
    slot = ring.file.slots()["mlx5_2:1"]
    for tick in range(101, 481):
        record = at.records_at(slot, ring.file.capacity) + tick * at.RECORD_WORDS
        begin = ring.file.words[record + at.R_BEFORE]
        # 40 µs each, one of them 5 ms
        ring.file.words[record + at.R_BETWEEN] = begin + (5_000_000 if tick == 200 else 40_000)
        ring.file.words[record + at.R_AFTER] = begin + (5_000_000 if tick == 200 else 40_000) + 40_000
    reads = read_samples(ring)[PORTS[2].id].reads
    assert reads.p50 == pytest.approx(40e-6)
    assert reads.p99 == pytest.approx(40e-6)
    assert reads.worst == pytest.approx(5e-3)
    assert reads.both_p99 == pytest.approx(80e-6)


def test_a_stride_counts_its_own_samples(ring: Ring) -> None:
    fill(ring, stride=5)
    found = read_samples(ring)[PORTS[2].id]
    assert (found.stride, found.samples) == (5, 76)
    assert found.resolution_seconds == pytest.approx(0.05)


def test_the_wait_is_three_whole_seconds_and_what_settles(ring: Ring) -> None:
    fill(ring)
    # from tick 150 on: seconds 2, 3 and 4, then 200 ms, the samples that may be merged with the last one, and a tick
    assert last_tick_needed(ring.reader, 150, []) == 500 + 20 + 4 + 1


def test_lateness_has_a_bound() -> None:
    begin = RingState(0, (0,) * at.LANE_WORDS, {})
    words = [0] * at.LANE_WORDS
    words[at.L_LATENESS], words[at.L_LATENESS + 1] = 98, 2
    end = RingState(100, tuple(words), {})
    assert quantile_of_lateness(begin, end, 0.5) == pytest.approx(50e-6)
    assert quantile_of_lateness(begin, end, 0.99) == pytest.approx(100e-6)
    assert quantile_of_lateness(end, end, 0.5) is None
    words[at.L_LATENESS + at.BUCKET_COUNT - 1] = 1000
    assert quantile_of_lateness(begin, RingState(0, tuple(words), {}), 0.99) == float("inf")


def test_ports_that_went_away_are_remembered(ring: Ring) -> None:
    fill(ring)
    slot = ring.file.slots()["mlx5_1:1"]
    assert forgotten_ports(ring.file, Fabric(PORTS[:1])) == ()
    ring.file.words[at.slot_at(slot) + at.S_STATUS] = at.GONE
    assert forgotten_ports(ring.file, Fabric(PORTS[:1])) == ("mlx5_1:1",)
    assert forgotten_ports(ring.file, Fabric(PORTS)) == ()


# which ring is a running daemon's


class Clock:
    """The time of the search for a daemon, which passes only in its sleeps; `beat` is called at the end of each."""

    def __init__(self) -> None:
        self.now_ns = 100_000 * MS
        self.beat: Callable[[], None] = lambda: None

    def monotonic_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)
        self.beat()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def beating(tmp_path: Path, clock: Clock) -> Iterator[RingFile]:
    """A ring with a heartbeat and a plan for a tree at /fabric."""
    ring = RingFile.create(tmp_path / "ring", 10 * MS, 1000)
    write_plan(
        plan_path(ring.path, 0),
        Plan(1, 1, ports=(PlannedPort(0, "mlx5_0", ("/fabric/class/a",), ("/fabric/class/b",)),)),
    )

    def beat() -> None:
        ring.words[LANE + at.L_HEARTBEAT_NS] = clock.now_ns

    beat()
    clock.beat = beat
    yield ring
    ring.close()


def test_a_ring_with_heartbeat_and_tree_is_a_daemons(beating: RingFile, clock: Clock) -> None:
    ring = find_daemon(DoctorOptions(sysfs=Path("/fabric"), ring_dir=beating.path.parent), clock)
    ring.close()


def test_a_ring_of_another_tree_or_without_a_plan_is_not_believed(beating: RingFile, clock: Clock) -> None:
    ring_dir = beating.path.parent
    assert find_daemon(DoctorOptions(sysfs=Path("/fab"), ring_dir=ring_dir), clock) is None
    plan_path(beating.path, 0).write_text("rubbish")
    assert find_daemon(DoctorOptions(sysfs=Path("/fabric"), ring_dir=ring_dir), clock) is None
    assert find_daemon(DoctorOptions(ring_dir=ring_dir / "none"), clock) is None


def test_a_ring_whose_heart_stopped_is_not_believed(ring: Ring, tmp_path: Path, clock: Clock) -> None:
    write_plan(
        plan_path(ring.file.path, 0), Plan(1, 1, ports=(PlannedPort(0, "mlx5_0", ("/fabric/a",), ("/fabric/b",)),))
    )
    options = DoctorOptions(sysfs=Path("/fabric"), ring_dir=tmp_path)
    ring.file.words[LANE + at.L_HEARTBEAT_NS] = 1
    assert find_daemon(options, clock) is None
    # one beat is no life
    ring.file.words[LANE + at.L_HEARTBEAT_NS] = clock.now_ns
    assert find_daemon(options, clock) is None


# taking the samples


def test_a_sampler_that_finds_no_room_says_so(tree: Tree, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    tree.add("mlx5_0")

    def refuse(*_: object) -> RingFile:
        raise RingError("ring /x has no room")

    monkeypatch.setattr(RingFile, "create", refuse)
    facts = run(find_facts(make_request(DoctorOptions(sysfs=tree.root, port=0))))
    assert facts.no_sampling == "ring /x has no room"


def test_a_tree_without_bytes_is_not_sampled(tmp_path: Path, run: Run) -> None:
    facts = run(find_facts(make_request(DoctorOptions(sysfs=tmp_path, port=0))))
    assert (facts.sampling, facts.no_sampling) == (None, "no port has byte counters")
    assert only_trouble(facts).topic == "tree"


def test_no_sample_is_taken_when_none_is_asked_for(tree: Tree, run: Run) -> None:
    tree.add("mlx5_0")
    facts = run(find_facts(make_request(DoctorOptions(sysfs=tree.root, port=0, sample=False))))
    assert (facts.sampling, facts.no_sampling) == (None, "sampling was not requested")
    assert PortId("mlx5_0", 1) in facts.counts


def test_a_sampler_that_takes_no_sample_is_an_error(tree: Tree, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    tree.add("mlx5_0")

    @asynccontextmanager
    async def silent(*_: object) -> AsyncIterator[SimpleNamespace]:
        ring = RingFile.create(tree.root.parent / "ring", 10 * MS, 1000)
        yield SimpleNamespace(supervisor=SimpleNamespace(fabric=Fabric()), reader=RingReader(ring), ended=False)
        ring.close()

    monkeypatch.setattr(samples, "temporary_sampler", silent)
    monkeypatch.setattr(samples, "MAX_SAMPLING_SECONDS", 0.0)
    with pytest.raises(SamplerError, match="the sampler took no sample"):
        run(take_samples(Inventory(tree.root), SupervisorOptions(), DoctorOptions(sysfs=tree.root)))


def test_with_a_daemon_its_ring_is_read(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(RingReader, "newest_tick", lambda _: 600)
    tree.add("mlx5_0")
    tree.add("mlx5_1", pci="0000:19:00.0")
    inventory = Inventory(tree.root)
    ports: tuple[Port, ...] = inventory.scan().ports
    ring = RingFile.create(tmp_path / "ring", 100 * MS, 100)
    ring.begin_segment(1, 0)
    for one in ports:
        ring.assign(str(one.id), 4, 1)
    ring.words[LANE + at.L_TICK] = 500
    ring.words[LANE + at.L_FIFO] = at.ABSENT
    ring.words[LANE + at.L_PINNED] = 0
    write_plan(plan_path(ring.path, 1), Plan(1, 1, ports=(PlannedPort(1, "mlx5_1", ("/a",), ("/b",)),)))
    for lane, wanted in ((1, 7), (2, STOP), (3, 7)):
        ring.words[at.lane_at(lane) + at.L_PLAN_WANTED] = wanted
    options = DoctorOptions(sysfs=tree.root, ring_dir=tmp_path, cpu=1)
    found = run(read_daemon_samples(ring, inventory, options))
    ring.close()
    assert found.by_daemon
    # its process has not given a sign of life; that of lane 2 was told to end, that of lane 3 has no plan
    assert found.health.quarantined_devices == ("mlx5_1",)
    assert (found.health.scheduler_requested, found.health.cpu_actual) == ("other", "1")
    assert found.history_seconds == 10


def test_a_port_seen_in_any_scan_was_sampled(ring: Ring) -> None:
    fill(ring)
    ring.change(*PORTS[:2], replace(PORTS[2], active=False))
    assert set(read_samples(ring)) == {one.id for one in PORTS}
