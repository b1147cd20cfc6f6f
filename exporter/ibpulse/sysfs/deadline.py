"""Reads that may block for a minute, each in a daemon thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Watch(Generic[T]):
    """One subject with its reader, its thread and its last answer; one that comes late counts from the next scan.

    `answer` is None before the first one. `read` takes the number of the scan and must not raise.
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
        """Whether the thread of an earlier scan has not come back."""
        return self._thread is not None and self._thread.is_alive()

    def is_due(self, scan: int, every: int) -> bool:
        """Whether a read of so many scans ago, or none yet, asks for another."""
        return self.started_at is None or scan - self.started_at >= every

    def start(self, scan: int) -> threading.Thread:
        """The thread of a new read; the last one must have come back."""
        self.answered, self.started_at = False, scan
        self._thread = threading.Thread(target=self._run, args=(scan,), name=self._thread_name, daemon=True)
        self._thread.start()
        return self._thread

    def _run(self, scan: int) -> None:
        self.answer = self._read(scan)
        self.answered = True


class Watches(Generic[T]):
    """A watch for each of the names of the last scan, and for those whose threads still hang.

    `make` gives the reader of a name, `thread_name` the name of its threads with `{}` for it. Each is read again after
    `every` scans.
    """

    def __init__(self, make: Callable[[str], Callable[[int], T]], thread_name: str, every: int = 1) -> None:
        self._make = make
        self._thread_name = thread_name
        self._every = every
        self._watches: dict[str, Watch[T]] = {}

    def start(self, names: Sequence[str], scan: int) -> list[threading.Thread]:
        """The threads of the reads that this scan begins; names that are not among these are forgotten."""
        kept = {name: watch for name, watch in self._watches.items() if name in names or watch.is_running()}
        for name in names:
            if name not in kept:
                kept[name] = Watch(name, self._thread_name.format(name), self._make(name))
        self._watches = kept
        idle = [kept[name] for name in names if not kept[name].is_running()]
        return [watch.start(scan) for watch in idle if watch.is_due(scan, self._every)]

    def __getitem__(self, name: str) -> Watch[T]:
        return self._watches[name]

    def read_again(self, name: str) -> None:
        """Let the next scan read this one, whatever its turn."""
        self._watches[name].started_at = None
