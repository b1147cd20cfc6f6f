"""The sampler as a process: what it asks of the kernel, its signals, and its end with its parent."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.agent.sampler.plan import STOP, Plan, PlannedPort, plan_path, write_plan
from ibpulse.agent.sampler.process import EXIT_ORPHAN
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from tests.running import eventually
from tests.sampler.tree import Tree


class SamplerRun:
    """A sampler process, started by the test as a supervisor would."""

    def __init__(self, ring: RingFile) -> None:
        self.ring = ring
        self.process: subprocess.Popen[str] | None = None

    def word(self, which: int) -> int:
        return self.ring.words[at.lane_at(0) + which]

    def tell(
        self, *ports: PlannedPort, parent: int | None = None, scheduler: str = "other", cpu: int | None = None
    ) -> None:
        write_plan(plan_path(self.ring.path, 0), Plan(1, parent or os.getpid(), scheduler, cpu, ports))
        self.ring.words[at.lane_at(0) + at.L_PLAN_WANTED] = 1

    def start(self, *prefix: str) -> int:
        path, file = self.ring.path, self.ring.descriptor
        command = [*prefix, sys.executable, "-m", "ibpulse.agent.sampler.process", str(path), "0", str(file)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, pass_fds=(file,))
        return self.process.pid

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
            self.ring.words[at.lane_at(0) + at.L_PLAN_WANTED] = STOP
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


def test_the_kernel_grants_slack_scheduler_and_cpu(sampler: SamplerRun, planned: PlannedPort) -> None:
    fifo = can_have_fifo()
    cpu = min(os.sched_getaffinity(0))
    sampler.tell(planned, scheduler="fifo" if fifo else "other", cpu=cpu)
    pid = sampler.start()
    sampler.wait_for_ticks()
    assert os.sched_getaffinity(pid) == {cpu}
    assert sampler.word(at.L_PINNED) == 0
    if fifo:
        assert (sampler.word(at.L_FIFO), os.sched_getscheduler(pid)) == (0, os.SCHED_FIFO)
    slack = Path(f"/proc/{pid}/timerslack_ns")
    # some kernels do not show it, and a real-time process has none
    assert not slack.exists() or slack.read_text() in {"1\n", "0\n"}


def can_have_fifo() -> bool:
    program = "from ibpulse.agent.sampler.kernel import schedule_fifo; print(schedule_fifo())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "0"


def test_a_refused_scheduler_and_cpu_do_not_stop_the_sampler(sampler: SamplerRun, planned: PlannedPort) -> None:
    prefix: list[str] = []
    if os.geteuid() == 0 and shutil.which("setpriv"):
        prefix = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"]
    sampler.tell(planned, scheduler="fifo", cpu=4095)
    sampler.start(*prefix)
    sampler.wait_for_ticks()
    assert os.strerror(sampler.word(at.L_PINNED)) == "Invalid argument"
    if prefix:
        assert os.strerror(sampler.word(at.L_FIFO)) == "Operation not permitted"


def test_the_sampler_dies_with_its_parent(sampler: SamplerRun, planned: PlannedPort, tmp_path: Path) -> None:
    parent = tmp_path / "parent.py"
    parent.write_text(
        "import os, subprocess, sys, time\n"
        "from pathlib import Path\n"
        "from ibpulse.agent.sampler.plan import Plan, plan_path, write_plan\n"
        "ring = Path(sys.argv[1])\n"
        "write_plan(plan_path(ring, 0), Plan(1, os.getpid()))\n"
        "file = os.open(ring, os.O_RDWR)\n"
        "module = 'ibpulse.agent.sampler.process'\n"
        "subprocess.Popen([sys.executable, '-m', module, str(ring), '0', str(file)], pass_fds=(file,))\n"
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


def test_signals_of_the_whole_group_are_ignored(sampler: SamplerRun, planned: PlannedPort) -> None:
    sampler.tell(planned)
    pid = sampler.start()
    sampler.wait_for_ticks()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
        sampler.wait_for_ticks()
    assert sampler.process is not None
    assert sampler.process.poll() is None
