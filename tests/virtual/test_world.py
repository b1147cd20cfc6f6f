"""The end of a test in virtual time that pytest's timeout stops."""

from __future__ import annotations

import signal
import threading

import pytest

from tests.virtual.world import SECOND, World


class StoppedError(BaseException):
    """What pytest's timeout raises."""


def test_a_test_that_is_stopped_ends_even_if_an_actor_hangs() -> None:
    def stop(*_: object) -> None:
        raise StoppedError

    def hang() -> None:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        released.wait()

    released = threading.Event()
    before = signal.signal(signal.SIGUSR1, stop)
    world = World()
    sleeping = world.start(lambda: world.pause(60 * SECOND), "sleeping")
    world.pause(SECOND)
    world.start(hang, "hung")
    try:
        with pytest.raises(StoppedError):
            world.pause(SECOND)
        sleeping.join(1)
        world.close()
    finally:
        released.set()
        signal.signal(signal.SIGUSR1, before)


def test_a_timeout_whose_exception_a_task_has_kept_ends_the_next_wait() -> None:
    left = signal.setitimer(signal.ITIMER_REAL, 300)
    world = World()
    signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        with pytest.raises(pytest.fail.Exception):
            world.pause(SECOND)
        world.close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, *left)
