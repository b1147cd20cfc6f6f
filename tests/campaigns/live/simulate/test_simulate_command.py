"""`ibpulse simulate` as a process: from its flags to a tree that advances."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.running import eventually


def run_until_it_advances(root: Path, file: str, *flags: str) -> str:
    """What a simulator says whose counter file advances, and which ends on SIGTERM."""
    command = [sys.executable, "-m", "ibpulse", "simulate", str(root), "--workload=square", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            counter = root / file
            eventually(counter.exists)
            first = counter.read_text()
            eventually(lambda: counter.read_text() != first)
        finally:
            process.terminate()
        assert process.wait(30) == 0
        assert process.stdout is not None
        return process.stdout.read()


COUNTER = "class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"


def test_a_tree_advances_until_sigterm(tmp_path: Path) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    flags = ("--ports=2", "--interval=1ms", "--rate=8GB/s", "--period=10ms", "--duty=0.5", "--management")
    assert "square on 2 ports" in run_until_it_advances(one, COUNTER, *flags, "--fault=idle-rail=mlx5_1")
    assert sorted(os.listdir(one / "class/infiniband")) == ["mlx5_0", "mlx5_1", "mlx5_an0"]
    assert json.loads((one / "faults.json").read_text()) == {"idle-rail": {"mlx5_1": 1.0}}
    said = run_until_it_advances(several, f"node3/{COUNTER}", "--nodes=3", "--ports=1")
    assert "square on 3 nodes with 1 ports each" in said
    assert sorted(os.listdir(several)) == ["node1", "node2", "node3"]


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
