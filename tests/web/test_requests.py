"""The grammar of spans: `last`, or `from` and `to`, in closed form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.base.units import format_duration
from ibpulse.core.http.problems import ProblemError
from ibpulse.core.http.requests import SpanQuery, TimeSpan

NOW_NS = 1_763_683_200_123_456_789
FIRST_MS = 10**11
NOW_MS = NOW_NS // 10**6
lengths_ns = st.integers(1, 10**17)


def query(**given: str) -> SpanQuery:
    return SpanQuery.model_validate(given)


def refusal(now_ns: int = NOW_NS, default_last: str = "", **given: str) -> str:
    with pytest.raises(ProblemError) as refused:
        query(**given).span(now_ns, default_last)
    return refused.value.detail


@given(lengths_ns)
def test_the_newest_span_has_its_length_and_ends_now(length_ns: int) -> None:
    found = query(last=format_duration(length_ns)).span(NOW_NS)
    assert found == TimeSpan(NOW_NS - length_ns, NOW_NS, newest=True)
    assert found.length_ns == length_ns


@given(lengths_ns)
def test_the_default_is_a_newest_span(length_ns: int) -> None:
    text = format_duration(length_ns)
    assert query().span(NOW_NS, text) == query(last=text).span(NOW_NS)


@given(st.integers(FIRST_MS, NOW_MS), st.integers(0, 10**12))
def test_two_times_are_the_ends_of_a_span(from_ms: int, length_ms: int) -> None:
    given = {"from": str(from_ms), "to": str(from_ms + length_ms)}
    assert query(**given).span(NOW_NS) == TimeSpan(from_ms * 10**6, (from_ms + length_ms) * 10**6)


@given(st.integers(FIRST_MS, NOW_MS))
def test_a_span_without_an_end_ends_now(from_ms: int) -> None:
    assert query(**{"from": str(from_ms)}).span(NOW_NS, "5s") == TimeSpan(from_ms * 10**6, NOW_NS)


@given(st.integers(FIRST_MS, 2 * NOW_MS))
def test_a_span_without_a_begin_is_everything_before(to_ms: int) -> None:
    assert query(to=str(to_ms)).span(NOW_NS) == TimeSpan(0, to_ms * 10**6)
    assert query().span(NOW_NS) == TimeSpan(0, NOW_NS)


@given(st.integers(FIRST_MS * 10**6, NOW_NS - 1), st.integers(1, 10**9))
def test_ends_in_the_wrong_order_are_refused(to_ns: int, length_ns: int) -> None:
    from_text, to_text = (f"{ns // 10**9}.{ns % 10**9:09}" for ns in (min(to_ns + length_ns, NOW_NS), to_ns))
    assert refusal(**{"from": from_text, "to": to_text}) == f"from: {from_text} is later than to={to_text}; swap them"
    assert query(**{"from": to_text, "to": to_text}).span(NOW_NS).length_ns == 0


@given(st.integers(NOW_MS + 1, (2**63 - 1) // 10**6))
def test_a_begin_in_the_future_is_refused(from_ms: int) -> None:
    assert refusal(**{"from": str(from_ms)}) == f"from: {from_ms} is in the future; check both clocks"


@pytest.mark.parametrize("other", ["from", "to"])
@pytest.mark.parametrize("default_last", ["", "5s"])
def test_a_length_and_a_time_are_not_combined(other: str, default_last: str) -> None:
    given = {"last": "5s", other: str(NOW_MS)}
    assert refusal(default_last=default_last, **given) == "last: cannot be combined with from and to"


def test_an_end_needs_a_begin() -> None:
    assert refusal(default_last="7s", to=str(NOW_MS)) == "to: requires from; for the most recent data, use last=7s"
