"""Calls in threads of their own: whatever one does, the others return in time."""

from __future__ import annotations

import threading
import time

from ibpulse.deadline import call_all


def test_answers_come_by_name() -> None:
    results = call_all({"a": lambda: 1, "b": lambda: 2}, 5.0)
    assert (results.values, results.late, results.failed) == ({"a": 1, "b": 2}, (), ())


def test_answers_come_in_the_order_of_the_questions() -> None:
    second = threading.Event()

    def answer_last() -> int:
        assert second.wait(5.0)
        return 1

    def answer_first() -> int:
        second.set()
        return 2

    assert list(call_all({"a": answer_last, "b": answer_first}, 10.0).values) == ["a", "b"]


def test_failures_come_in_the_order_of_the_questions() -> None:
    second = threading.Event()

    def fail_last() -> int:
        assert second.wait(5.0)
        raise OSError("gone")

    def fail_first() -> int:
        second.set()
        raise OSError("gone")

    assert call_all({"a": fail_last, "b": fail_first}, 10.0).failed == ("a", "b")


def test_a_call_that_hangs_is_late_and_delays_no_other() -> None:
    release = threading.Event()
    begin = time.monotonic()
    results = call_all({"hangs": release.wait, "answers": lambda: True}, 0.2)
    assert time.monotonic() - begin < 5.0
    assert (dict(results.values), results.late) == ({"answers": True}, ("hangs",))
    release.set()


def test_a_question_that_fails_is_named() -> None:
    def fail() -> int:
        raise OSError("gone")

    results = call_all({"fails": fail, "answers": lambda: 3}, 5.0)
    assert (dict(results.values), results.late, results.failed) == ({"answers": 3}, (), ("fails",))
