"""Bounded reads of foreign files: every refusal names the file, the problem and the way out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ibpulse.base.errors import ConfigError, DiscoveryError, IbpulseError, TraceError
from ibpulse.base.files import ForeignFile, sign_file
from tests.tables import for_each

MAX_BYTES = 1000
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda _: None, "cannot be read: No such file or directory; check its name and its permissions"),
    "directory": (Path.mkdir, "cannot be read: Is a directory; check its name and its permissions"),
    "long": (lambda path: path.write_bytes(b"x" * (MAX_BYTES + 1)), "is larger than 1 kB; shorten it"),
    "endless": (lambda path: path.symlink_to("/dev/zero"), "is larger than 1 kB; shorten it"),
    "many values": (lambda path: path.write_bytes(b"[{}," + b"[]," * 25), "has more than 50 values; shorten it"),
    "not text": (lambda path: path.write_bytes(b"a: \xff"), "byte 3 is not UTF-8; save the file as UTF-8 text"),
}


@for_each(REFUSED)
def test_an_unusable_file_is_refused(make: Callable[[Path], object], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / str(len(os.listdir(tmp_path)))
    make(path)
    if not path.exists():
        path = tmp_path / "missing"
    for file, subject in (
        (ForeignFile(path, TraceError, "trace"), f"trace {path}"),
        (ForeignFile(path, ConfigError), f"{path}:"),
        (ForeignFile(path, DiscoveryError, "one:"), f"one: {path}"),
    ):
        with pytest.raises(IbpulseError) as refusal:
            file.read_text(MAX_BYTES, max_values=50)
        assert type(refusal.value) is file.error
        assert str(refusal.value) == f"{subject} {sentence}"


def test_a_file_within_its_bound_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbf" + b"x" * (MAX_BYTES - 3))
    file = ForeignFile(path, ConfigError, regular=True)
    assert file.read(MAX_BYTES) == path.read_bytes()
    assert file.read_text(MAX_BYTES) == "x" * (MAX_BYTES - 3)


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="pipe is not a regular file; check its name and its permissions"):
        ForeignFile(tmp_path / "pipe", TraceError, "trace", regular=True).read(MAX_BYTES)


def test_a_refusal_has_a_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"^trace a:7 has no end; add one$"):
        ForeignFile(Path("a"), TraceError, "trace").refuse("has no end", "add one", 7)


def test_a_signature_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert sign_file(path) is None
    path.write_text("a")
    first = sign_file(path)
    path.write_text("ab")
    assert sign_file(path) != first == first
