"""A growing recording that is cut at its ends when it is finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.core.recordings import RecordingWriter, load
from tests.recordings.recordings import make_recording


@pytest.mark.parametrize("group_rows", [200, 65_536])
@pytest.mark.parametrize(("first", "last"), [(0, 999), (0, 0), (999, 999), (7, 12), (150, 849), (0, 5000)])
def test_only_the_ticks_between_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_rows: int, first: int, last: int
) -> None:
    monkeypatch.setattr("ibpulse.core.recordings.writing.GROUP_ROWS", group_rows)
    path, whole = tmp_path / "a.parquet", make_recording(1000)
    writer = RecordingWriter(path, whole.meta)
    for begin in range(0, 1000, 125):
        writer.append(whole.cut(begin, begin + 125))
    writer.close(first, last)
    assert load(path) == whole.cut(first, last + 1)
    assert list(tmp_path.iterdir()) == [path]
