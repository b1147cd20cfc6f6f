"""Answers and streams of daemons are read and come out as they were, and nothing else gets through."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_origin

import httpx
import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from ibpulse.agent.web.app import create_app
from ibpulse.agent.web.stream import describe_second
from ibpulse.base.errors import DaemonError
from ibpulse.core.answers.jobs import CapturesAnswer, JobsAnswer
from ibpulse.core.answers.members import MAX_PORTS, AnswerPart
from ibpulse.core.answers.node import ClockAnswer, EventsAnswer, PortsAnswer, TopologyAnswer
from ibpulse.core.answers.samples import StreamBatch, StreamGap, StreamState, StreamSummary, WindowAnswer
from ibpulse.core.answers.summary import SummaryAnswer
from ibpulse.core.client.transport import PeerAnswer, read_answer, read_array, read_window
from ibpulse.core.http.stream import answer_event
from ibpulse.gateway.nodes.requests import read_events
from tests.aggregator.rings import Ring, port, update
from tests.client.servers import npy
from tests.fleet.small_answers import PORT, capture_of, captures_of, clock_of, events_of, ports_of, state_of
from tests.tables import for_each
from tests.web.event_logs import make_log
from tests.web.rings import full_node

# nanoseconds in 64 bits
LATEST_MS = (2**63 - 1) // 10**6
BY_PATH: dict[str, type[AnswerPart]] = {
    "/api/v1/ports": PortsAnswer,
    "/api/v1/topology": TopologyAnswer,
    "/api/v1/jobs": JobsAnswer,
    "/api/v1/clock": ClockAnswer,
    "/api/v1/events": EventsAnswer,
    "/api/v1/summary?last=5s": SummaryAnswer,
    "/api/v1/window?last=1s": WindowAnswer,
    "/api/v1/window?last=1s&uncertainty=true&unit=ratio": WindowAnswer,
}


def answered(body: bytes, kind: str = "application/json", **headers: str) -> PeerAnswer:
    return PeerAnswer({"content-type": kind, **headers}, body, 0, 0)


async def ask(directory: Path, path: str) -> httpx.Response:
    """The answer of the real application."""
    node = full_node(directory)
    transport = httpx.ASGITransport(app=create_app(node.parts(events=make_log(60))))
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        answer = await client.get(path)
    node.ring.close()
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("path", BY_PATH)
async def test_an_answer_comes_out_as_it_was(tmp_path: Path, path: str) -> None:
    answer = await ask(tmp_path, path)
    read = read_answer(BY_PATH[path], answered(answer.content, answer.headers["content-type"]))
    if "?" not in path:
        assert read.encode() == answer.content
        return
    document = json.loads(read.encode())
    expected = answer.json()
    # members that only some answers have are null in the others
    for name in document.keys() - expected.keys():
        assert document.pop(name) is None
    for one in document.get("series", ()):
        if one["uncertainty"] is None:
            del one["uncertainty"]
    assert document == expected


async def test_an_array_comes_out_as_it_was(tmp_path: Path) -> None:
    answer = await ask(tmp_path, "/api/v1/window?last=1s&uncertainty=true&format=npy")
    body, head = read_array(PeerAnswer(dict(answer.headers), answer.content, 0, 0)).encode()
    assert body == answer.content
    expected = json.loads(answer.headers["x-ibpulse-window"])
    assert json.loads(head) == {**expected, "job": None}
    assert head.isascii()


def read_ports(**changes: Any) -> PortsAnswer:
    return read_answer(PortsAnswer, answered(ports_of({**PORT, **changes})))


def test_unknown_members_are_dropped_and_sentences_escaped() -> None:
    read = read_ports(script="<script>", problem="hung\x1b[31m\u202e", identity={**PORT["identity"], "html": "<b>"})
    encoded = read.encode()
    assert b"script" not in encoded
    assert b"html" not in encoded
    assert read.ports[0].problem == r"hung\u001b[31m\u202e"
    assert len(read_ports(problem="x" * 100_000).ports[0].problem) == 2000


@for_each(
    [
        ({"name": "mlx5\n0:1"}, "ports.0.name has control characters"),
        ({"port": 256}, "ports.0.port '256' is too large"),
        ({"rate_bytes_per_second": float("nan")}, "ports.0.rate_bytes_per_second"),
        ({"identity": {**PORT["identity"], "guid": {"a": 1}}}, "ports.0.identity.guid"),
    ]
)
def test_a_wrong_member_is_refused_with_its_place(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(DaemonError, match=r".") as caught:
        read_ports(**changes)
    assert reason in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -0.01, 0.0105, 60])
def test_an_interval_that_no_daemon_has_is_refused(seconds: float) -> None:
    body = json.dumps({"interval_seconds": seconds, "ports": []}).encode()
    with pytest.raises(DaemonError, match="interval_seconds"):
        read_answer(PortsAnswer, answered(body))


@for_each([b"", b"[]", b"{}", b"<html>", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(DaemonError, match="is this an ibpulse daemon of a compatible version"):
        read_answer(ClockAnswer, answered(body))


def test_other_types_and_numbers_of_items_are_refused() -> None:
    with pytest.raises(DaemonError, match="its answer is 'text/html', not JSON"):
        read_answer(ClockAnswer, answered(clock_of(5), "text/html"))
    assert read_answer(ClockAnswer, answered(clock_of(5), "Application/JSON; charset=utf-8")).time_ns == 5
    many = ports_of(*[PORT] * 1025)
    with pytest.raises(DaemonError, match="ports has too many items; use at most 1024"):
        read_answer(PortsAnswer, answered(many))
    series = {"port": "mlx5_0:1", "direction": "transmit", "values": [1.0, None]}
    with pytest.raises(DaemonError, match="series of other lengths than points"):
        read_window(answered(json.dumps({**HEAD, "series": [series]}).encode()))
    series["values"] = [1.0, None, 2.0]
    assert read_window(answered(json.dumps({**HEAD, "series": [series]}).encode())).series[0].values == [1, None, 2]


def read_details(details: Any) -> dict[str, Any]:
    return read_answer(EventsAnswer, answered(events_of({"details": details}))).events[0].details


def test_details_are_plain_bounded_values() -> None:
    assert read_details({"a\n": ["\x1b", 1, 0.5, None, True, {"b": ""}]}) == {
        r"a\n": [r"\u001b", 1, 0.5, None, True, {"b": ""}]
    }
    deep: Any = 5
    for _ in range(6):
        deep = {"a": deep}
    for details in (deep, {"a": list(range(20_000))}, {"a": float("inf")}, {"a": 10**30}, [], "x"):
        with pytest.raises(DaemonError, match=r"events\.0\.details"):
            read_details(details)
    ports = {f"mlx5_{number}:1": state_of() for number in range(MAX_PORTS)}
    body = events_of({"kind": "started", "details": {"ports": ports}})
    (event,) = read_answer(EventsAnswer, answered(body)).values
    assert event.details == {"ports": ports}


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "20261123T035447.609Z-release-9485bb39.parquet\n", "x.parquet", "<b>", ""]
)
def test_a_capture_has_the_name_of_a_capture(name: str) -> None:
    body = captures_of(capture_of(name))
    with pytest.raises(DaemonError, match=r"captures\.0\.name is not the name of a capture"):
        read_answer(CapturesAnswer, answered(body))


HEAD = {
    "interval_ms": 10,
    "resolution_ms": 10,
    "statistic": "max",
    "unit": "bytes_per_second",
    "start_ms": 1000,
    "end_ms": 1030,
    "points": 3,
    "holes": 1,
    "implausible": {"merged": 0, "unexplained": 0, "places": []},
    "history": {"oldest_ms": 0, "newest_ms": 2000},
    "coverage": "",
    "series": ["mlx5_0:1 transmit", "mlx5_0:1 receive"],
}


def array(values: Any, **changes: Any) -> PeerAnswer:
    head = json.dumps({**HEAD, **changes})
    body = values if isinstance(values, bytes) else npy(values)
    return answered(body, "application/x-npy", **{"x-ibpulse-window": head})


GOOD = np.array([[1, np.nan, 3], [4, 5, 6]], dtype="<f4")


@for_each(
    [
        GOOD.astype("<f8"),
        GOOD.astype(">f4"),
        GOOD[:1],
        GOOD.T,
        np.asfortranarray(GOOD),
        np.array([{}], dtype=object),
        b"",
        b"no array",
        npy(GOOD)[:-1],
        npy(GOOD) + b"<script>",
        b"\x93NUMPY\x01\x00" + (60_000).to_bytes(2, "little") + b"[" * 60_000,
        b"\x93NUMPY\x02\x00" + npy(GOOD)[8:],
        np.array([[1, np.inf, 3], [4, 5, 6]], dtype="<f4"),
        np.array([[1, -1, 3], [4, 5, 6]], dtype="<f4"),
    ]
)
def test_a_wrong_array_is_refused(values: Any) -> None:
    with pytest.raises(DaemonError, match="is this an ibpulse daemon of a compatible version"):
        read_array(array(values))


@for_each(
    [
        {"points": 4},
        {"points": 10**9},
        {"series": ["mlx5_0:1 transmit"]},
        {"series": ["mlx5_0:1 transmit", "<script>"]},
        {"series": ["mlx5_0:1 transmit", "mlx5\t:1 receive"]},
        {"unit": "html"},
    ]
)
def test_a_wrong_head_of_an_array_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DaemonError, match="is this an ibpulse daemon of a compatible version"):
        read_array(array(GOOD, **changes))


def test_payloads_in_missing_values_do_not_get_through() -> None:
    body = bytearray(npy(GOOD))
    body[-20:-16] = (0x7FC12345).to_bytes(4, "little")
    assert bytes(body) != npy(GOOD)
    assert read_array(array(bytes(body))).encode()[0] == npy(GOOD)


@for_each([{"from_ms": 5, "state": "ACTIVE"}, {"state": "down", "role": "storage", "other": 1, "from_ms": 5}])
def test_a_part_without_a_check_is_like_one_of_pydantic(members: dict[str, Any]) -> None:
    ours = StreamState.model_construct(**members)
    theirs = super(AnswerPart, StreamState).model_construct(**members)
    assert ours == theirs == StreamState.model_validate(members)
    assert (list(vars(ours)), ours.model_fields_set) == (list(vars(theirs)), theirs.model_fields_set)


def parts_of(kind: type[AnswerPart]) -> Iterator[type[AnswerPart]]:
    """All kinds of parts."""
    for each in kind.__subclasses__():
        yield each
        yield from parts_of(each)


def test_every_time_of_an_answer_ends_where_dates_end() -> None:
    times = {
        f"{kind.__name__}.{name}": (TypeAdapter(Annotated[member.annotation, member]), get_origin(member.annotation))
        for kind in parts_of(AnswerPart)
        for name, member in kind.model_fields.items()
        # widths of bins have bounds of their own, and the difference of two clocks has a sign
        if name.endswith("_ms") and name not in ("interval_ms", "resolution_ms", "bin_ms", "offset_ms")
    }
    assert len(times) > 40
    faults = []
    for name, (reader, outer) in times.items():
        right, *all_wrong = (
            [ms] if outer is list else ms for ms in (LATEST_MS, LATEST_MS + 1, 253_402_300_800_000, -1)
        )
        assert reader.validate_python(right) == right
        for wrong in all_wrong:
            with suppress(ValidationError):
                reader.validate_python(wrong)
                faults.append(f"{name}: {wrong}")
    assert faults == []


BATCH = {"start_ms": 1000, "megabytes_per_second": [[1, None], [0, 5]]}
GAP = b'id: 7\nevent: gap\ndata: {"start_ms": 1, "end_ms": 2}\n\n'
TEXT = b": hello\n\nevent: batch\ndata: " + json.dumps(BATCH).encode() + b"\n\nevent: other\ndata: {}\n\n" + GAP


async def sent(content: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


@pytest.mark.parametrize("size", [1, 7, 1000])
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
