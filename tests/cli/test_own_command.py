"""The printed commands call this very program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ibpulse.base.installation import own_command


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "a folder" / "ibpulse"
    path.parent.mkdir()
    path.write_text("")
    path.chmod(0o755)
    return path


def test_a_program_on_the_path_is_called_by_its_name(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert own_command() == "ibpulse"


def test_another_one_by_its_whole_path(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert own_command() == f"'{program}'"


def test_a_module_by_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py"])
    assert own_command() == f"{sys.executable} -m ibpulse"
