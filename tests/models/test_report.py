"""`ibpulse model` as a command: published runs, text, refusals and imports; `tests/contract` has whole outputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ibpulse.cli import main
from tests.docs.pages import ROOT, blocks

MOE = ["--model=mixtral-8x7b", "--nodes=2", "--rails=7", "--algorithm=ring", "--recompute=full", "--step=1444ms"]


def test_the_text_has_every_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "model: qwen3-30b-a3b\nnodes: 8\nep: 16\nsharding: zero1\nglobal-batch: 128\npp: 2\nmfu: 0.4\n"
        "network: dragonfly\ngroups: 64\nglobal-links: 8\n"
    )
    assert main(["model", str(path)], {}) == 0
    output = capsys.readouterr().out
    assert output.startswith("qwen3-30b-a3b: 30.53e9 parameters, 3.353e9 per token\n8 nodes x 8 GPUs, 8 rails; TP 1 ")
    for part in (
        "bytes sent per step (one direction; a node receives as many bytes as it sends):",
        "  source ",
        "  pipeline ",
        "  experts ",
        "  expert gradients ",
        "formulas (g ranks of a group",
        "\nseconds per step ",
        "pipeline bubble: 25.00 %",
        "(MFU of 40.00 %, contains exposed communication and the bubble; from no attention scores to all of them)",
        "bisection of the network, one direction: ",
        "(g/2)^2 L/(g-1) B",
        "most loaded of 16 expert ranks in relation to the mean: by chance 1.0",
        "assumptions:\n  ranks fill nodes in blocks",
        "minimal routes do not exist",
    ):
        assert part in output, part


def test_control_characters_of_file_names_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[31m\n.yaml"
    path.write_text("model: mixtral-8x7b\nnodes: 2\n")
    for form in ("text", "json"):
        assert main(["model", str(path), f"--format={form}"], {}) == 0
        assert "\x1b" not in capsys.readouterr().out


@pytest.mark.real("process")
def test_the_command_starts_without_slow_imports() -> None:
    """numpy, pydantic and others take longer than the whole prediction may."""
    probe = (
        "import sys; from ibpulse.cli import main; main(['model', *sys.argv[1:]], {}); "
        "heavy = {'numpy', 'pydantic', 'fastapi', 'pyarrow', 'matplotlib', 'jinja2'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe, *MOE], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_the_worked_example_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    command, output = blocks(ROOT / "docs/models.md")[:2]
    assert main(command.split()[1:], {}) == 0
    assert capsys.readouterr().out == output
