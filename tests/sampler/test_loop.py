"""The hot loop in the test's own process: its records for every behaviour of a counter file."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.sampler.loop import Loop
from ibpulse.agent.sampler.plan import Plan, PlannedPort
from ibpulse.agent.sampler.source import FAILURES_BEFORE_REST
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from tests.sampler.sampling import Sampling, open_files
from tests.sampler.tree import Tree

pytestmark = pytest.mark.real("clock")

SECOND = 1_000_000_000


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[RingFile]:
    """A ring of a second between ticks: on a busy machine no read takes a tenth of that."""
    made = RingFile.create(tmp_path / "ring" / "ring", 1_000_000_000, 100)
    yield made
    made.close()


@pytest.fixture
def answering(tree: Tree, ring: RingFile) -> PlannedPort:
    tree.write("mlx5_0", 111, 222)
    return tree.planned(ring, "mlx5_0")


@pytest.fixture
def refused(tree: Tree, ring: RingFile) -> PlannedPort:
    """A port of which one file holds no count."""
    tree.write("mlx5_0", "N/A", 5)
    return tree.planned(ring, "mlx5_0")


def with_transmit(planned: PlannedPort, *paths: str | Path) -> PlannedPort:
    return planned._replace(transmit=tuple(map(str, paths)))


@pytest.mark.parametrize("text", ["N/A (no PMA)", "", "-1", "18446744073709551615", "1" * 30])
def test_text_that_is_no_counter_is_an_unread_counter(tree: Tree, ring: RingFile, text: str) -> None:
    tree.write("mlx5_0", text, 7)
    planned = tree.planned(ring, "mlx5_0")
    sampling = Sampling(ring, planned)
    sampling.sample()
    assert sampling.last(planned.slot) == [at.ABSENT, 7]
    assert sampling.word(planned.slot, at.S_LAST_ERRNO) == errno.EBADMSG


@pytest.mark.parametrize("text", ["N/A (no PMA)", "-1", "1" * 22])
def test_a_counter_that_turns_into_something_else_is_unread_and_not_old(
    tree: Tree, ring: RingFile, answering: PlannedPort, text: str
) -> None:
    """The fast path meets what it cannot store."""
    sampling = Sampling(ring, answering)
    sampling.sample(2)
    tree.path("mlx5_0").write_text(text)
    sampling.sample()
    assert sampling.last(answering.slot) == [at.ABSENT, 222]
    assert sampling.word(answering.slot, at.S_ERRORS) == 1


def test_a_bad_port_does_not_hide_the_others(tree: Tree, ring: RingFile, answering: PlannedPort) -> None:
    tree.write("mlx5_1", 1, 2)
    tree.write("mlx5_2", 3, 4)
    others = [tree.planned(ring, "mlx5_1"), tree.planned(ring, "mlx5_2")]
    sampling = Sampling(ring, others[0], answering, others[1])
    sampling.sample()
    tree.write("mlx5_0", "x", "y")
    sampling.sample()
    assert [sampling.last(port.slot) for port in (*others, answering)] == [[1, 2], [3, 4], None]


def test_a_read_that_fails_once_is_repeated_immediately(ring: RingFile, answering: PlannedPort) -> None:
    sampling = Sampling(ring, answering)
    sampling.sample(2)
    held = sampling.loop._ports[answering].files[0].descriptors
    fast, held[0] = held[0], os.dup(held[0])
    os.close(fast)
    for _ in range(2):
        sampling.sample()
        assert sampling.last(answering.slot) == [111, 222]
    assert sampling.word(answering.slot, at.S_ERRORS) == 0


def test_a_port_that_fails_again_after_its_pause_stays_paused(ring: RingFile, refused: PlannedPort) -> None:
    """So that the log says it once."""
    sampling = Sampling(ring, refused)
    sampling.sample(FAILURES_BEFORE_REST)
    sampling.loop._ports[refused].files[0].rest_until_ns = 1
    sampling.sample()
    assert sampling.word(refused.slot, at.S_STATUS) == at.LEFT_ALONE
    assert sampling.word(refused.slot, at.S_ERRORS) == FAILURES_BEFORE_REST + 1


def test_a_new_sampler_replaces_a_status_once_it_knows_better(tree: Tree, ring: RingFile) -> None:
    for device, count, old, status in (("mlx5_0", 1, at.GONE, at.OK), ("mlx5_1", "N/A", at.LEFT_ALONE, at.LEFT_ALONE)):
        tree.write(device, count, 2)
        planned = tree.planned(ring, device)
        ring.words[at.slot_at(planned.slot) + at.S_STATUS] = old
        Sampling(ring, planned).sample()
        assert ring.slot_word(planned.slot, at.S_STATUS) == status


def test_a_new_plan_does_not_retry_refused_files(ring: RingFile, refused: PlannedPort) -> None:
    sampling = Sampling(ring, refused)
    sampling.sample(FAILURES_BEFORE_REST)
    sampling.apply(refused)
    sampling.sample(5)
    assert sampling.word(refused.slot, at.S_ERRORS) == FAILURES_BEFORE_REST


def test_ports_that_stay_in_the_plan_keep_their_descriptors(tree: Tree, ring: RingFile, answering: PlannedPort) -> None:
    for device in ("mlx5_1", "mlx5_2"):
        tree.write(device, 3, 4)
    leaving, coming = tree.planned(ring, "mlx5_1"), tree.planned(ring, "mlx5_2")
    sampling = Sampling(ring, leaving, answering)
    sampling.sample()
    before = open_files(tree.root)
    sampling.apply(answering, coming)
    sampling.sample()
    after = open_files(tree.root)
    kept = {name: target for name, target in before.items() if "mlx5_0" in target}
    assert kept.items() <= after.items()
    assert not any("mlx5_1" in target for target in after.values())
    assert sampling.last(leaving.slot) is None
    assert sampling.last(answering.slot) == [111, 222]
    assert sampling.last(coming.slot) == [3, 4]
    sampling.apply()
    assert open_files(tree.root) == {}


def test_the_files_of_one_direction_are_added_up(tree: Tree, ring: RingFile, answering: PlannedPort) -> None:
    parts = [tree.path("mlx5_0", name) for name in ("ip4OutOctets", "ip6OutOctets", "ip4OutMcOctets")]
    for number, part in enumerate(parts):
        part.write_text(f"{10**number}\n")
    sampling = Sampling(ring, with_transmit(answering, *parts))
    for _ in range(3):
        sampling.sample()
        assert sampling.last(answering.slot) == [111, 222]
    parts[0].write_text("5\n")
    sampling.sample()
    assert sampling.last(answering.slot) == [115, 222]


def test_a_sum_is_unread_while_one_of_its_files_is_missing(tree: Tree, ring: RingFile, answering: PlannedPort) -> None:
    """A part of the sum would look like a counter that fell and then jumped."""
    first = tree.path("mlx5_0")
    planned = with_transmit(answering, first, tree.path("mlx5_0", "later"))
    sampling = Sampling(ring, planned)
    for _ in range(3):
        sampling.sample()
        assert sampling.last(answering.slot) == [at.ABSENT, 222]
        sampling.loop._ports[planned].files[0].rest_until_ns = 0
    assert not any(target.endswith("port_xmit_data") for target in open_files(tree.root).values())


def test_a_sum_beyond_64_bits_is_unread(tree: Tree, ring: RingFile, answering: PlannedPort) -> None:
    tree.path("mlx5_0", "a").write_text(str(2**63))
    planned = with_transmit(answering, tree.path("mlx5_0", "a"), tree.path("mlx5_0", "a"))
    sampling = Sampling(ring, planned)
    sampling.sample()
    assert sampling.last(answering.slot) == [at.ABSENT, 222]


def test_a_port_is_sampled_every_stride_ticks(tree: Tree, ring: RingFile, answering: PlannedPort) -> None:
    for device in ("mlx5_1", "mlx5_2"):
        tree.write(device, 3, 4)
    bad = tree.planned(ring, "mlx5_2", 4)._replace(transmit=(str(tree.root / "gone"),))
    strided = tree.planned(ring, "mlx5_1", 5)
    sampling = Sampling(ring, strided, answering, bad)
    sampling.sample(20)
    ticks = np.arange(sampling.tick - 19, sampling.tick + 1)
    assert sampling.block(answering.slot, 20).present.all()
    assert sampling.block(strided.slot, 20).present[0].tolist() == (ticks % 5 == 0).tolist()
    assert sampling.block(bad.slot, 20).present[0].tolist() == (ticks % 4 == 0).tolist()


def test_each_record_holds_its_stride_and_the_loop_knows_when_a_port_may_be_due(
    tree: Tree, ring: RingFile, answering: PlannedPort
) -> None:
    tree.write("mlx5_1", 3, 4)
    four, ten = answering._replace(stride=4), tree.planned(ring, "mlx5_1")._replace(stride=10)
    sampling = Sampling(ring, four, ten)
    assert sampling.loop.stride == 2
    sampling.sample(20)
    for planned in (four, ten):
        block = sampling.block(planned.slot, 20)
        assert set(block.strides[block.present].tolist()) == {planned.stride}
    sampling.apply(four._replace(stride=1), ten)
    assert sampling.loop.stride == 1
    sampling.sample()
    # the stride that its slot has
    assert sampling.block(four.slot, 1).strides is None
    sampling.apply()
    assert sampling.loop.stride == 1


def test_the_loop_returns_when_the_most_frequent_ports_had_been_read(
    tree: Tree, ring: RingFile, answering: PlannedPort
) -> None:
    tree.write("mlx5_1", 3, 4)
    strided = tree.planned(ring, "mlx5_1", 5)
    sampling = Sampling(ring, strided, answering)
    sampling.tick = 1004
    sampling.sample(5)
    sampling.loop._ports[strided].read_ns = 0
    read = sampling.loop.sample(1010, 0)
    sampling.tick = 1010
    stamps = {planned: sampling.block(planned.slot, 1).records[0, 0] for planned in (answering, strided)}
    assert stamps[answering][at.R_AFTER] <= read <= stamps[strided][at.R_BEFORE]


@pytest.mark.parametrize("text", ["3", "not a number"])
def test_a_strided_port_is_not_read_within_half_of_its_interval(tree: Tree, ring: RingFile, text: str) -> None:
    """Its last sample was held up; so it is on the fast path, and on the slow one."""
    tree.write("mlx5_0", text, 4)
    planned = tree.planned(ring, "mlx5_0", 5)
    sampling = Sampling(ring, planned)
    sampling.tick = 1004
    sampling.sample(6)
    half_ns = 5 * ring.interval_ns // 2
    for ago_ns, tick, read in ((half_ns - SECOND // 2, 1015, False), (half_ns, 1020, True)):
        sampling.loop._ports[planned].read_ns = time.monotonic_ns() - ago_ns
        sampling.loop.sample(tick, 0)
        sampling.tick = tick
        assert (sampling.last(planned.slot) is not None) == read
    assert sampling.word(planned.slot, at.S_UNCERTAIN) == 1


def test_the_lane_reports_ticks_lateness_and_duration(ring: RingFile, answering: PlannedPort) -> None:
    sampling = Sampling(ring, answering)
    lane = at.lane_at(0)
    for late_ns in (0, 50_000, 50_001, 600_000_000):
        sampling.tick += 1
        sampling.loop.sample(sampling.tick, late_ns)
    lateness = ring.words[lane + at.L_LATENESS : lane + at.L_LATENESS + at.BUCKET_COUNT].tolist()
    assert lateness == [2, 1, *[0] * (at.BUCKET_COUNT - 3), 1]
    assert ring.words[lane + at.L_LATENESS_SUM_NS] == 600_100_001
    assert sum(ring.words[lane + at.L_DURATION : lane + at.L_DURATION + at.BUCKET_COUNT]) == 4
    assert ring.words[lane + at.L_TICKS] == 4
    assert ring.words[lane + at.L_TICK] == ring.words[lane + at.L_BEGUN] == sampling.tick
    age = time.monotonic_ns() - ring.words[lane + at.L_HEARTBEAT_NS]
    assert 0 <= age < 60 * SECOND


def test_another_lane_writes_its_own_block(ring: RingFile, answering: PlannedPort) -> None:
    loop = Loop(ring, 3)
    loop.apply(Plan(1, os.getpid(), ports=(answering,)))
    loop.sample(77, 0)
    loop.apply(Plan(2, os.getpid()))
    assert [ring.words[at.lane_at(lane) + at.L_TICK] for lane in range(5)] == [0, 0, 0, 77, 0]


def test_ten_thousand_failing_ticks_leave_no_memory_behind(ring: RingFile, refused: PlannedPort) -> None:
    """The garbage collector is off in the sampler, so nothing may need it."""
    sampling = Sampling(ring, refused)
    sampling.sample(100)
    before = sys.getallocatedblocks()
    for _ in range(10_000):
        sampling.loop._ports[refused].files[0].rest_until_ns = 0
        sampling.sample()
    assert sys.getallocatedblocks() - before < 300
