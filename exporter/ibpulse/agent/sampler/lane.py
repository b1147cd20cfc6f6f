"""The supervisor's side of a sampler process: starting it, its heartbeat, and logging of its reports in the ring."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ibpulse.agent.sampler import kernel
from ibpulse.agent.sampler.plan import STOP, Plan, plan_path, write_plan
from ibpulse.agent.sampler.process import MAIN_LANE, NOT_ASKED
from ibpulse.base.clocks import Clock
from ibpulse.base.errors import SamplerError
from ibpulse.base.internal_errors import Occurrences
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile

log = logging.getLogger(__name__)

# A healthy read takes tens of µs to a few ms; a hung NIC blocks one for over a minute.
HUNG_READ_SECONDS = 0.25
# A heartbeat this old is looked at more often, before it counts as a hung read.
RECENT_SECONDS = 0.05
# between two looks
MAX_PAUSE_SECONDS = 0.4
SILENT_SECONDS = 1.0
STARTING_SECONDS = 15.0
# A running sampler applies a new plan within a tick.
PLAN_SECONDS = 5.0
REQUESTS = (("sampler.scheduler=fifo", at.L_FIFO), ("sampler.cpu", at.L_PINNED))
# the capacity of a pipe: one read empties it
PIPE_BYTES = 65_536
# of all processes: one that is started again for the same reason says the same
_said = Occurrences()


class PipedProcess:
    """A child process without the standard streams of this one: in the kernel it may keep them open for long.

    What it writes to standard error, such as a traceback, is logged as soon as it pauses or ends.
    """

    def __init__(self, command: Sequence[str], inherited: Sequence[int] = ()) -> None:
        """Start the command, which inherits these descriptors.

        Raises:
            OSError: it cannot be started.
        """
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=inherited
        )
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        self._unlogged = b""
        os.set_blocking(self._stderr.fileno(), False)

    def poll(self) -> int | None:
        """Exit status, negative for a signal, None while the process runs; logs its messages."""
        status = self._process.poll()
        self._log_messages(ended=status is not None)
        return status

    def wait(self, seconds: float) -> None:
        """Wait for the end of the process.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        self._process.wait(seconds)

    def kill(self) -> None:
        """Kill the process: it no longer runs user code, but may take long to end."""
        self._process.kill()

    def _log_messages(self, *, ended: bool) -> None:
        if self._stderr.closed:
            return
        fresh = self._read()
        self._unlogged += fresh
        # the rest of a traceback may follow
        if ended or not fresh or len(self._unlogged) >= PIPE_BYTES:
            text, self._unlogged = self._unlogged.decode(errors="replace").strip(), b""
            # a part of a longer message may be like another part
            if text and (len(text) >= PIPE_BYTES or _said.is_news(hash(text))):
                log.error("message from a process: %s", text)
        if ended:
            self._stderr.close()

    def _read(self) -> bytes:
        try:
            return os.read(self._stderr.fileno(), PIPE_BYTES)
        except BlockingIOError:
            return b""


class Process(Protocol):
    """A sampler process."""

    def poll(self) -> int | None:
        """Exit status, negative for a signal, None while the process runs."""

    def wait(self, seconds: float) -> None:
        """Wait for the end of the process.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """

    def kill(self) -> None:
        """Kill the process: it no longer runs user code, but may take long to end."""


StartProcess = Callable[[RingFile, int], Process]
"""Starts the sampler process of a ring and a lane; raises OSError."""


def start_sampler(ring: RingFile, lane: int) -> Process:
    """Start the sampler in a process of its own.

    Raises:
        OSError: it cannot be started.
    """
    file = ring.descriptor
    command = [sys.executable, "-m", "ibpulse.agent.sampler.process", str(ring.path), str(lane), str(file)]
    return PipedProcess(command, (file,))


@dataclass(frozen=True, slots=True)
class Stall:
    """Time a lane has made no progress, and the device being read; the device is empty between two ticks."""

    seconds: float
    device: str

    def is_hung_read(self) -> bool:
        """Whether a read of the device has hung."""
        return bool(self.device) and self.seconds > HUNG_READ_SECONDS


class Lane:
    """A block in the ring's header for one sampler process, and the process that uses it."""

    def __init__(
        self,
        ring: RingFile,
        number: int,
        clock: Clock = time,
        start_process: StartProcess = start_sampler,
    ) -> None:
        self.number = number
        self._clock, self._start_process = clock, start_process
        self.plan: Plan | None = None
        self._written: dict[int, Plan] = {}
        self.started_monotonic = 0.0
        """When the process was last started, or that was tried."""
        self._plan_monotonic = 0.0
        self._ring = ring
        self._words = at.lane_at(number)
        self._process: Process | None = None
        self._last_sign: tuple[int, ...] = ()
        self._signless_polls = 0
        self._last_sign_monotonic = self._polled_monotonic = 0.0
        self._stalled = 0.0, 0.0

    def word(self, which: int) -> int:
        """One word of the lane's block in the ring."""
        return self._ring.words[self._words + which]

    def write_plan(self, plan: Plan) -> None:
        """Give the lane a plan; a running process applies it within a tick.

        Raises:
            SamplerError: it cannot be written; the lane keeps its last plan.
        """
        try:
            write_plan(plan_path(self._ring.path, self.number), plan)
        except OSError as error:
            raise SamplerError(
                f"the sampler's plan {plan_path(self._ring.path, self.number)} cannot be written: {error.strerror}; "
                "set ring.dir to a writable directory with free space"
            ) from error
        self.plan, self._plan_monotonic = plan, self._clock.monotonic()
        applied = self.word(at.L_PLAN_APPLIED)
        self._written = {generation: written for generation, written in self._written.items() if generation >= applied}
        self._written[plan.generation] = plan
        self._ring.words[self._words + at.L_PLAN_WANTED] = plan.generation

    def has_plan(self, generation: int) -> bool:
        """Whether its plan is of this generation."""
        return self.plan is not None and self.plan.generation == generation

    def check_plan_applied(self) -> None:
        """Check that a running process follows the plan.

        Raises:
            SamplerError: it had `PLAN_SECONDS` for it; the process reports why it cannot read the plan.
        """
        applied = self.word(at.L_PLAN_APPLIED)
        if self.plan is None or applied in (0, self.plan.generation) or self._process is None:
            return
        if self._clock.monotonic() - max(self._plan_monotonic, self.started_monotonic) > PLAN_SECONDS:
            path = plan_path(self._ring.path, self.number)
            raise SamplerError(f"the sampler does not follow its plan {path}; check ring.dir")

    def start(self) -> None:
        """Start the process. The caller ensures that no other process runs user code on this lane.

        Raises:
            SamplerError: it cannot be started.
        """
        self.started_monotonic = self._clock.monotonic()
        words = self._ring.words
        words[self._words + at.L_DEVICE] = 0
        words[self._words + at.L_PLAN_APPLIED] = 0
        words[self._words + at.L_FIFO] = words[self._words + at.L_PINNED] = NOT_ASKED
        try:
            self._process = self._start_process(self._ring, self.number)
        except OSError as error:
            raise SamplerError(f"the sampler process {sys.executable} cannot be started: {error.strerror}") from error
        self._signless_polls = 0
        self._last_sign_monotonic = self.started_monotonic

    def is_started(self) -> bool:
        """Whether a process was started, running or ended."""
        return self._process is not None

    def exit_status(self) -> int | None:
        """Exit status of the process, negative for a signal, None while it runs or without a process."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> Process | None:
        """Kill and release the process: it no longer runs user code, but may take long to end."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
        return process

    def terminate(self) -> Process | None:
        """Ask the process to end at its next tick, and release it."""
        process, self._process = self._process, None
        self._ring.words[self._words + at.L_PLAN_WANTED] = STOP
        return process

    def poll(self) -> Stall:
        """The current stall: time without progress, counting only time in which the lane was polled.

        If this process itself was stopped or starved, counting restarts with the next poll.
        """
        now = self._clock.monotonic()
        before, self._polled_monotonic = self._polled_monotonic, now
        device = self.word(at.L_DEVICE)
        # applying a plan counts as progress too, because a process may take long to start before its first tick
        sign = (self.word(at.L_HEARTBEAT_NS), self.word(at.L_TICKS), self.word(at.L_PLAN_APPLIED), device)
        if sign != self._last_sign:
            self._last_sign, self._signless_polls = sign, 0
            # the heartbeat tells when, unless this process itself slept for longer than it meant to
            seen = max(before, self.word(at.L_HEARTBEAT_NS) / 1e9) if now - before < MAX_PAUSE_SECONDS else now
            self._last_sign_monotonic = min(seen, now)
        else:
            self._signless_polls += 1
            if device and self._signless_polls == 1:
                self._stalled = now, kernel.state_of(self.word(at.L_PID))[1]
        # two polls without progress prove nothing, even if much time passed between them
        seconds = now - self._last_sign_monotonic if self._signless_polls >= 3 else 0.0
        return Stall(seconds, self._device(device))

    def is_starved(self) -> bool:
        """Whether the process is ready to run but gets no CPU, so that it only seems to hang in a read.

        A read that waits for its device sleeps; one that spins in the kernel uses CPU.
        """
        state, used = kernel.state_of(self.word(at.L_PID))
        since, used_then = self._stalled
        return state == "R" and used - used_then < (self._clock.monotonic() - since) / 2

    @property
    def moves(self) -> bool:
        """Whether the last `poll` found recent progress: then the process neither hangs nor has ended."""
        recent = max(RECENT_SECONDS, 3 * self._ring.interval_ns / 1e9)
        return self._signless_polls == 0 and self._polled_monotonic - self._last_sign_monotonic < recent

    def _device(self, number: int) -> str:
        """The device of a heartbeat, according to the plan that the process follows, which may not be the newest."""
        if not number:
            return ""
        applied = self._written.get(self.word(at.L_PLAN_APPLIED))
        devices = applied.devices() if applied else ()
        return devices[number - 1] if number <= len(devices) else ""

    def is_silent(self, stall: Stall) -> bool:
        """Whether a running process has stopped sending heartbeats although no device blocks it."""
        started = self.word(at.L_PLAN_APPLIED)
        patience = max(SILENT_SECONDS, 3 * self._ring.interval_ns / 1e9) if started else STARTING_SECONDS
        return not stall.device and stall.seconds > patience


class EndingProcesses:
    """Released processes that are ending. A process that hangs in a read ends only when the device responds."""

    def __init__(self, clock: Clock = time) -> None:
        self._clock = clock
        self._processes: list[Process] = []

    def add(self, process: Process | None) -> None:
        """Take over a process that was asked to end."""
        if process is not None:
            self._processes.append(process)

    def reap(self) -> None:
        """Forget those that have ended."""
        self._processes = [process for process in self._processes if process.poll() is None]

    def wait(self, seconds: float) -> None:
        """Wait for all, kill those that take longer than this, and wait for the same time again."""
        self._wait(seconds)
        for process in self._processes:
            process.kill()
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        deadline = self._clock.monotonic() + seconds
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - self._clock.monotonic()))
            except subprocess.TimeoutExpired:
                pass  # it hangs in a read; nothing can end it before the device responds
        self.reap()


class HeaderLog:
    """Logs changes in the status of a ring's ports, each only once."""

    def __init__(self, ring: RingFile) -> None:
        self._ring = ring
        self._statuses: dict[str, int] = {}
        self._refused: set[str] = set()

    def log_changes(self, slots: Mapping[str, int]) -> None:
        """Log status changes of these ports, and requests of the main sampler that the kernel refused."""
        for name, slot in slots.items():
            status = self._ring.slot_word(slot, at.S_STATUS)
            if status != self._statuses.get(name, at.OK):
                self._log_status(name, slot, status)
            self._statuses[name] = status
        for what, which in REQUESTS:
            refusal = self._ring.words[at.lane_at(MAIN_LANE) + which]
            if refusal not in (0, NOT_ASKED) and what not in self._refused:
                self._refused.add(what)
                log.warning("%s was refused (%s); the sampler continues without it", what, os.strerror(refusal))

    def _log_status(self, name: str, slot: int, status: int) -> None:
        reason = explain_errno(self._ring.slot_word(slot, at.S_LAST_ERRNO))
        if status == at.LEFT_ALONE:
            log.warning(
                "port %s: a counter file keeps failing (%s); pausing it and retrying within a minute. "
                "If it never recovers, add the port to ports.exclude",
                name,
                reason,
            )
        elif status == at.GONE:
            log.warning("port %s: its device disappeared (%s); searching for it", name, reason)
        else:
            log.info("port %s: its counter files are readable again", name)


def explain_errno(number: int) -> str:
    """An errno in words, such as `EINVAL: Invalid argument`; EBADMSG means that the file's text is not a number."""
    if number == errno.EBADMSG:
        return "its content is not a number"
    return f"{errno.errorcode.get(number, number)}: {os.strerror(number)}"
