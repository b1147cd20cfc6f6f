"""Calls in threads of their own: whatever one does, the others return in time."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import closing

import pytest

from ibpulse.base.deadline import DaemonThreads, call_all
from tests.running import HANG_SECONDS
from tests.virtual.world import SECOND, World


def test_answers_come_in_the_order_of_the_questions() -> None:
    second = threading.Event()

    def answer_last() -> int:
        assert second.wait(HANG_SECONDS)
        return 1

    def answer_first() -> int:
        second.set()
        return 2

    assert list(call_all({"a": answer_last, "b": answer_first}, HANG_SECONDS).values) == ["a", "b"]


def test_a_call_that_hangs_or_fails_has_no_answer_and_delays_no_other() -> None:
    def fail() -> bool:
        raise OSError("gone")

    with closing(World()) as world:
        began_ns = world.monotonic_ns
        results = call_all({"hangs": lambda: world.pause(None), "answers": lambda: True, "fails": fail}, 0.2)
        assert (dict(results.values), results.late) == ({"answers": True}, ("hangs",))
        assert world.monotonic_ns - began_ns == 0.2 * SECOND


# calls in daemon threads


def test_calls_run_in_order_with_answers_and_failures() -> None:
    order: list[int] = []
    threads = DaemonThreads(1, "test")
    futures = [threads.submit(order.append, number) for number in range(20)]
    assert [future.result(HANG_SECONDS) for future in futures] == [None] * 20
    assert order == list(range(20))
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 / 0).result(HANG_SECONDS)
    assert threads.submit(lambda: threading.current_thread().daemon).result(HANG_SECONDS)


def test_threads_are_bounded_and_reused() -> None:
    release = threading.Event()
    threads = DaemonThreads(2, "bounded")
    hanging = [threads.submit(release.wait, HANG_SECONDS)]
    assert threads.submit(int, "7").result(HANG_SECONDS) == 7
    hanging.append(threads.submit(release.wait, HANG_SECONDS))
    waiting = threads.submit(int, "8")
    dropped = threads.submit(int, "9")
    assert dropped.cancel()
    assert sum(thread.name == "bounded" for thread in threading.enumerate()) == 2
    assert not waiting.done()
    release.set()
    assert waiting.result(HANG_SECONDS) == 8
    assert all(future.result(HANG_SECONDS) for future in hanging)


def test_unused_threads_end_and_are_replaced() -> None:
    begun: list[str] = []
    threads = DaemonThreads(3, "brief", lambda: begun.append(threading.current_thread().name), 0.01)
    for _ in range(3):
        assert threads.submit(int, "7").result(HANG_SECONDS) == 7
        for thread in threading.enumerate():
            if thread.name == "brief":
                thread.join(HANG_SECONDS)
                assert not thread.is_alive()
    assert begun == ["brief"] * 3


@pytest.mark.real("process")
def test_a_hung_call_delays_neither_loop_nor_exit() -> None:
    program = """
import asyncio, os
from ibpulse.base.deadline import DaemonThreads

async def main():
    pipe, _ = os.pipe()
    hung = asyncio.get_running_loop().run_in_executor(DaemonThreads(1, "hung"), os.read, pipe, 1)
    await asyncio.wait([hung], timeout=0.2)
    print("over", flush=True)

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "over\n"
