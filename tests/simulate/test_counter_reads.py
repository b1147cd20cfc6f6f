"""Reads of real files are noticed."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.workbench.simulate import tree_files
from ibpulse.workbench.simulate.tree_files import CounterReads


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[CounterReads]:
    monkeypatch.setattr(tree_files, "SETTLE_SECONDS", 0)
    reads = CounterReads()
    yield reads
    reads.close()


def test_a_read_ends_the_pause_and_nothing_else_does(tmp_path: Path, reads: CounterReads) -> None:
    watched, other = tmp_path / "port_rcv_data", tmp_path / "port_xmit_data"
    for path in (watched, other):
        path.write_text("1\n")
    reads.watch(watched)
    other.read_text()
    watched.write_text("2\n")
    assert not reads.pause(0.01)
    threading.Timer(0.01, watched.read_text).start()
    # longer than any test may take
    assert reads.pause(3600)
    assert not reads.pause(0)


def test_a_read_between_two_pauses_is_noticed_by_the_second(tmp_path: Path, reads: CounterReads) -> None:
    path = tmp_path / "port_rcv_data"
    path.write_text("1\n")
    reads.watch(path)
    path.read_text()
    path.read_text()
    assert len(reads.pause(60)) == 1
    assert not reads.pause(0)


def test_it_says_which_files_were_read_and_forgets_those_that_are_gone(tmp_path: Path, reads: CounterReads) -> None:
    paths = [tmp_path / f"mlx5_{rail}" for rail in range(3)]
    for path in paths:
        path.write_text("1\n")
        reads.watch(path)
    seen = []
    for read in ((0,), (1,), (2, 0), (1, 1, 1)):
        for which in read:
            paths[which].read_text()
        seen.append(reads.pause(60))
    first, second, third, fourth = seen
    assert first != second == fourth
    assert third > first
    assert len(third) == 2
    assert second.isdisjoint(third)
    paths[0].unlink()
    # the kernel reports the end of a watch, too
    assert not reads.pause(1)


def test_without_inotify_it_sleeps(tmp_path: Path, reads: CounterReads, caplog: pytest.LogCaptureFixture) -> None:
    reads.watch(tmp_path / "missing")
    assert caplog.messages == [f"inotify: {tmp_path / 'missing'}: No such file or directory"]
    reads.close()
    reads.watch(tmp_path / "missing")
    assert not reads.pause(0)
    assert len(caplog.messages) == 1


def test_a_read_is_noticed_at_a_descriptor_above_1023(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_files, "SETTLE_SECONDS", 0)
    path = tmp_path / "port_rcv_data"
    path.write_text("1\n")
    with contextlib.ExitStack() as stack:
        for _ in range(1024):
            stack.enter_context(open(os.devnull, "rb"))
        reads = stack.enter_context(contextlib.closing(CounterReads()))
        reads.watch(path)
        path.read_text()
        assert len(reads.pause(60)) == 1
