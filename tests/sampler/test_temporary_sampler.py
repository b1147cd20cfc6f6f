"""The directory of a temporary sampler: in memory, removed at the end, or by the next command after a kill."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from ibpulse.agent.sampler.temporary_sampler import SCRATCH, _scratch_directory


def test_directories_of_killed_commands_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"{SCRATCH}left" / "ring").mkdir(parents=True)
    with _scratch_directory() as first:
        assert [*tmp_path.iterdir()] == [first]
        with _scratch_directory() as second:
            # that of a running command stays
            assert {*tmp_path.iterdir()} == {first, second}
        assert [*tmp_path.iterdir()] == [first]
    assert [*tmp_path.iterdir()] == []
