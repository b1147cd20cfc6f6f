"""The directory of captures: names, what has to go for a new one, and disks that fail."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.agent.flightrecorder.store import CaptureOptions, CaptureStore, look_at
from ibpulse.base.errors import CaptureError
from ibpulse.core.captures import CaptureName, make_name, parse_name
from tests.other_users import USER, needs_other_users
from tests.ring.tiny import tiny_tmpfs

__all__ = ["tiny_tmpfs"]


def make_store(directory: Path, **limits: int) -> CaptureStore:
    return CaptureStore(CaptureOptions(directory, "node7", **{"min_free_bytes": 0, **limits}))


def put(store: CaptureStore, number: int, size: int = 1000) -> CaptureName:
    name = make_name(number * 10**9, f"n{number}")
    store.path(name).write_bytes(bytes(size))
    return name


@pytest.fixture
def store(tmp_path: Path) -> CaptureStore:
    made = make_store(tmp_path / "captures", max_count=3, max_bytes=5000)
    made.prepare()
    return made


def test_captures_are_listed_by_time_and_nothing_else_is(store: CaptureStore) -> None:
    late, early = put(store, 9), put(store, 3)
    (store.directory / "notes.txt").write_text("")
    (store.directory / f"{make_name(5, 'half')}.tmp").write_text("")
    store.path(make_name(6, "folder")).mkdir()
    store.path(make_name(7, "link")).symlink_to("/etc/passwd")
    assert [(each.name, each.size_bytes) for each in store.scan()] == [(early, 1000), (late, 1000)]


def test_a_capture_removed_during_the_scan_is_skipped(store: CaptureStore) -> None:
    gone, stays = put(store, 1), put(store, 2)
    with os.scandir(store.directory) as entries:
        found = {entry.name: entry for entry in entries}
    store.remove(gone)
    assert look_at(found[str(gone)]) is None
    assert look_at(found[str(stays)]) is not None


# sizes of the captures, of the new one, and how many go: there may be three, of 5 kB together
@pytest.mark.parametrize(
    ("sizes", "size", "go"), [((1000,) * 3, 1000, 1), ((2000, 2000), 3500, 2), ((1000,), 1000, 0), ((), 5000, 0)]
)
def test_the_oldest_go_when_there_are_too_many_or_they_are_too_large(
    store: CaptureStore, sizes: tuple[int, ...], size: int, go: int
) -> None:
    names = [put(store, number, each) for number, each in enumerate(sizes, 1)]
    assert store.make_room(size) == names[:go]
    assert [each.name for each in store.scan()] == names[go:]
    assert [store.remove(name) for name in names] == [False] * go + [True] * (len(names) - go)


def test_what_is_larger_than_all_captures_may_be_is_refused(store: CaptureStore) -> None:
    sentence = "a capture of about 0.0 MB exceeds capture.max-bytes, 5kB; raise it"
    put(store, 1)
    with pytest.raises(CaptureError, match=re.escape(sentence)):
        store.make_room(5001)
    assert len(store.scan()) == 1


def test_captures_leave_some_of_the_disk_free(tmp_path: Path) -> None:
    store = make_store(tmp_path, min_free_bytes=2**62)
    with pytest.raises(
        CaptureError, match=r"would leave less than capture\.min-free, 4194304TiB; free space or lower it"
    ):
        store.make_room(1000)


@pytest.mark.real("process")
def test_the_oldest_go_when_the_disk_is_full(tiny_tmpfs: Path) -> None:
    store = make_store(tiny_tmpfs, min_free_bytes=100_000)
    names = [put(store, number, 150_000) for number in range(4)]
    assert store.make_room(100_000) == names[:1]


@pytest.mark.real("process")
def test_nothing_goes_for_what_would_not_fit_anyway(tiny_tmpfs: Path) -> None:
    store = make_store(tiny_tmpfs, min_free_bytes=500_000)
    names = [put(store, number, 150_000) for number in range(4)]
    with pytest.raises(
        CaptureError, match=r"capture\.dir: .* could have 0\.7 MB free; a capture of about 0\.3 MB would"
    ):
        store.make_room(300_000)
    assert [each.name for each in store.scan()] == names


def test_what_killed_writers_left_is_removed_once_it_is_old(store: CaptureStore) -> None:
    whole = put(store, 1)
    old, fresh = (store.directory / f"{make_name(number, 'half')}.tmp" for number in (2, 3))
    for leftover in (old, fresh):
        leftover.write_text("")
    os.utime(old, (0, 0))
    store.prepare()
    assert {file.name for file in store.directory.iterdir()} == {str(whole), fresh.name}
    store.discard(make_name(0, "none"))


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    assert make_store(tmp_path / "missing").scan() == []
    with pytest.raises(CaptureError, match="cannot be used: No such file or directory"):
        make_store(tmp_path / "missing").make_room(1)
    (tmp_path / "file").write_text("")
    store = make_store(tmp_path / "file")
    for use in (store.prepare, store.scan, lambda: store.make_room(1), lambda: store.remove(make_name(0, "a"))):
        advice = f"choose a directory that belongs to root or to user {os.geteuid()}, or change its owner"
        with pytest.raises(CaptureError, match=rf"capture\.dir: .*/file .*; {advice}"):
            use()


@needs_other_users
def test_a_replaced_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path / "captures")
    store.prepare()
    name = put(store, 1)
    (tmp_path / "captures").rename(tmp_path / "away")
    (tmp_path / "captures").mkdir()
    os.chown(tmp_path / "captures", USER, USER)
    forged = store.path(put(store, 2))
    for use in (store.scan, store.prepare, lambda: store.open(name)):
        with pytest.raises((CaptureError, PermissionError), match=f"it belongs to user {USER}"):
            use()
    forged.unlink()
    (tmp_path / "captures").rmdir()
    assert store.scan() == []
    (tmp_path / "away").rename(tmp_path / "captures")
    assert [each.name for each in store.scan()] == [name]


@given(st.integers(0, 250 * 10**9 * 10**9 // 30), st.text(max_size=80))
def test_a_name_that_was_made_is_read_back(trigger_ns: int, reason: str) -> None:
    name = make_name(trigger_ns, reason)
    assert parse_name(str(name)) == name
    assert name.trigger_ms == trigger_ns // 10**6


def test_a_name_says_when_and_why_and_is_each_another() -> None:
    name = str(make_name(1_763_683_203_030 * 10**6, "Before the Update: v2!"))
    assert name.startswith("20251121T000003.030Z-Before-the-Update-v2-")
    assert str(make_name(0, "!!!")).startswith("19700101T000000.000Z-capture-")
    assert make_name(0, "a") != make_name(0, "a")


GOOD = "20251121T000003.030Z-rail-lost-1f6c0a2e.parquet"


def test_anything_else_is_no_name() -> None:
    assert parse_name(GOOD) is not None
    for text in ("", f"../{GOOD}", f"a/{GOOD}", f"{GOOD}.tmp", f"{GOOD}\n", GOOD.upper()):
        assert parse_name(text) is None
    for part, other in (("rail", "rail/../.."), ("rail-lost", "-lost"), ("rail-lost", "x" * 65), ("rail", "\0")):
        assert parse_name(GOOD.replace(part, other)) is None
    for part, other in (("1f6c0a2e", "1f6c0a2"), ("20251121", "20251321"), ("20251121", "２０２５1121")):
        assert parse_name(GOOD.replace(part, other)) is None
