"""The hot loop over files that fail with a given errno, answer slowly, or vanish."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from ibpulse.agent.sampler import source as module
from ibpulse.agent.sampler.plan import PlannedPort
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from tests.sampler.conftest import INTERVAL_NS
from tests.sampler.sampling import Sampling, open_files
from tests.sampler.tree import Tree
from tests.virtual.world import Gate, World

# the longest read of which the value counts
MAX_NS = INTERVAL_NS // 10


@pytest.fixture
def world() -> Iterator[World]:
    with closing(World()) as world:
        yield world


@pytest.fixture
def planned(ring: RingFile, tree: Tree) -> PlannedPort:
    tree.write("mlx5_0", 1, 2)
    return tree.planned(ring, "mlx5_0")


def spoil(world: World, tree: Tree, *files: str, error: int = 0, delay_ns: int = 0) -> None:
    """From now on, these files of `mlx5_0` fail or are slow, or all of them."""
    world.gates["mlx5_0"] = [Gate(f"{tree.root}/", files, error, delay_ns)]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOLINK, errno.ETIMEDOUT, errno.EOPNOTSUPP])
def test_a_file_that_begins_to_fail_leaves_the_fast_path_and_comes_back(
    ring: RingFile, tree: Tree, world: World, planned: PlannedPort, number: int
) -> None:
    tree.write("mlx5_1", 3, 4)
    healthy = tree.planned(ring, "mlx5_1")
    sampling = Sampling(ring, planned, healthy, world=world)
    sampling.sample(2)
    spoil(world, tree, "port_rcv_data", error=number)
    for _ in range(5):
        sampling.sample()
        assert sampling.last(planned.slot) == [1, at.ABSENT]
        assert sampling.last(healthy.slot) == [3, 4]
    assert sampling.word(planned.slot, at.S_LAST_ERRNO) == number
    assert sampling.word(planned.slot, at.S_STATUS) == at.LEFT_ALONE
    assert sampling.word(planned.slot, at.S_ERRORS) == 3
    world.gates.clear()
    # it is tried again after a second, or after a minute if it was refused
    world.pause(59 * 10**9)
    sampling.sample(2)
    refused = number in (errno.EINVAL, errno.EOPNOTSUPP)
    assert sampling.last(planned.slot) == [1, at.ABSENT if refused else 2]
    world.pause(10**9)
    sampling.sample(2)
    assert sampling.last(planned.slot) == [1, 2]
    assert sampling.word(planned.slot, at.S_STATUS) == at.OK


def test_the_time_of_a_read_does_not_include_the_opening_of_its_file(
    ring: RingFile, world: World, planned: PlannedPort
) -> None:
    def open_slowly(path: str, flags: int) -> int:
        world.pause(MAX_NS)
        return os.open(path, flags)

    world.patch(module, "os", SimpleNamespace(**{**vars(os), "open": open_slowly}))
    sampling = Sampling(ring, planned, world=world)
    begun = world.monotonic_ns
    sampling.sample()
    assert world.monotonic_ns - begun == 2 * MAX_NS
    assert len(np.unique(sampling.block(planned.slot, 1).stamps())) == 1


def test_a_device_that_vanishes_is_closed_and_read_again_when_it_is_back(
    ring: RingFile, tree: Tree, world: World, planned: PlannedPort
) -> None:
    sampling = Sampling(ring, planned, world=world)
    sampling.sample(2)
    for name in ("port_xmit_data", "port_rcv_data"):
        tree.path("mlx5_0", name).unlink()
    sampling.sample(3)
    assert sampling.last(planned.slot) is None
    assert sampling.word(planned.slot, at.S_STATUS) == at.GONE
    assert ring.words[at.H_RESCAN] == 2
    assert open_files(tree.root) == {}
    tree.write("mlx5_0", 5, 6)
    sampling.apply(planned)
    sampling.sample(2)
    assert sampling.last(planned.slot) == [5, 6]
    assert sampling.word(planned.slot, at.S_STATUS) == at.OK


@pytest.mark.parametrize(("file", "direction"), [("port_xmit_data", 0), ("port_rcv_data", 1)])
@pytest.mark.parametrize("ticks_before", [0, 3])
def test_a_read_that_takes_over_a_tenth_of_the_interval_is_unread_and_counted(
    ring: RingFile, tree: Tree, world: World, planned: PlannedPort, file: str, direction: int, ticks_before: int
) -> None:
    """It is uncertain when the counter was taken. So it is on the slow path and on the fast one."""
    sampling = Sampling(ring, planned, world=world)
    sampling.sample(ticks_before)
    spoil(world, tree, file, delay_ns=MAX_NS)
    sampling.sample()
    assert sampling.last(planned.slot) == [1, 2]
    spoil(world, tree, file, delay_ns=MAX_NS + 2)
    sampling.sample()
    assert sampling.last(planned.slot) == ([at.ABSENT, 2] if direction == 0 else [1, at.ABSENT])
    assert sampling.word(planned.slot, at.S_UNCERTAIN) == 1
    assert sampling.word(planned.slot, at.S_ERRORS) == 0
    assert sampling.word(planned.slot, at.S_STATUS) == at.OK
    world.gates.clear()
    sampling.sample()
    assert sampling.last(planned.slot) == [1, 2]
    assert sampling.word(planned.slot, at.S_UNCERTAIN) == 1


@pytest.mark.parametrize(("delay_ns", "value"), [(20 * MAX_NS, 1), (20 * MAX_NS + 2, at.ABSENT)])
def test_a_port_that_is_sampled_less_often_may_take_longer(
    ring: RingFile, tree: Tree, world: World, planned: PlannedPort, delay_ns: int, value: int
) -> None:
    planned = planned._replace(stride=20)
    sampling = Sampling(ring, planned, world=world)
    spoil(world, tree, "port_xmit_data", delay_ns=delay_ns)
    sampling.tick = 1019
    sampling.sample()
    assert sampling.last(planned.slot) == [value, 2]
