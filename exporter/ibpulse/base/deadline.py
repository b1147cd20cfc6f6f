"""Runs work that may block for minutes in daemon threads, and waits for reads with one deadline.

Nothing can interrupt a read of a device whose firmware does not answer. A late thread is abandoned; because it is a
daemon thread, it does not delay the exit of the process either. Work that is long but not urgent yields to others, and
work that repeats wakes the process at common times.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from ibpulse.base.clocks import Clock

T = TypeVar("T")
P = ParamSpec("P")
# The beats are this long after the beginning of a second, when the newest samples are whole: see the aggregator.
BEAT_SECONDS = 0.3
# an unused thread ends after this long
IDLE_SECONDS = 10.0
# Threads that read at the same time only take the interpreter from each other; one that hangs does not stop the others.
TURN_SECONDS = 0.05


def seconds_until_beat(period_seconds: float, clock: Clock = time) -> float:
    """Seconds until the next beat of the wall clock with this period, for work that repeats.

    Beats with periods that are multiples of each other coincide, so that the process wakes once for all of them.
    """
    return period_seconds - (clock.time() - BEAT_SECONDS) % period_seconds


def yield_to_others(niceness: int) -> None:
    """Raise the niceness of the calling thread, where that is allowed.

    A filter of system calls (seccomp) may refuse it. The work itself matters more.
    """
    with suppress(OSError):
        os.nice(niceness)


def start_thread(run: Callable[[], object], name: str) -> threading.Thread:
    """Start a thread that may be abandoned while it reads a device."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def join_all(threads: Iterable[threading.Thread], seconds: float) -> None:
    """Wait until these threads have ended, for at most this many seconds in total."""
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


class DaemonThreads(Executor):
    """Runs calls in at most `size` threads, in the order in which they were submitted.

    Unlike those of a `ThreadPoolExecutor` or of `asyncio.to_thread`, the threads are daemon threads: neither the end of
    the event loop nor that of the process waits for them. `initialize` is called first in each thread. Unused threads
    end after `idle_seconds`, if given.
    """

    def __init__(
        self,
        size: int,
        name: str,
        initialize: Callable[[], object] | None = None,
        idle_seconds: float | None = IDLE_SECONDS,
    ) -> None:
        self._size, self._name, self._initialize, self._idle_seconds = size, name, initialize, idle_seconds
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = self._idle = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn` in a thread as soon as one is free."""
        future: Future[T] = Future()
        with self._changed:
            if len(self._waiting) >= self._idle and self._threads < self._size:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
                self._threads += 1
            self._waiting.append((future, partial(fn, *args, **kwargs)))
            self._changed.notify()
        return future

    def _run(self) -> None:
        if self._initialize is not None:
            self._initialize()
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """Run the next call; false if there was none for a while, and the thread no longer counts."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting, self._idle_seconds)
            self._idle -= 1
            if not self._waiting:
                self._threads -= 1
                return False
            future, call = self._waiting.popleft()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
        return True


class RepeatedRead(Generic[T]):
    """A repeated read and its last answer; a late answer is used from the next scan on.

    `answer` is None before the first one. `read` takes the number of the scan and has to handle its own exceptions.
    """

    def __init__(self, name: str, thread_name: str, read: Callable[[int], T]) -> None:
        self.name = name
        self.answer: T | None = None
        self.answered = False
        self.started_at: int | None = None
        self._thread_name = thread_name
        self._read = read
        self._thread: threading.Thread | None = None

    def is_running(self) -> bool:
        """Whether the thread of an earlier scan is still running."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, scan: int, turn: threading.Lock | None = None) -> threading.Thread:
        """Start a new read and return its thread; the previous one has ended.

        It waits for those that have the same `turn`, for `TURN_SECONDS` at most.
        """
        self.answered, self.started_at = False, scan
        self._thread = start_thread(partial(self._run_in_turn, scan, turn or threading.Lock()), self._thread_name)
        return self._thread

    def _run_in_turn(self, scan: int, turn: threading.Lock) -> None:
        taken = turn.acquire(timeout=TURN_SECONDS)
        try:
            self._run(scan)
        finally:
            if taken:
                turn.release()

    def _run(self, scan: int) -> None:
        self.answer = self._read(scan)
        self.answered = True


R = TypeVar("R", bound=RepeatedRead[Any])


class RepeatedReads(Generic[R]):
    """The reads for the names of the last scan, and for names whose threads still hang.

    `make` returns the read for a name. Each read is repeated every `every` scans.
    """

    def __init__(self, make: Callable[[str], R], every: int = 1) -> None:
        self._make = make
        self._every = every
        self._reads: dict[str, R] = {}

    def start(self, names: Sequence[str], scan: int) -> list[threading.Thread]:
        """Start the reads due in this scan and return their threads; forget other names unless they still run."""
        kept = {name: read for name, read in self._reads.items() if name in names or read.is_running()}
        for name in names:
            if name not in kept:
                kept[name] = self._make(name)
        self._reads = kept
        idle = [kept[name] for name in names if not kept[name].is_running()]
        due = [read for read in idle if read.started_at is None or scan - read.started_at >= self._every]
        turn = threading.Lock()
        return [read.start(scan, turn) for read in due]

    def __getitem__(self, name: str) -> R:
        return self._reads[name]

    def read_again(self, name: str) -> None:
        """Make the next scan read this name, whether it is due or not."""
        self._reads[name].started_at = None


@dataclass(frozen=True, slots=True)
class CallResults(Generic[T]):
    """Results returned in time, by name, and the names of calls that are late, both in the order of the calls.

    A call that failed with an OSError is in neither.
    """

    values: Mapping[str, T]
    late: tuple[str, ...]


def call_all(calls: Mapping[str, Callable[[], T]], seconds: float) -> CallResults[T]:
    """Run all calls in parallel, one thread each, and wait for the results for at most this many seconds in total."""
    reads = {name: RepeatedRead(name, f"call-{name}", partial(_call, call)) for name, call in calls.items()}
    join_all([read.start(0) for read in reads.values()], seconds)
    # a late thread may end at any time; the copy keeps both results consistent
    ended = {name: read.answer for name, read in reads.items() if read.answered}
    return CallResults(
        {name: values[0] for name, values in ended.items() if values},
        tuple(name for name in calls if name not in ended),
    )


def _call(call: Callable[[], T], _: int) -> tuple[T, ...]:
    """The result, or nothing for a call that failed."""
    try:
        return (call(),)
    except OSError:
        return ()
