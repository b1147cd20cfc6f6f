"""One sampler process and its heartbeat, as the supervisor holds it. It decides nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass

from ibpulse.errors import SamplerError
from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.sampler.plan import STOP, Plan, plan_path, write_plan
from ibpulse.sampler.process import NOT_ASKED

# A healthy read takes tens of µs to a few ms; a sick NIC blocks one for over a minute.
HUNG_READ_SECONDS = 0.25
SILENT_SECONDS = 1.0
STARTING_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Stall:
    """How long a lane has made no progress, and in which device; device is empty between two ticks."""

    seconds: float
    device: str

    def is_hung_read(self) -> bool:
        """Whether a read of the device has hung."""
        return bool(self.device) and self.seconds > HUNG_READ_SECONDS


class Lane:
    """A place in the ring's header for one sampler process, with the process that runs there."""

    def __init__(self, ring: RingFile, number: int) -> None:
        self.number = number
        self.plan: Plan | None = None
        self._told: dict[int, Plan] = {}
        self.started_monotonic = 0.0
        self._ring = ring
        self._words = at.lane_at(number)
        self._process: subprocess.Popen[bytes] | None = None
        self._last_sign: tuple[int, ...] = ()
        self._signless_polls = 0
        self._last_sign_monotonic = 0.0

    def word(self, which: int) -> int:
        """One word of the lane's block in the ring."""
        return self._ring.words[self._words + which]

    def tell(self, plan: Plan) -> None:
        """Give the lane a plan; a running process takes it up within a tick."""
        self.plan = plan
        try:
            write_plan(plan_path(self._ring.path, self.number), plan)
        except OSError as error:
            raise SamplerError(
                f"the sampler's plan {plan_path(self._ring.path, self.number)} cannot be written: {error.strerror}; "
                "set ring.dir to a writable directory with free space"
            ) from error
        applied = self.word(at.L_PLAN_APPLIED)
        self._told = {generation: told for generation, told in self._told.items() if generation >= applied}
        self._told[plan.generation] = plan
        self._ring.words[self._words + at.L_PLAN_WANTED] = plan.generation

    def start(self) -> None:
        """Start the process. The caller has seen to it that no other process runs user code on this lane."""
        words = self._ring.words
        words[self._words + at.L_DEVICE] = 0
        words[self._words + at.L_PLAN_APPLIED] = 0
        words[self._words + at.L_FIFO] = words[self._words + at.L_PINNED] = NOT_ASKED
        command = [sys.executable, "-m", "ibpulse.sampler.process", str(self._ring.path), str(self.number)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        except OSError as error:
            raise SamplerError(f"the sampler process cannot be started: {command[0]}: {error.strerror}") from error
        self.started_monotonic = time.monotonic()
        self._signless_polls = 0
        self._last_sign_monotonic = self.started_monotonic

    def is_started(self) -> bool:
        """Whether there is a process, running or ended."""
        return self._process is not None

    def exit_status(self) -> int | None:
        """Exit status of the process, negative for a signal, None while it runs or when there is none."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> subprocess.Popen[bytes] | None:
        """Kill the process and let go of it: it never runs user code again, though it may take long to end."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
        return process

    def terminate(self) -> subprocess.Popen[bytes] | None:
        """Tell the process to end at its next tick and let go of it."""
        process, self._process = self._process, None
        self._ring.words[self._words + at.L_PLAN_WANTED] = STOP
        return process

    def look(self) -> Stall:
        """How long there was no sign of life, in time in which somebody looked.

        Only looks count: when this process itself was stopped or starved, the first look after it starts anew.
        """
        now = time.monotonic()
        device = self.word(at.L_DEVICE)
        # that it took up a plan is a sign too: a process may be long in starting, and its first tick is to come
        sign = (self.word(at.L_HEARTBEAT_NS), self.word(at.L_TICKS), self.word(at.L_PLAN_APPLIED), device)
        if sign != self._last_sign:
            self._last_sign, self._signless_polls, self._last_sign_monotonic = sign, 0, now
        else:
            self._signless_polls += 1
        # two looks without a sign prove nothing, whatever the clock says between them
        seconds = now - self._last_sign_monotonic if self._signless_polls >= 3 else 0.0
        return Stall(seconds, self._device(device))

    def _device(self, number: int) -> str:
        """The device of a heartbeat, by the plan that the process follows: it may not have taken up the newest."""
        applied = self._told.get(self.word(at.L_PLAN_APPLIED))
        devices = applied.devices() if applied else ()
        return devices[number - 1] if 0 < number <= len(devices) else ""

    def is_silent(self, stall: Stall) -> bool:
        """Whether a running process gives no sign of life although no device holds it up."""
        started = self.word(at.L_PLAN_APPLIED)
        patience = max(SILENT_SECONDS, 3 * self._ring.interval_ns / 1e9) if started else STARTING_SECONDS
        return not stall.device and stall.seconds > patience


class Dying:
    """Processes that were let go of. One that hangs in a read ends only when the device answers."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def add(self, process: subprocess.Popen[bytes] | None) -> None:
        """Take over a process that was told to end."""
        if process is not None:
            self._processes.append(process)

    def reap(self) -> None:
        """Forget those that have ended."""
        self._processes = [process for process in self._processes if process.poll() is None]

    def wait(self, seconds: float) -> None:
        """Wait for all, kill those that take longer than this, and wait as long again."""
        self._wait(seconds)
        for process in self._processes:
            process.kill()
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass  # it hangs in a read; nothing can end it before the device answers
        self.reap()
