"""The events of a stream: read as they are sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from ibpulse.agent.web.stream import describe_second
from ibpulse.base.errors import DaemonError
from ibpulse.core.answers.samples import StreamBatch, StreamGap, StreamSummary
from ibpulse.core.http.stream import answer_event
from ibpulse.gateway.nodes.requests import read_events
from tests.aggregator.rings import Ring, port, update

BATCH = {"start_ms": 1000, "megabytes_per_second": [[1, None], [0, 5]]}
GAP = b'id: 7\nevent: gap\ndata: {"start_ms": 1, "end_ms": 2}\n\n'
TEXT = b": hello\n\nevent: batch\ndata: " + json.dumps(BATCH).encode() + b"\n\nevent: other\ndata: {}\n\n" + GAP


async def sent(content: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_events_are_the_same_however_they_are_cut(size: int) -> None:
    assert [each async for each in read_events(sent(TEXT, size))] == [
        None,
        ("batch", None, StreamBatch.model_validate(BATCH)),
        ("gap", 7, StreamGap(start_ms=1, end_ms=2)),
    ]


async def test_the_summary_before_the_first_search_for_a_step_is_read(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"))
    second = describe_second(update(ring, Aggregator(ring.reader, AggregatorOptions()), 1))
    (found,) = [each async for each in read_events(sent(answer_event("summary", second), 1000))]
    assert found[2] == StreamSummary.model_validate_json(second.encode_given())
    assert second.node.step_period_score is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"event: gap\ndata: x\n\n", "its answer is not as expected"),
        (b"event: gap\n\n", "its answer is not as expected"),
        (b"id: x\n" + GAP[6:], "the id of an event of its stream is not a number"),
        (b"id: " + b"9" * 19 + GAP[5:], "the id of an event of its stream is not a number"),
        (b"id: -1" + GAP[5:], "the id of an event of its stream is not a number"),
        (b"event: batch\ndata: " + b"[" * 4_000_100, "an event of its stream is longer than 4000000 bytes"),
    ],
)
async def test_a_hostile_event_ends_the_stream(content: bytes, reason: str) -> None:
    with pytest.raises(DaemonError, match=reason) as caught:
        _ = [each async for each in read_events(sent(content, 65_536))]
    assert caught.value.kind == "bad-answer"
