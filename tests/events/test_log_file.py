"""The event file under damage: cut off, altered, replaced by something else, written by a process that is killed."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ibpulse.core.events import log
from ibpulse.core.events.event import Event
from ibpulse.core.events.log import EventFile, decode_event, encode_event, read_events
from tests.events.making import numbered

HEAD = b"ibpulse-events 1\n"
EVENTS = [numbered(number) for number in range(1, 4)]


def text_of(events: list[Event]) -> bytes:
    return HEAD + b"".join(map(encode_event, events))


def line_of(members: object) -> bytes:
    """A line, whatever it holds."""
    return (members if isinstance(members, bytes) else json.dumps(members).encode()) + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events"


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


def test_the_file_is_text_with_an_event_in_each_line(path: Path) -> None:
    file = EventFile(path)
    assert file.open() == []
    assert all(file.append(event) for event in EVENTS)
    head, *lines = path.read_text(encoding="ascii").splitlines()
    assert head == "ibpulse-events 1"
    assert [json.loads(line)["text"] for line in lines] == ["event 1", "event 2", "event 3"]
    assert path.stat().st_mode & 0o777 == 0o640
    file.close()


def test_a_file_that_does_not_exist_has_no_events(path: Path) -> None:
    assert read_events(path) == []


def test_details_that_are_not_json_are_refused(path: Path) -> None:
    file = EventFile(path)
    file.open()
    for value in (float("nan"), object()):
        with pytest.raises((ValueError, TypeError)):
            file.append(Event(1, "capture", "", "", details={"value": value}))
    assert file.append(EVENTS[0])
    assert read_events(path) == EVENTS[:1]
    file.close()


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


# killed while writing

WRITER = """
import os, sys
from pathlib import Path
from ibpulse.core.events.log import EventFile
from tests.events.making import numbered

file = EventFile(Path(sys.argv[1]))
events = file.open()
while True:
    event = numbered(len(events))
    events.append(event)
    assert file.append(event)
    os.write(1, b"%d\\n" % len(events))
    if len(events) % 50 == 0:
        assert file.rewrite(events)
"""


@pytest.mark.real("process")
def test_a_killed_writer_loses_nothing(path: Path) -> None:
    chance, written = random.Random(14), 0
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            confirmed = [child.stdout.readline() for _ in range(chance.randint(1, 300))]
            child.send_signal(signal.SIGKILL)
            confirmed += child.stdout.readlines()
        assert child.returncode == -signal.SIGKILL
        found = read_events(path)
        # the last line may be cut off, or of an event that is in the file but was not confirmed yet
        last = int([line for line in confirmed if line.endswith(b"\n")][-1])
        assert found == [numbered(number) for number in range(len(found))]
        assert last <= len(found) <= last + 1
        assert last > written, "the writer did not continue"
        written = last


# a full disk at any byte


def test_a_full_disk_never_leaves_half_a_record(path: Path) -> None:
    file = EventFile(path)
    file.open()
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
    file.close()


def test_a_full_disk_keeps_the_old_file(path: Path) -> None:
    file = EventFile(path)
    file.open()
    file.append(EVENTS[0])
    for size in range(len(text_of(EVENTS))):
        with longest_file(size):
            assert not file.rewrite(EVENTS)
        assert [each.name for each in path.parent.iterdir()] == ["events"]
        assert path.read_bytes() == text_of(EVENTS[:1])
    assert file.append(EVENTS[1])
    assert file.rewrite(EVENTS)
    assert read_events(path) == EVENTS
    file.close()


def test_without_space_the_old_file_is_continued(path: Path) -> None:
    path.write_bytes(text_of(EVENTS[:2]) + b"0123")
    file = EventFile(path)
    with no_new_file(path):
        assert file.open() == EVENTS[:2]
        assert file.append(EVENTS[2])
    assert read_events(path) == EVENTS
    file.close()


def test_a_failure_is_reported_once_and_its_end_as_well(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    file = EventFile(path)
    file.open()
    with longest_file(path.stat().st_size):
        assert [file.append(event) for event in EVENTS] == [False] * 3
    assert [file.append(event) for event in EVENTS] == [True] * 3
    assert caplog.messages == [
        f"event log {path} cannot be written: File too large; events are kept in memory and written once ring.dir "
        "allows it",
        f"event log {path} can be written again",
    ]
    file.close()


# something else in place of the file


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is not of version 1: it begins with b''"),
        (b"ibpulse-events 2\n" + line_of({"kind": "new"}), "it begins with b'ibpulse-events 2'"),
        (b"ibpulse-events 1 \n", "it begins with b'ibpulse-events 1 '"),
        (b"\0" * 5_000_000, "is not of version 1"),
        (b"x" * 5_000_000, f"it begins with {b'x' * 35!r}"),
    ],
)
def test_a_file_of_another_version_is_kept_aside(
    path: Path, content: bytes, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not of version 1"):
        read_events(path)
    file = EventFile(path)
    assert file.open() == []
    assert file.append(EVENTS[0])
    assert read_events(path) == EVENTS[:1]
    assert path.with_name("events.old").read_bytes() == content
    assert fault in caplog.text
    assert f"keeping it as {path}.old" in caplog.text
    file.close()


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
    with pytest.raises(ValueError, match="is not a regular file"):
        read_events(path)
    mode = path.lstat().st_mode
    file = EventFile(path)
    assert file.open() == []
    assert file.append(EVENTS[0])
    assert read_events(path) == EVENTS[:1]
    assert path.with_name("events.old").lstat().st_mode == mode
    assert other.read_bytes() == text_of(EVENTS)
    file.close()


def test_a_link_at_the_new_file_is_not_followed(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("precious")
    path.with_name("events.new").symlink_to(other)
    file = EventFile(path)
    file.open()
    assert other.read_text() == "precious"
    file.close()


def test_without_a_directory_events_stay_in_memory(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "nothing" / "events")
    assert file.open() == []
    assert not file.append(EVENTS[0])
    (tmp_path / "nothing").mkdir()
    assert file.rewrite(EVENTS)
    assert read_events(file.path) == EVENTS
    file.close()


def test_a_file_that_was_deleted_is_written_again(path: Path) -> None:
    file = EventFile(path)
    file.open()
    path.unlink()
    assert not file.append(EVENTS[0])
    assert not file.is_writable
    assert file.rewrite(EVENTS)
    assert read_events(path) == EVENTS
    file.close()


# hostile lines

HOSTILE = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b'{"time_ns":NaN,"kind":"capture","subject":"","text":""}',
    b'{"time_ns":1e999,"kind":"capture","subject":"","text":""}',
    b'{"time_ns":1' + b"0" * 5000 + b',"kind":"capture","subject":"","text":""}',
    b'{"time_ns":1,"kind":"capture","subject":"","text":"","details":{"x":Infinity}}',
    b'{"time_ns":1,"kind":"capture","subject":"","text":"","details":{"x":1e999}}',
    b'{"time_ns":1,"kind":"capture","subject":"","text":"","details":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    b'{"time_ns":1,"kind":"capture","subject":"","text":"","details":{"x":' + b"[" * 500 + b"]" * 500 + b"}}",
    b'{"time_ns":1,"kind":"started","subject":"","text":"","details":{"ports":7}}',
    b'{"time_ns":1,"kind":"capture","subject":"","text":"\\ud800"}',
    b'{"time_ns":1,"kind":"capture","subject":"","text":"\xff"}',
]


@pytest.mark.parametrize("body", HOSTILE)
def test_a_hostile_line_is_skipped(path: Path, body: bytes) -> None:
    assert decode_event(line_of(body)[:-1]) is None
    path.write_bytes(HEAD + encode_event(EVENTS[0]) + line_of(body) + encode_event(EVENTS[1]))
    assert read_events(path) == EVENTS[:2]


@pytest.mark.parametrize("length", [999_999, 1_000_000, 1_000_001, 2_000_000, 5_000_003])
def test_a_very_long_line_is_skipped(path: Path, length: int) -> None:
    # its end looks like a line
    tail = encode_event(EVENTS[2])
    path.write_bytes(HEAD + encode_event(EVENTS[0]) + b"x" * length + tail + encode_event(EVENTS[1]))
    assert read_events(path) == EVENTS[:2]


def test_only_the_end_of_a_huge_file_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_FILE_BYTES", 1000)
    events = [numbered(number) for number in range(100)]
    path.write_bytes(text_of(events))
    found = read_events(path)
    assert found == events[-len(found) :]
    assert 3 <= len(found) <= 1000 // len(encode_event(events[0]))


def test_only_the_last_events_of_many_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_READ", 10)
    events = [numbered(number) for number in range(100)]
    path.write_bytes(text_of(events))
    assert read_events(path) == events[-10:]
