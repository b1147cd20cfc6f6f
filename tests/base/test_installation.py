"""The command that calls this program, and the one that installs a package that is missing."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

from ibpulse.base.installation import MAKE_FILE, PINNED, PIPX_FILE, UV_FILE, how_to_install, own_command
from ibpulse.cli import main
from tests.docs.pages import ROOT


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "a folder" / "ibpulse"
    path.parent.mkdir()
    path.write_text("")
    path.chmod(0o755)
    return path


def test_the_program_is_called_by_its_name_its_path_or_its_interpreter(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(program)])
    for path, command in ((str(program.parent), "ibpulse"), ("/nowhere", f"'{program}'")):
        monkeypatch.setenv("PATH", path)
        assert own_command() == command
    monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py"])
    assert own_command() == f"{sys.executable} -m ibpulse"


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that is not in the working directory."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    return tmp_path


def test_an_environment_is_extended_by_its_own_pip(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert how_to_install("pyarrow", "pillow") == f"install with `{prefix}/bin/python -m pip install pyarrow pillow`"
    monkeypatch.chdir(prefix)
    assert how_to_install("pyarrow") == "install with `bin/python -m pip install pyarrow`"
    monkeypatch.setattr(sys, "executable", "/my files/bin/python")
    assert how_to_install("pyarrow") == "install with `'/my files/bin/python' -m pip install pyarrow`"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert how_to_install("pyarrow").startswith("this installation has no pip")


@pytest.mark.parametrize(
    ("name", "command"),
    [(PIPX_FILE, "pipx inject ibpulse pyarrow"), (UV_FILE, "uv pip install --python {0}/bin/python pyarrow")],
)
def test_pipx_and_uv_extend_their_environments(prefix: Path, name: str, command: str) -> None:
    (prefix / name).touch()
    assert how_to_install("pyarrow") == f"install with `{command.format(prefix)}`"


def test_make_run_is_extended_by_make_workbench(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (prefix / MAKE_FILE).touch()
    assert how_to_install("matplotlib", "pillow") == f"install with `make -C {prefix.parent} workbench`"
    monkeypatch.chdir(prefix.parent)
    assert how_to_install("pyarrow") == "install with `make workbench`"
    assert "pip install pandas" in how_to_install("pandas")


def test_the_packages_of_make_workbench_are_those_of_the_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {word for extra in project["optional-dependencies"].values() for word in extra if "[" not in word}
    assert {re.split(r"[<>=]", word)[0] for word in named} == PINNED


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("duckdb", "fleet report {0}"),
        ("distributed", "fleet collect {0}/a.parquet -o {0}/set --processes=1 --scheduler=tcp://127.0.0.1:1"),
        ("shtab", "completion bash"),
    ],
)
def test_a_command_names_the_package_that_it_lacks(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "ibpulse.commands.config", raising=False)
    assert main(words.format(tmp_path).split(), {}) in (1, 2)
    assert capsys.readouterr().err.endswith(f"; {how_to_install(name)}\n")


def test_no_message_names_ibpulse_on_a_package_index() -> None:
    package = Path(main.__code__.co_filename).parent
    assert [path for path in package.rglob("*.py") if "install 'ibpulse" in path.read_text()] == []
