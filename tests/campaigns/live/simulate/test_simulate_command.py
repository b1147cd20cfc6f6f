"""`ibpulse simulate` as a process: from its flags to a tree that advances."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.running import eventually


def test_the_printed_commands_can_be_pasted(tmp_path: Path) -> None:
    tree = tmp_path / "a tree"
    command = [sys.executable, "-m", "ibpulse", "simulate", str(tree), "--ports=2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = [process.stdout.readline().strip() for _ in range(5)]
            state = tree / "class/infiniband/mlx5_0/ports/1/state"
            eventually(lambda: (tree / "faults.json").exists() and state.exists())
            subprocess.run(["sh", "-c", said[2]], stdin=subprocess.DEVNULL, check=True)
            eventually(lambda: "DOWN" in state.read_text())
            subprocess.run(["sh", "-c", said[4]], stdin=subprocess.DEVNULL, check=True)
            eventually(lambda: "ACTIVE" in state.read_text())
        finally:
            process.terminate()
        _, errors = process.communicate(timeout=30)
    assert "rejected" not in errors
