"""A sampler that waits for the processor is told from a slow device, and what else the kernel says of a process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ibpulse.agent.sampler import kernel
from ibpulse.agent.sampler.adaptive import Starvation
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from tests.tables import for_each

PROCESS = 4711
SECOND = 1_000_000_000


class Sampler:
    """The times of a lane's process, which the test advances (seconds)."""

    def __init__(self, ring: RingFile, monkeypatch: pytest.MonkeyPatch, lane: int = 0) -> None:
        self.words, self.begin, self.waited_ns = ring.words, at.lane_at(lane), 7 * SECOND
        self.words[self.begin + at.L_PID] = PROCESS
        monkeypatch.setattr(kernel, "runqueue_wait_ns", lambda process: self.waited_ns)

    def spend(self, reading: float, waited: float, late: float = 0.0) -> None:
        self.words[self.begin + at.L_DURATION_SUM_NS] += round(reading * SECOND)
        for which in (at.L_LATENESS_SUM_NS, at.L_OVERSLEPT_NS):
            self.words[self.begin + which] += round(late / 2 * SECOND)
        self.waited_ns += round(waited * SECOND)


@pytest.mark.parametrize(
    ("reading", "waited", "late", "starved"),
    [
        # reads of 8 ms that sleep for their device, on an idle and on a busy machine
        (1.6, 0.002, 0.001, False),
        (1.6, 0.7, 0.3, False),
        # quick reads that were preempted
        (0.5, 0.45, 0.0, True),
        (0.5, 1.0, 0.6, True),
        # they waited as long as a worker of the kernel
        (0.5, 0.22, 0.0, True),
        # late wake-ups delay no read
        (0.04, 0.5, 0.5, False),
        (0.04, 0.01, 0.0, False),
        (0.0, 0.0, 0.0, False),
    ],
)
def test_a_lane_is_starved_if_its_reads_waited(
    ring: RingFile, monkeypatch: pytest.MonkeyPatch, reading: float, waited: float, late: float, starved: bool
) -> None:
    sampler = Sampler(ring, monkeypatch, lane=3)
    starvation = Starvation(ring)
    # what was before the first look says nothing
    sampler.spend(1, 1)
    assert starvation.look() == frozenset()
    sampler.spend(reading, waited, late)
    assert starvation.look() == ({3} if starved else set())
    assert starvation.look() == frozenset()


def test_a_new_process_is_not_compared_with_the_last(ring: RingFile, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = Sampler(ring, monkeypatch)
    starvation = Starvation(ring)
    starvation.look()
    sampler.spend(0.1, 0.1)
    sampler.words[sampler.begin + at.L_PID] = PROCESS + 1
    assert starvation.look() == frozenset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("100429 79289 2\n", 79289), ("0 0 0\n", None), ("rubbish\n", None), ("1 2\n", None), (None, None)],
)
def test_the_wait_is_the_second_number_of_schedstat(tmp_path: Path, text: str | None, expected: int | None) -> None:
    folder = tmp_path / "proc" / "4711"
    folder.mkdir(parents=True)
    if text is not None:
        (folder / "schedstat").write_text(text)
    assert kernel.runqueue_wait_ns(4711, tmp_path) == expected


STAT = "4711 (a) b) R 1 4711 0 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 8 1 1\n"


@pytest.mark.parametrize(
    ("text", "expected"), [(STAT, ("R", 3.0)), ("4711 (python) D\n", ("", 0.0)), (None, ("", 0.0))]
)
def test_the_state_of_a_process_comes_with_its_cpu_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, expected: tuple[str, float]
) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_CLK_TCK": 100}.get)
    folder = tmp_path / "proc" / "4711"
    folder.mkdir(parents=True)
    if text is not None:
        (folder / "stat").write_text(text)
    assert kernel.state_of(4711, tmp_path) == expected


@for_each([-1, 4095, 2**40])
def test_a_missing_cpu_is_an_errno(cpu: int) -> None:
    assert os.strerror(kernel.pin_to_cpu(cpu)) == "Invalid argument"
