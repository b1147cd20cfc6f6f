"""Fixed seeds for every test; a unit test that sleeps, reads a clock, starts a process or leaves this machine fails.

Unit tests are those outside `tests/smoke/` and `tests/campaigns/`. A mark names exceptions: `real("process", "clock")`.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any

import hypothesis
import numpy as np
import pytest

from ibpulse.base.limits import allow_open_files
from tests import ROOT
from tests.programs import missing

TESTS = f"{ROOT}/tests/"
OTHER_TIERS = (TESTS + "smoke/", TESTS + "campaigns/")
CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
PROCESSES = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}

ASYNC_SLEEP = asyncio.sleep

# the same examples in every run, however long one takes
hypothesis.settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("fixed")
# Python before 3.11.5 may fail to compile a module whose first import is deep in a stack, as in hypothesis (gh-106905)
hypothesis.strategies.integers().flatmap(hypothesis.strategies.just)

# a shell that starts the tests in the background lets them ignore interrupts, and so would the programs they start
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Watch:
    """What a unit test uses of the real world, and what its marks allow."""

    def __init__(self) -> None:
        self.on = False
        self.allowed: frozenset[str] = frozenset()
        self.used: set[str] = set()

    def note(self, kind: str, what: object) -> None:
        """The running test uses something real."""
        if self.on and kind not in self.allowed:
            self.used.add(f"{kind} ({what})")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Notice processes, and addresses beyond loopback."""
        if not self.on:
            return
        if event in PROCESSES:
            self.note("process", arguments[0] if arguments else event)
        elif event == "socket.getaddrinfo" or (
            event in {"socket.connect", "socket.sendto"} and isinstance(arguments[1], tuple)
        ):
            host = arguments[0] if event == "socket.getaddrinfo" else arguments[1][0]
            if not is_loopback(host):
                self.note("network", host)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Notice the clocks that tests read, and whatever sleeps."""
        for name in CLOCKS:
            patch.setattr(time, name, self.watched(getattr(time, name), "clock", anybody=False))
        patch.setattr(time, "sleep", self.watched(time.sleep, "sleep"))
        patch.setattr(asyncio, "sleep", self.watched(asyncio.sleep, "sleep", anybody=False))
        patch.setattr(BaseProcess, "start", self.watched(BaseProcess.start, "process"))

    def watched(self, real: Callable[..., Any], kind: str, *, anybody: bool = True) -> Callable[..., Any]:
        """The same function, which notices that it is called: by anybody, or by the tests alone."""

        @functools.wraps(real)
        def called(*given: Any, **named: Any) -> Any:
            if self.on and (anybody or sys._getframe(1).f_code.co_filename.startswith(TESTS)) and waits(real, given):
                self.note(kind, real.__qualname__)
            return real(*given, **named)

        return called


def waits(real: Callable[..., Any], given: tuple[Any, ...]) -> bool:
    """False for a sleep of 0 s, which lets others run, and for a sleep on an event loop whose clock the tests move."""
    if real is ASYNC_SLEEP and given[:1] != (0,):
        try:
            return not type(asyncio.get_running_loop()).__module__.startswith("tests.")
        except RuntimeError:
            return False  # no loop of pytest runs
    return not given or given[0] != 0


def is_loopback(host: str | bytes | None) -> bool:
    """Whether a host is this machine, without a question to a name server."""
    text = host.decode() if isinstance(host, bytes) else host or "localhost"
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text == "localhost"
    return address.is_loopback or address.is_unspecified


OPEN_FILES = 8192
WATCH = Watch()
sys.addaudithook(WATCH.audit)


@pytest.fixture(scope="session", autouse=True)
def watched() -> Iterator[None]:
    """Clocks and sleeps are watched while tests run."""
    # many trees and rings of virtual nodes are open at once; a shell often allows 1024 files
    allow_open_files(OPEN_FILES)
    with pytest.MonkeyPatch.context() as patch:
        WATCH.patch(patch)
        yield


@pytest.fixture(autouse=True)
def log() -> Iterator[None]:
    """What a test sets up of the log, as commands do for their own process, ends with it."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in [*root.handlers]:
        if not type(handler).__module__.startswith("_pytest"):
            root.removeHandler(handler)


@pytest.fixture(autouse=True)
def seeds() -> None:
    """The same random numbers whatever ran before."""
    random.seed(0)
    np.random.seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs what this machine lacks before a fixture starts; watch a unit test and its fixtures."""
    needed = [name for mark in item.iter_markers("needs") for name in mark.args]
    if name := missing(*needed):
        pytest.skip(f"no {name}")
    WATCH.used.clear()
    WATCH.allowed = frozenset(kind for mark in item.iter_markers("real") for kind in mark.args)
    WATCH.on = not str(item.path).startswith(OTHER_TIERS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A unit test that passed must not owe it to the real world."""
    try:
        answer = yield
    finally:
        WATCH.on = False
    if WATCH.used:
        used = ", ".join(sorted(WATCH.used))
        pytest.fail(f'a unit test uses {used}; pass it in, or mark the test with real("KIND")', pytrace=False)
    return answer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Another order on request: TEST_ORDER=reversed, or a seed that shuffles the files."""
    order = os.environ.get("TEST_ORDER", "")
    if order == "reversed":
        items.reverse()
    elif order:
        place = {path: random.Random(f"{order} {path}").random() for path in {item.path for item in items}}
        items.sort(key=lambda item: place[item.path])
