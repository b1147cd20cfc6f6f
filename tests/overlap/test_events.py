"""Events are streamed from traces exactly as a parser of the whole file finds them."""

from __future__ import annotations

import gzip
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ibpulse.base.errors import TraceError
from ibpulse.workbench.overlap import events as reading
from ibpulse.workbench.overlap.events import TraceFile
from tests.overlap.played_traces import MS, collective, compute, document, event, step, write_trace

TRICKY = [
    compute(0, 5 * MS),
    event('}, {"ph": "X"', "cpu_op", 1, 2, nested=[{"a": 1}, {"b": ["]}, {", {"c": {}}]}]),
    event('back\\slash \\" ] } , { é', "cpu_op", 3, 4, text='"traceEvents": [', empty={}),
    collective(5 * MS, MS),
    step(3, 0, 9 * MS),
]


def events_of(path: Path) -> list[dict[str, Any]]:
    return [one for batch in TraceFile(path).batches() for one in batch]


@pytest.mark.parametrize("piece", [1, 7, 64, 1000, 1 << 16])
@pytest.mark.parametrize("indent", [None, 2])
def test_events_do_not_depend_on_piece_boundaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, indent: int | None
) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", piece)
    path = tmp_path / "trace.json"
    whole = document(TRICKY * 3, comment='"traceEvents": [{"ph": "X"}]')
    path.write_text(json.dumps(whole, indent=indent))
    file = TraceFile(path)
    assert [one for batch in file.batches() for one in batch] == whole["traceEvents"]
    assert file.members == {
        "baseTimeNanoseconds": whole["baseTimeNanoseconds"],
        "distributedInfo": whole["distributedInfo"],
        "devices": 4,
    }


def test_secrets_odd_json_and_long_times_are_read_right(tmp_path: Path) -> None:
    whole = document(TRICKY)
    whole["baseTimeNanoseconds"] = whole.pop("baseTimeNanoseconds")
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(json.dumps(whole).encode()))
    file = TraceFile(path)
    assert sum(map(len, file.batches())) == len(TRICKY)
    assert "baseTimeNanoseconds" in file.members
    assert "secret-user" not in str(file.members)
    text = json.dumps(document([event("a", "kernel", 0, 1), event("b", "kernel", 2, 3, occupancy=float("inf"))]))
    path.write_bytes(text.replace('"a"', '"\tA"').encode().replace(b"\tA", b"\t\xff"))
    assert [one["name"] for one in events_of(path)] == ["\t\ufffd", "b"]
    path.write_text('{"traceEvents": [{"ts": 1712345678901234.567, "dur": 1.5}, {"ts": 12.5}]}')
    assert [one["ts"] for one in events_of(path)] == ["1712345678901234.567", 12.5]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_truncated_trace_keeps_complete_events(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "trace"
    whole = document(TRICKY)
    content = json.dumps(whole).encode()
    content = gzip.compress(content) if compressed else content
    found = []
    for end in range(0, len(content) - 1, 11):
        path.write_bytes(content[:end])
        file = TraceFile(path)
        if not found:
            with suppress(TraceError):
                found.append(len([one for batch in file.batches() for one in batch]))
            continue
        events = [one for batch in file.batches() for one in batch]
        assert events == whole["traceEvents"][: len(events)]
        assert re.match("the file (ends early|is truncated)", [*file.notes()][-1])
        found.append(len(events))
    assert found == sorted(found)
    assert {*found} == {*range(1, len(TRICKY) + 1)} or compressed
    path.write_bytes(content[:5])
    with pytest.raises(TraceError, match=r"trace (is truncated|has no list traceEvents)"):
        events_of(path)


HOSTILE = {
    "empty": (b"", "is empty"),
    "blank": (b" \n" * 100_000, "is empty"),
    "text": (b"hello", "is not a JSON object"),
    "no events": (b'{"a": 1}', "has no list traceEvents"),
    "inner events": (b'{"a": {"traceEvents": [' + b"{}," * 1000 + b"{}]}}", "has no list traceEvents"),
    "many starts": (b'{"a": {' + b'"traceEvents": [' * 100_000, "has no list traceEvents"),
    "two lists": (b'{"traceEvents": [{}], "traceEvents": [{}]}', "has two lists traceEvents"),
    "deep": (b'{"traceEvents": [' + b'{"a":[' * 20_000, "ends early, without a whole event"),
    "deep and closed": (b'{"traceEvents": [{"a":' + b"[" * 9000 + b"]" * 9000 + b"}]}", "is damaged: none of its 1"),
    "wrong bracket": (b'{"traceEvents": [{"a": [1}, {"b": 2]}]}', "is damaged: none of its 1 events is valid JSON"),
    "backslashes": (b'{"traceEvents": [{"a": "' + b'\\"' * 200_000, "ends early, without a whole event"),
    "zstd": (b"\x28\xb5\x2f\xfdrest", "is compressed with zstd; unpack it, or compress it with gzip"),
    "other encoding": ('{"traceEvents": []}'.encode("utf-16"), "is not a JSON object; give a trace that"),
    "not gzip": (b"\x1f\x8b\x08 this is not compressed", "is damaged: it cannot be decompressed"),
    "half": (gzip.compress(b'{"traceEvents": [{}]}')[:14], "is truncated"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_in_one_line(tmp_path: Path, name: str) -> None:
    content, problem = HOSTILE[name]
    path = tmp_path / "hostile"
    path.write_bytes(content)
    with pytest.raises(TraceError) as refusal:
        events_of(path)
    text = str(refusal.value)
    assert text.startswith(f"trace {path} {problem}"), text
    assert "; " in text
    assert "\n" not in text
    assert len(text) < 300


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_EVENT_BYTES", 100_000)
    monkeypatch.setattr(reading, "MAX_MEMBER_BYTES", 100_000)
    path = tmp_path / "large"
    for content, problem in (
        (b'{"traceEvents": [{"a": "' + b"x" * 300_000 + b'"}]}', "has an event of more than 100 kB after 0 events"),
        (b'{"traceEvents": [{}' + b" " * 300_000 + b"]}", "has an event of more than 100 kB after 1 events"),
        (b'{"a": "' + b"x" * 500_000 + b'", "traceEvents": [{}]}', "has no list traceEvents"),
    ):
        path.write_bytes(content)
        with pytest.raises(TraceError, match=problem):
            events_of(path)


def test_a_trace_of_many_pieces_stays_small(tmp_path: Path) -> None:
    """No batch is larger than what one piece can hold, so memory does not follow the file."""
    path = write_trace(tmp_path / "trace.json.gz", [compute(n * 1000, 500) for n in range(6_000)])
    sizes = [len(batch) for batch in TraceFile(path).batches()]
    assert sum(sizes) == 6_000
    assert max(sizes) < 1000
