"""The sampler as a separate process: its imports, its plan, its exit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader
from ibpulse.sampler import scheduling
from ibpulse.sampler.plan import STOP, Plan, PlannedPort, plan_path, write_plan
from ibpulse.sampler.process import EXIT_CLOCK_STEP, EXIT_NO_RING, EXIT_ORPHAN, NOT_ASKED
from tests.sampler.conftest import CAPACITY, INTERVAL_NS
from tests.sampler.tree import Tree, eventually

HOUR_TICKS = 3600 * 1_000_000_000 // INTERVAL_NS


class SamplerRun:
    """A sampler process on a lane, started by the test as a supervisor would."""

    def __init__(self, ring: RingFile, lane: int = 0) -> None:
        self.ring = ring
        self.lane = lane
        self.generation = 0
        self.process: subprocess.Popen[str] | None = None

    def word(self, which: int) -> int:
        return self.ring.words[at.lane_at(self.lane) + which]

    def tell(
        self, *ports: PlannedPort, parent: int | None = None, scheduler: str = "other", cpu: int | None = None
    ) -> int:
        self.generation += 1
        plan = Plan(self.generation, parent or os.getpid(), scheduler, cpu, ports)
        write_plan(plan_path(self.ring.path, self.lane), plan)
        self.ring.words[at.lane_at(self.lane) + at.L_PLAN_WANTED] = self.generation
        return self.generation

    def start(self, *prefix: str) -> None:
        command = [*prefix, sys.executable, "-m", "ibpulse.sampler.process", str(self.ring.path), str(self.lane)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def wait_for_ticks(self, count: int = 3) -> None:
        """Wait for so many ticks more."""
        begun = self.word(at.L_TICKS)
        eventually(lambda: self.word(at.L_TICKS) >= begun + count)

    def wait(self) -> tuple[int, str]:
        """Exit status and what was said."""
        assert self.process is not None
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.ring.words[at.lane_at(self.lane) + at.L_PLAN_WANTED] = STOP
            self.process.communicate(timeout=30)


@pytest.fixture
def sampler(ring: RingFile) -> Iterator[SamplerRun]:
    made = SamplerRun(ring)
    yield made
    made.stop()


@pytest.fixture
def planned(tree: Tree, ring: RingFile) -> PlannedPort:
    tree.write("mlx5_0", 11, 22)
    return tree.planned(ring, "mlx5_0")


def run(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "ibpulse.sampler.process", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stderr


def test_the_sampler_loads_only_the_standard_library() -> None:
    program = (
        "import sys; before = set(sys.modules); import ibpulse.sampler.process; "
        "tops = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(tops - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['ibpulse']"


def test_the_sampler_leaves_logging_asyncio_and_dataclasses_out() -> None:
    left_out = {"logging", "asyncio", "socket", "dataclasses", "inspect"}
    program = f"import sys, ibpulse.sampler.process; print({left_out} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path.endswith("exporter"))},
    )
    assert done.stdout.strip() == "set()", done.stderr


def test_the_sampler_fills_the_ring_on_wall_clock_multiples(
    sampler: SamplerRun, ring: RingFile, planned: PlannedPort
) -> None:
    sampler.tell(planned)
    sampler.start()
    sampler.wait_for_ticks(30)
    reader = RingReader(ring)
    latest = ring.latest_tick()
    block = reader.read([planned.slot], latest - 25, latest)
    held = block.present[0]
    assert held.sum() > 5
    assert np.all(block.counters()[0][:, held] == [[11], [22]])
    offset = time.time_ns() - time.monotonic_ns()
    late = block.time_ns()[0, 0, held] + offset - reader.wall_ns(np.arange(latest - 25, latest + 1)[held])
    assert np.all(late > -2_000_000)
    assert np.all(late < INTERVAL_NS)
    assert ring.segments() == [(1, 0)]
    assert sampler.process is not None
    assert sampler.word(at.L_PID) == sampler.process.pid
    assert (sampler.word(at.L_FIFO), sampler.word(at.L_PINNED)) == (NOT_ASKED, NOT_ASKED)


def test_the_sampler_accounts_for_its_cpu_time(sampler: SamplerRun, planned: PlannedPort) -> None:
    sampler.tell(planned)
    sampler.start()
    assert eventually(lambda: sampler.word(at.L_CPU_NS)) > 1_000_000


def test_the_timer_slack_is_a_nanosecond(sampler: SamplerRun, planned: PlannedPort) -> None:
    sampler.tell(planned)
    sampler.start()
    sampler.wait_for_ticks()
    assert sampler.process is not None
    path = Path(f"/proc/{sampler.process.pid}/timerslack_ns")
    if not path.exists():
        pytest.skip("this kernel does not tell timer slack")
    assert path.read_text() == "1\n"


def test_a_new_plan_is_taken_up_within_a_few_ticks(
    sampler: SamplerRun, ring: RingFile, tree: Tree, planned: PlannedPort
) -> None:
    sampler.tell()
    sampler.start()
    sampler.wait_for_ticks()
    generation = sampler.tell(planned)
    begun = sampler.word(at.L_TICKS)
    eventually(lambda: sampler.word(at.L_PLAN_APPLIED) == generation)
    assert sampler.word(at.L_TICKS) - begun < 100
    first = ring.latest_tick()
    eventually(lambda: ring.latest_tick() > first + 2)
    assert RingReader(ring).read([planned.slot], first, ring.latest_tick()).present.any()


def test_a_restarted_sampler_continues_and_counts_missed_ticks(
    sampler: SamplerRun, ring: RingFile, planned: PlannedPort
) -> None:
    sampler.tell(planned)
    sampler.start()
    sampler.wait_for_ticks()
    assert sampler.process is not None
    sampler.process.kill()
    sampler.process.communicate()
    last, ticks, missed = (sampler.word(which) for which in (at.L_TICK, at.L_TICKS, at.L_MISSED))
    sampler.start()
    sampler.wait_for_ticks()
    sampler.stop()
    new_ticks, new_missed = sampler.word(at.L_TICKS) - ticks, sampler.word(at.L_MISSED) - missed
    assert new_missed >= 1
    assert 0 <= new_ticks + new_missed - (sampler.word(at.L_TICK) - last) <= 1
    assert ring.segments() == [(1, 0)]


def test_the_sampler_dies_with_its_parent(sampler: SamplerRun, planned: PlannedPort, tmp_path: Path) -> None:
    parent = tmp_path / "parent.py"
    parent.write_text(
        "import os, subprocess, sys, time\n"
        "from pathlib import Path\n"
        "from ibpulse.sampler.plan import Plan, plan_path, write_plan\n"
        "ring = Path(sys.argv[1])\n"
        "write_plan(plan_path(ring, 0), Plan(1, os.getpid()))\n"
        "subprocess.Popen([sys.executable, '-m', 'ibpulse.sampler.process', str(ring), '0'])\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, str(parent), str(sampler.ring.path)])
    try:
        sampler.wait_for_ticks()
        pid = sampler.word(at.L_PID)
        assert is_running(pid)
        # also one that cannot look for its parent
        os.kill(pid, signal.SIGSTOP)
    finally:
        process.kill()
        process.wait()
    eventually(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_sampler_whose_parent_is_already_gone_does_not_start(sampler: SamplerRun, planned: PlannedPort) -> None:
    sampler.tell(planned, parent=1)
    sampler.start()
    assert sampler.wait() == (EXIT_ORPHAN, "")
    assert sampler.word(at.L_TICKS) == 0


def test_the_sampler_ends_when_its_plan_asks_for_it(sampler: SamplerRun, planned: PlannedPort) -> None:
    sampler.tell(planned)
    sampler.start()
    sampler.wait_for_ticks()
    sampler.ring.words[at.lane_at(0) + at.L_PLAN_WANTED] = STOP
    assert sampler.wait() == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_sampler_ignores_signals_that_reach_the_whole_group(
    sampler: SamplerRun, planned: PlannedPort, number: int
) -> None:
    sampler.tell(planned)
    sampler.start()
    sampler.wait_for_ticks()
    assert sampler.process is not None
    for _ in range(3):
        sampler.process.send_signal(number)
        sampler.wait_for_ticks()
    assert sampler.process.poll() is None


def test_a_refused_scheduler_and_cpu_do_not_stop_the_sampler(
    sampler: SamplerRun, planned: PlannedPort, tmp_path: Path
) -> None:
    prefix: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv to drop privileges")
        prefix = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"]
    sampler.tell(planned, scheduler="fifo", cpu=4095)
    sampler.start(*prefix)
    sampler.wait_for_ticks()
    assert os.strerror(sampler.word(at.L_PINNED)) == "Invalid argument"
    if prefix:
        assert os.strerror(sampler.word(at.L_FIFO)) == "Operation not permitted"


def test_fifo_and_a_cpu_are_taken_where_they_are_allowed(sampler: SamplerRun, planned: PlannedPort) -> None:
    if not can_have_fifo():
        pytest.skip("SCHED_FIFO is not allowed here")
    cpu = min(os.sched_getaffinity(0))
    sampler.tell(planned, scheduler="fifo", cpu=cpu)
    sampler.start()
    sampler.wait_for_ticks()
    assert sampler.process is not None
    assert (sampler.word(at.L_FIFO), sampler.word(at.L_PINNED)) == (0, 0)
    assert os.sched_getscheduler(sampler.process.pid) == os.SCHED_FIFO
    assert os.sched_getaffinity(sampler.process.pid) == {cpu}


def can_have_fifo() -> bool:
    program = "from ibpulse.sampler.scheduling import schedule_fifo; print(schedule_fifo())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "0"


@pytest.mark.parametrize("cpu", [-1, 4095, 2**40])
def test_a_cpu_that_is_not_there_is_an_errno(cpu: int) -> None:
    assert os.strerror(scheduling.pin_to_cpu(cpu)) == "Invalid argument"


def test_granted_requests_return_zero() -> None:
    program = (
        "import os; from ibpulse.sampler.scheduling import *; "
        "print(sharpen_timers(), die_with_parent(os.getppid()), pin_to_cpu(min(os.sched_getaffinity(0))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0", "0"]


def test_a_missing_ring_ends_the_sampler_with_a_sentence(tmp_path: Path) -> None:
    status, said = run(str(tmp_path / "ring"), "0")
    assert status == EXIT_NO_RING
    assert said == (
        f"sampler: ring {tmp_path}/ring cannot be opened: No such file or directory; is `ibpulse serve` running?\n"
    )


def test_a_missing_plan_ends_the_sampler_with_a_sentence(ring: RingFile) -> None:
    status, said = run(str(ring.path), "0")
    assert status == EXIT_NO_RING
    assert f"No such file or directory: '{ring.path.parent}/plan-0.json'" in said


def test_a_broken_plan_ends_the_sampler_with_a_sentence(ring: RingFile) -> None:
    plan_path(ring.path, 0).write_text('{"generation"')
    status, said = run(str(ring.path), "0")
    assert status == EXIT_NO_RING
    assert said.startswith("sampler: ")
    assert said.count("\n") == 1


def test_a_running_sampler_keeps_its_plan_while_the_new_one_cannot_be_read(
    sampler: SamplerRun, ring: RingFile, planned: PlannedPort
) -> None:
    sampler.tell(planned)
    sampler.start()
    sampler.wait_for_ticks()
    plan_path(ring.path, 0).write_text('{"generation"')
    ring.words[at.lane_at(0) + at.L_PLAN_WANTED] = 77
    sampler.wait_for_ticks(200)
    assert sampler.word(at.L_PLAN_APPLIED) == 1
    generation = sampler.tell(planned)
    eventually(lambda: sampler.word(at.L_PLAN_APPLIED) == generation)
    ring.words[at.lane_at(0) + at.L_PLAN_WANTED] = STOP
    status, said = sampler.wait()
    assert status == 0
    assert said.count("; the last plan stays in force\n") == said.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["/x"], ["/x", "main"], ["/x", str(at.LANE_COUNT)], ["/x", "-1"]])
def test_other_arguments_are_refused(arguments: list[str]) -> None:
    refusal = f"sampler: arguments {' '.join(arguments)!r}: expected RING LANE, with a lane from 0 to 15\n"
    assert run(*arguments) == (EXIT_NO_RING, refusal)


def test_a_wall_clock_stepped_between_two_runs_begins_a_segment(
    sampler: SamplerRun, ring: RingFile, planned: PlannedPort
) -> None:
    """As if the wall clock had been an hour ahead before; the ticks never go back."""
    before = time.time_ns() // INTERVAL_NS + HOUR_TICKS
    ring.begin_segment(before - 1000, 0)
    ring.words[at.lane_at(0) + at.L_TICK] = before
    sampler.tell(planned)
    sampler.start()
    sampler.wait_for_ticks()
    assert sampler.word(at.L_CLOCK_STEPS) == 1
    tick, shift = ring.segments()[-1]
    assert 2 <= tick - before < 6000
    assert shift == pytest.approx(HOUR_TICKS, abs=60_000)
    latest = ring.latest_tick()
    wall = int(RingReader(ring).wall_ns(np.array([latest]))[0])
    assert abs(time.time_ns() - wall) < 30 * 1_000_000_000


def test_a_lane_of_its_own_ends_when_the_wall_clock_was_stepped(ring: RingFile, planned: PlannedPort) -> None:
    """The main sampler writes the segments; this one is started again and reads them."""
    before = time.time_ns() // INTERVAL_NS + HOUR_TICKS
    ring.begin_segment(1, 0)
    ring.words[at.lane_at(2) + at.L_TICK] = before
    trial = SamplerRun(ring, 2)
    trial.tell(planned)
    trial.start()
    assert trial.wait() == (EXIT_CLOCK_STEP, "")
    assert trial.word(at.L_TICKS) == 0
    assert ring.segments() == [(1, 0)]


def test_the_ring_of_these_tests_is_long_enough() -> None:
    assert CAPACITY * INTERVAL_NS >= 60 * 1_000_000_000
