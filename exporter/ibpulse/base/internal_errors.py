"""Keeps an exception within the part of the process in which it happened: counted, logged once, shown as a notice."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from ibpulse.base.errors import IbpulseError

log = logging.getLogger(__name__)

PARTS: Mapping[str, str] = {
    "aggregation": "statistics of the last second",
    "captures": "the flight recorder and its local rules",
    "counters": "reads of error counters",
    "events": "the event log",
    "fabric": "scans of devices and of the state of links",
    "jobs": "which jobs run on this node",
    "plan": "plans and processes of the sampler",
    "web": "reloads of the web configuration",
}
"""The parts of the daemon that go on after an exception."""
GATEWAY_PARTS: Mapping[str, str] = {
    "discovery": "the sources of nodes",
    "nodes": "polls of the nodes",
    "push": "alerts that are pushed to Alertmanagers and webhooks",
    "stalls": "the watch over silent jobs",
    "web": PARTS["web"],
}
"""The parts of the gateway."""
# what is logged is logged again after it was absent for this long
FORGET_SECONDS = 3600.0
# a notice stays for this long after the block succeeded again
SHOWN_SECONDS = 60.0
# the longest slow.interval, and some: a block that was not repeated since is no longer needed
MAX_PAUSE_SECONDS = 660.0


class Occurrences:
    """Decides whether to log a repeated occurrence: the first time, and again after a long absence."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last: dict[Hashable, float] = {}

    def is_news(self, key: Hashable) -> bool:
        """Whether it did not occur within `FORGET_SECONDS`. It occurs now."""
        now = self._monotonic()
        news = key not in self._last
        if news or now - self._last[key] >= FORGET_SECONDS:
            self._last = {known: seen for known, seen in self._last.items() if now - seen < FORGET_SECONDS}
            news = True
        self._last[key] = now
        return news


def find_cause(error: BaseException) -> Hashable:
    """The type of an exception and the place that raised it, whatever its message says."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return type(error), frame.f_code.co_filename, line


class InternalErrors:
    """The exceptions that parts of the process ended with, and went on; any thread may use it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, parts: Iterable[str] = PARTS) -> None:
        self._monotonic = monotonic
        self._counts = dict.fromkeys(parts, 0)
        self._occurrences = Occurrences(monotonic)
        self._shown: dict[tuple[str, str], tuple[float, str]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[InternalErrors], tuple[()]]:
        """A copy in another process begins without exceptions."""
        return InternalErrors, ()

    @contextmanager
    def boundary(self, part: str, subject: str = "") -> Iterator[None]:
        """End the block at an exception, which is counted; the caller repeats the block later.

        `part` is one of the parts of the process, `subject` what of it failed, such as a device. An error that ibpulse
        raises on purpose is logged as a sentence, any other one with its stack trace.
        """
        try:
            yield
        except Exception as error:
            self._note(part, subject, error)
        else:
            if self._shown:
                self._settle(part, subject)

    def counts(self) -> dict[str, int]:
        """The number of exceptions of every part since the start."""
        return dict(self._counts)

    def summary(self) -> str:
        """The number of exceptions of each part, as a sentence; empty if there were none."""
        failed = ", ".join(f"{part} {count}" for part, count in self._counts.items() if count)
        return failed and f"there were internal errors: {failed}"

    def notices(self) -> tuple[str, ...]:
        """A sentence for each part and subject that fails, or did so until `SHOWN_SECONDS` ago."""
        return tuple(text for _, text in self._find_shown().values())

    def failing_parts(self) -> tuple[str, ...]:
        """The parts that `notices` are about."""
        return tuple(dict.fromkeys(part for part, _ in self._find_shown()))

    def _find_shown(self) -> Mapping[tuple[str, str], tuple[float, str]]:
        now = self._monotonic()
        with self._lock:
            self._shown = {key: shown for key, shown in self._shown.items() if shown[0] > now}
            return dict(self._shown)

    def _settle(self, part: str, subject: str) -> None:
        with self._lock:
            if (part, subject) in self._shown:
                until, text = self._shown[part, subject]
                self._shown[part, subject] = (min(until, self._monotonic() + SHOWN_SECONDS), text)

    def _note(self, part: str, subject: str, error: Exception) -> None:
        known = isinstance(error, IbpulseError)
        text = f"internal error in {part}{subject and f' ({subject})'}: "
        text += str(error) if known else "".join(traceback.format_exception_only(error)).strip().partition("\n")[0]
        with self._lock:
            self._counts[part] += 1
            self._shown[part, subject] = (self._monotonic() + MAX_PAUSE_SECONDS, f"{text}; retrying")
            news = self._occurrences.is_news((part, subject, find_cause(error)))
        if news:
            log.error("%s; retrying", text, exc_info=None if known else error)
