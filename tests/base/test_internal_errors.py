"""Boundaries: an exception is counted each time, logged once per cause, and shown until the block has succeeded."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from ibpulse.base import internal_errors as module
from ibpulse.base.errors import SamplerError
from ibpulse.base.internal_errors import PARTS, InternalErrors


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now=0.0)


@pytest.fixture
def errors(clock: SimpleNamespace) -> InternalErrors:
    return InternalErrors(lambda: clock.now)


def divide(errors: InternalErrors, number: int, part: str = "fabric", subject: str = "mlx5_0") -> None:
    with errors.boundary(part, subject):
        1 / number


def test_an_exception_is_counted_and_logged_once(errors: InternalErrors, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        divide(errors, 0)
    assert errors.counts() == dict.fromkeys(PARTS, 0) | {"fabric": 3}
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "internal error in fabric (mlx5_0): ZeroDivisionError: division by zero; retrying"
    assert record.exc_info
    assert "in divide" in caplog.text


def test_another_place_subject_part_or_type_is_another_cause(
    errors: InternalErrors, caplog: pytest.LogCaptureFixture
) -> None:
    divide(errors, 0)
    divide(errors, 0, subject="mlx5_1")
    divide(errors, 0, part="events")
    with errors.boundary("fabric", "mlx5_0"):
        raise ZeroDivisionError
    with errors.boundary("fabric", "mlx5_0"):
        raise ValueError
    assert len(caplog.records) == 5


def test_an_error_on_purpose_is_a_sentence_without_a_trace(
    errors: InternalErrors, caplog: pytest.LogCaptureFixture
) -> None:
    with errors.boundary("plan"):
        raise SamplerError("the disk is full; empty it")
    assert caplog.messages == ["internal error in plan: the disk is full; empty it; retrying"]
    assert errors.notices() == tuple(caplog.messages)
    assert not caplog.records[0].exc_info


def test_a_cause_is_logged_again_after_a_long_absence(
    errors: InternalErrors, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    for clock.now in (0.0, 3000.0, 6000.0):
        divide(errors, 0)
    assert len(caplog.records) == 1
    clock.now += module.FORGET_SECONDS
    divide(errors, 0)
    assert len(caplog.records) == 2


def test_a_notice_stays_a_minute_after_success_and_ends_if_nothing_is_tried_again(
    errors: InternalErrors, clock: SimpleNamespace
) -> None:
    divide(errors, 0)
    clock.now = 600.0
    assert errors.notices() == ("internal error in fabric (mlx5_0): ZeroDivisionError: division by zero; retrying",)
    divide(errors, 1, subject="mlx5_1")
    divide(errors, 1)
    for clock.now, count in ((659.0, 1), (661.0, 0)):
        assert len(errors.notices()) == count
    divide(errors, 0)
    clock.now += module.MAX_PAUSE_SECONDS
    assert errors.notices() == ()


def test_the_end_of_the_program_passes(errors: InternalErrors) -> None:
    with pytest.raises(KeyboardInterrupt), errors.boundary("events"):
        raise KeyboardInterrupt
    assert sum(errors.counts().values()) == 0
