"""The span of a job's summary: whole seconds that every node has completed."""

from __future__ import annotations

import pytest

from ibpulse.core.http.problems import ProblemError
from ibpulse.gateway.job_api import JobSummaryQuery, _choose_span
from tests.tables import for_each

NOW_NS = 1_763_683_260_400_000_000
NEWEST_MS = 1_763_683_259_000


def choose(**query: str) -> tuple[int, int]:
    begin_ms, end_ms = _choose_span(JobSummaryQuery.model_validate(query), NOW_NS)
    return begin_ms - NEWEST_MS, end_ms - NEWEST_MS


def ms(after_newest: int) -> str:
    return str(NEWEST_MS + after_newest)


@for_each(
    [
        ({}, (-10_000, 0)),
        ({"last": "1m"}, (-60_000, 0)),
        ({"from": ms(-3500), "to": ms(-1001)}, (-4000, -1000)),
        ({"from": ms(-3000)}, (-3000, 0)),
    ]
)
def test_a_span_has_whole_seconds(query: dict[str, str], expected: tuple[int, int]) -> None:
    assert choose(**query) == expected


@for_each([{"last": "61s"}, {"last": "1500ms"}, {"from": ms(-61_000)}, {"from": ms(0)}, {"from": ms(-5), "to": ms(-9)}])
def test_other_spans_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ProblemError):
        choose(**query)
