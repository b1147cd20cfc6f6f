"""How one direction of a port handles failures, with an injected clock."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.agent.sampler.plan import PlannedPort
from ibpulse.agent.sampler.source import REST_NS, CounterFile
from ibpulse.core.ring import layout as at

SECOND = 1_000_000_000


@pytest.fixture
def counter(tmp_path: Path) -> Iterator[CounterFile]:
    path = tmp_path / "counter"
    path.write_text("9\n")
    made = CounterFile(PlannedPort(0, "mlx5_0", (), ()), (str(path),))
    yield made
    made.close()


def read(counter: CounterFile, now_ns: int) -> int:
    counter.prepare(now_ns)
    return counter.read(now_ns)


def fail(counter: CounterFile, number: int, times: int, now_ns: int = SECOND) -> float:
    """Seconds of pause after this number of failures."""
    for _ in range(times):
        counter.fail(number, now_ns)
    return max(0.0, (counter.rest_until_ns - now_ns) / SECOND)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM, errno.EBADMSG])
def test_a_refused_file_rests_a_minute_after_three_failures(counter: CounterFile, number: int) -> None:
    assert [fail(counter, number, 1) for _ in range(4)] == [0, 0, 60, 60]


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.ENOLINK, errno.EAGAIN, errno.EMFILE])
def test_a_failing_file_rests_ever_longer_up_to_a_minute(counter: CounterFile, number: int) -> None:
    assert [fail(counter, number, 1) for _ in range(11)] == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize("number", [errno.ENODEV, errno.ENXIO, errno.ENOENT, errno.ESTALE])
def test_a_vanished_file_is_closed_immediately_and_reopened_after_a_minute(counter: CounterFile, number: int) -> None:
    counter.prepare(SECOND)
    assert counter.read(SECOND) == 9
    assert fail(counter, number, 1) == 60
    assert (counter.vanished, counter.descriptors) == (True, [])
    assert read(counter, SECOND + REST_NS - 1) == at.ABSENT
    assert read(counter, SECOND + REST_NS) == 9
    assert not counter.vanished


def test_the_file_of_another_device_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "mlx5_0"
    folder.mkdir()
    (folder / "counter").write_text("9\n")
    planned = PlannedPort(0, "mlx5_0", (), (), folder=str(folder), inode=folder.stat().st_ino)
    counter = CounterFile(planned, (str(folder / "counter"),))
    assert read(counter, SECOND) == 9
    counter.close()
    folder.rename(tmp_path / "mlx5_1")
    folder.mkdir()
    (folder / "counter").write_text("9\n")
    with pytest.raises(OSError, match="No such device"):
        counter.open()
    assert counter.descriptors == []


def test_a_resting_file_is_not_read(counter: CounterFile) -> None:
    fail(counter, errno.EINVAL, 3)
    assert read(counter, SECOND + REST_NS - 1) == at.ABSENT
    assert counter.descriptors == []


def test_a_good_read_forgets_the_failures(counter: CounterFile) -> None:
    fail(counter, errno.EIO, 5)
    assert read(counter, SECOND + REST_NS) == 9
    assert (counter.failures, counter.rest_until_ns) == (0, 0)
    assert fail(counter, errno.EIO, 2) == 0
