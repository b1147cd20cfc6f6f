"""The event file under damage: cut off, altered, replaced by something else, written by a process that is killed."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ibpulse.core.events import log
from ibpulse.core.events.event import Event
from ibpulse.core.events.log import EventFile, decode_event, encode_event, read_events
from tests.events.making import numbered
from tests.tables import for_each

HEAD = b"ibpulse-events 1\n"
EVENTS = [numbered(number) for number in range(1, 4)]


def text_of(events: list[Event]) -> bytes:
    return HEAD + b"".join(map(encode_event, events))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events"


@pytest.fixture
def file(path: Path) -> Iterator[EventFile]:
    """A new file."""
    made = EventFile(path)
    assert made.open() == []
    yield made
    made.close()


def check_that_it_was_kept_aside(path: Path) -> None:
    """What was in the place of the file is still there under another name, and the file is a new one."""
    with pytest.raises(ValueError, match=r"is not (of version 1|a regular file)"):
        read_events(path)
    with closing(EventFile(path)) as file:
        assert file.open() == []
        assert file.append(EVENTS[0])
    assert read_events(path) == EVENTS[:1]


@contextmanager
def no_new_file(path: Path) -> Iterator[None]:
    """Make every attempt to write a new file fail."""
    obstacle = path.with_name("events.new")
    (obstacle / "in the way").mkdir(parents=True)
    yield
    (obstacle / "in the way").rmdir()
    obstacle.rmdir()


@contextmanager
def longest_file(size: int) -> Iterator[None]:
    """Let writing fail after a number of bytes, in the middle of a record if that is where they end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# whole files


def test_the_file_is_text_with_an_event_in_each_line(file: EventFile, path: Path) -> None:
    assert all(file.append(event) for event in EVENTS)
    head, *lines = path.read_text(encoding="ascii").splitlines()
    assert head == "ibpulse-events 1"
    assert [json.loads(line)["text"] for line in lines] == ["event 1", "event 2", "event 3"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_details_that_are_not_json_are_refused(file: EventFile, path: Path) -> None:
    for value in (float("nan"), object()):
        with pytest.raises((ValueError, TypeError)):
            file.append(Event(1, "capture", "", "", details={"value": value}))
    assert file.append(EVENTS[0])
    assert read_events(path) == EVENTS[:1]


# cut off at any byte


def whole_events(raw: bytes) -> list[Event]:
    """The events whose JSON is complete in the beginning of the file of `EVENTS`, found by their positions."""
    ends, end = [], len(HEAD)
    for event in EVENTS:
        end += len(encode_event(event))
        ends.append(end - 1)  # without its line end
    return [event for event, end in zip(EVENTS, ends, strict=True) if len(raw) >= end]


@pytest.mark.parametrize("can_be_replaced", [True, False])
def test_a_truncated_file_keeps_whole_events_and_continues(tmp_path: Path, can_be_replaced: bool) -> None:
    whole, more = text_of(EVENTS), [numbered(8), numbered(9)]
    for length in range(len(HEAD) - 1, len(whole) + 1):
        path = tmp_path / str(length) / "events"
        path.parent.mkdir()
        path.write_bytes(whole[:length])
        expected = whole_events(whole[:length])
        assert read_events(path) == expected
        file = EventFile(path)
        if can_be_replaced:
            assert file.open() == expected
        else:
            with no_new_file(path):
                assert file.open() == expected
        assert all(map(file.append, more))
        file.close()
        assert read_events(path) == expected + more


def test_a_file_cut_off_in_its_head_is_begun_again(path: Path) -> None:
    for length in range(len(HEAD) - 1):
        path.write_bytes(HEAD[:length])
        file = EventFile(path)
        assert file.open() == []
        assert file.append(EVENTS[0])
        file.close()
        assert read_events(path) == EVENTS[:1]


# a full disk at any byte


def test_a_full_disk_never_leaves_half_a_record(file: EventFile, path: Path) -> None:
    assert file.append(EVENTS[0])
    before = path.stat().st_size
    for free in range(len(encode_event(EVENTS[1]))):
        with longest_file(before + free):
            assert not file.append(EVENTS[1])
        assert path.read_bytes() == text_of(EVENTS[:1])
    assert file.behind
    assert file.append(EVENTS[1])
    assert read_events(path) == EVENTS[:2]
    assert not file.behind


def test_a_full_disk_keeps_the_old_file(file: EventFile, path: Path) -> None:
    file.append(EVENTS[0])
    for size in range(len(text_of(EVENTS))):
        with longest_file(size):
            assert not file.rewrite(EVENTS)
        assert [each.name for each in path.parent.iterdir()] == ["events"]
        assert path.read_bytes() == text_of(EVENTS[:1])
    assert file.append(EVENTS[1])
    assert file.rewrite(EVENTS)
    assert read_events(path) == EVENTS


def test_a_failure_is_reported_once_and_its_end_as_well(
    file: EventFile, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with longest_file(path.stat().st_size):
        assert [file.append(event) for event in EVENTS] == [False] * 3
    assert [file.append(event) for event in EVENTS] == [True] * 3
    assert caplog.messages == [
        f"event log {path} cannot be written: File too large; events are kept in memory and written once ring.dir "
        "allows it",
        f"event log {path} can be written again",
    ]


# something else in place of the file


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is not of version 1: it begins with b''"),
        (b'ibpulse-events 2\n{"kind":"new"}\n', "it begins with b'ibpulse-events 2'"),
        (b"x" * 5_000_000, f"it begins with {b'x' * 35!r}"),
    ],
)
def test_a_file_of_another_version_is_kept_aside(
    path: Path, content: bytes, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(content)
    check_that_it_was_kept_aside(path)
    assert path.with_name("events.old").read_bytes() == content
    assert fault in caplog.text
    assert f"keeping it as {path}.old" in caplog.text


@pytest.mark.parametrize("kind", ["directory", "link", "link to nothing", "pipe"])
def test_what_is_not_a_file_is_kept_aside_untouched(path: Path, kind: str) -> None:
    other = path.with_name("other")
    other.write_bytes(text_of(EVENTS))
    if kind == "directory":
        (path / "inside").mkdir(parents=True)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(other if kind == "link" else path.with_name("nothing"))
    mode = path.lstat().st_mode
    check_that_it_was_kept_aside(path)
    assert path.with_name("events.old").lstat().st_mode == mode
    assert other.read_bytes() == text_of(EVENTS)


def test_without_a_directory_events_stay_in_memory(tmp_path: Path) -> None:
    with closing(EventFile(tmp_path / "nothing" / "events")) as file:
        assert file.open() == []
        assert not file.append(EVENTS[0])
        (tmp_path / "nothing").mkdir()
        assert file.rewrite(EVENTS)
        assert read_events(file.path) == EVENTS


def test_a_file_that_was_deleted_is_written_again(file: EventFile, path: Path) -> None:
    path.unlink()
    assert not file.append(EVENTS[0])
    assert not file.is_writable
    assert file.rewrite(EVENTS)
    assert read_events(path) == EVENTS


# hostile lines

HOSTILE = [
    b"",
    b"null",
    b"{}",
    b'{"time_ns":1e999,"kind":"capture","subject":"","text":""}',
    b'{"time_ns":1' + b"0" * 5000 + b',"kind":"capture","subject":"","text":""}',
    b'{"time_ns":1,"kind":"capture","subject":"","text":"","details":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    b'{"time_ns":1,"kind":"capture","subject":"","text":"\xff"}',
]


@for_each(HOSTILE)
def test_a_hostile_line_is_skipped(body: bytes, path: Path) -> None:
    assert decode_event(body) is None
    path.write_bytes(HEAD + encode_event(EVENTS[0]) + body + b"\n" + encode_event(EVENTS[1]))
    assert read_events(path) == EVENTS[:2]


@for_each([999_999, 1_000_000, 1_000_001, 5_000_003])
def test_a_very_long_line_is_skipped(length: int, path: Path) -> None:
    # its end looks like a line
    tail = encode_event(EVENTS[2])
    path.write_bytes(HEAD + encode_event(EVENTS[0]) + b"x" * length + tail + encode_event(EVENTS[1]))
    assert read_events(path) == EVENTS[:2]


def test_only_the_end_of_a_huge_file_and_the_last_of_many_events_are_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [numbered(number) for number in range(100)]
    path.write_bytes(text_of(events))
    with monkeypatch.context() as few:
        few.setattr(log, "MAX_READ", 10)
        assert read_events(path) == events[-10:]
    monkeypatch.setattr(log, "MAX_FILE_BYTES", 1000)
    found = read_events(path)
    assert found == events[-len(found) :]
    assert 3 <= len(found) <= 1000 // len(encode_event(events[0]))
