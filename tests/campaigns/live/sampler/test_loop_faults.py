"""The hot loop on a FUSE tree that fails with a given errno on request."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.sampler.plan import PlannedPort
from tests.fusefabric import FuseFabric, why_not
from tests.sampler.sampling import Sampling


def fuse_port(fabric: FuseFabric, ring: RingFile, device: str) -> PlannedPort:
    paths = [str(fabric.counter_path(device, name)) for name in ("port_xmit_data", "port_rcv_data")]
    return PlannedPort(ring.assign(f"{device}:1", 4, 1), device, (paths[0],), (paths[1],))


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[RingFile]:
    """A ring of a second between ticks: on a busy machine no read takes a tenth of that."""
    made = RingFile.create(tmp_path / "ring" / "ring", 1_000_000_000, 100)
    yield made
    made.close()


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuseFabric]:
    with FuseFabric(tmp_path_factory.mktemp("fuse") / "sys", ports=2) as fabric:
        yield fabric


@pytest.fixture
def fabric(mounted: FuseFabric) -> Iterator[FuseFabric]:
    yield mounted
    mounted.clear()


fuse = pytest.mark.skipif(why_not() != "", reason=why_not())


@fuse
@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOLINK, errno.ETIMEDOUT, errno.EOPNOTSUPP])
def test_a_file_that_begins_to_fail_leaves_the_fast_path_and_comes_back(
    ring: RingFile, fabric: FuseFabric, number: int
) -> None:
    planned = fuse_port(fabric, ring, "mlx5_0")
    healthy = fuse_port(fabric, ring, "mlx5_1")
    sampling = Sampling(ring, planned, healthy)
    sampling.sample(2)
    fabric.set("mlx5_0", errno=number, files=("port_rcv_data",))
    for _ in range(5):
        sampling.sample()
        transmit, receive = sampling.last(planned.slot) or [0, 0]
        assert transmit != at.ABSENT
        assert receive == at.ABSENT
        assert sampling.last(healthy.slot) is not None
    assert sampling.word(planned.slot, at.S_LAST_ERRNO) == number
    assert sampling.word(planned.slot, at.S_STATUS) == at.LEFT_ALONE
    fabric.clear()
    sampling.loop._ports[planned].receive.rest_until_ns = 1
    for _ in range(2):
        sampling.sample()
        assert at.ABSENT not in (sampling.last(planned.slot) or [at.ABSENT])
    assert sampling.word(planned.slot, at.S_STATUS) == at.OK


@fuse
def test_the_time_of_a_read_does_not_include_the_opening_of_its_file(ring: RingFile, fabric: FuseFabric) -> None:
    """Opening takes some round trips to the server of the tree, a read takes one."""
    planned = fuse_port(fabric, ring, "mlx5_0")
    shorter = 0
    for _ in range(20):
        sampling = Sampling(ring, planned)
        begun = time.monotonic_ns()
        sampling.sample()
        whole = time.monotonic_ns() - begun
        bracket = 2 * sampling.block(planned.slot, 1).uncertainty_ns().sum()
        shorter += bracket < 0.75 * whole
        sampling.apply()
    assert shorter > 10


@fuse
@pytest.mark.parametrize(("file", "direction"), [("port_xmit_data", 0), ("port_rcv_data", 1)])
@pytest.mark.parametrize("ticks_before", [0, 3])
def test_a_read_that_takes_over_a_tenth_of_the_interval_is_unread_and_counted(
    ring: RingFile, fabric: FuseFabric, file: str, direction: int, ticks_before: int
) -> None:
    """Nobody knows when the counter was taken. So it is on the slow path and on the fast one."""
    planned = fuse_port(fabric, ring, "mlx5_0")
    sampling = Sampling(ring, planned)
    sampling.sample(ticks_before)
    fabric.set("mlx5_0", hang_seconds=0.3, files=(file,))
    sampling.sample()
    unread = [value == at.ABSENT for value in sampling.last(planned.slot) or []]
    assert unread == [direction == 0, direction == 1]
    assert sampling.word(planned.slot, at.S_UNCERTAIN) == 1
    assert sampling.word(planned.slot, at.S_ERRORS) == 0
    assert sampling.word(planned.slot, at.S_STATUS) == at.OK
    fabric.clear()
    sampling.sample()
    assert at.ABSENT not in (sampling.last(planned.slot) or [at.ABSENT])
    assert sampling.word(planned.slot, at.S_UNCERTAIN) == 1


@fuse
def test_a_port_that_is_sampled_less_often_may_take_longer(ring: RingFile, fabric: FuseFabric) -> None:
    planned = fuse_port(fabric, ring, "mlx5_0")._replace(stride=20)
    sampling = Sampling(ring, planned)
    fabric.set("mlx5_0", hang_seconds=0.15)
    sampling.tick = 1019
    sampling.sample()
    assert at.ABSENT not in (sampling.last(planned.slot) or [at.ABSENT])
    assert sampling.word(planned.slot, at.S_UNCERTAIN) == 0


@fuse
def test_read_times_are_recorded_even_when_both_were_too_long(ring: RingFile, fabric: FuseFabric) -> None:
    """So it is on the slow path and on the fast one."""
    planned = fuse_port(fabric, ring, "mlx5_0")
    sampling = Sampling(ring, planned)
    fabric.set("mlx5_0", delay_seconds=0.15)
    for _ in range(2):
        sampling.sample()
        assert sampling.last(planned.slot) == [at.ABSENT, at.ABSENT]
        assert (2 * sampling.block(planned.slot, 1).uncertainty_ns() >= 150_000_000).all()
    assert sampling.word(planned.slot, at.S_UNCERTAIN) == 2
