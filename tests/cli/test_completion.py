"""`ibpulse completion`: the script completes commands, flags and choices in a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ibpulse.cli import main
from ibpulse.commands import VERBS

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_shtab_ibpulse ibpulse "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
echo "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda text="", **_: printed.append(text))
        assert main(["completion", "bash"], {}) == 0
    path = tmp_path_factory.mktemp("completion") / "ibpulse.bash"
    path.write_text("".join(printed))
    return path


def complete(script: Path, *words: str) -> list[str]:
    command = ["bash", "--norc", "-c", ASK, "bash", str(script), "ibpulse", *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.real("process")
def test_commands_flags_and_choices_are_completed(script: Path) -> None:
    assert set(complete(script, "")) >= {name.split()[0] for name in VERBS}
    for words, expected in {
        "re": "record replay report render",
        "fleet ": "collect report render",
        "model experts --exch": "--exchange",
        "report --br": "--brief",
        "record --ur": "--url",
        "serve --sampler.h": "--sampler.history",
        "render --theme ": "light dark",
    }.items():
        assert complete(script, *words.split(" ")) == expected.split(), words
