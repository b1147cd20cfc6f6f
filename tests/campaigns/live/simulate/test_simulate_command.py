"""`ibpulse simulate` as a process: from its flags to a tree that advances."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.running import eventually


def test_it_builds_a_fabric_that_advances_and_ends_on_sigterm(tmp_path: Path) -> None:
    flags = ["--workload=square", "--ports=2", "--interval=1ms", "--rate=8GB/s", "--period=10ms", "--duty=0.5"]
    flags += ["--management", "--fault=idle-rail=mlx5_1"]
    command = [sys.executable, "-m", "ibpulse", "simulate", str(tmp_path), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            file = tmp_path / "class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"
            eventually(file.exists)
            first = file.read_text()
            eventually(lambda: file.read_text() != first)
        finally:
            process.terminate()
        assert process.wait(30) == 0
        assert process.stdout is not None
        assert "square on 2 ports" in process.stdout.read()
    assert sorted(os.listdir(tmp_path / "class/infiniband")) == ["mlx5_0", "mlx5_1", "mlx5_an0"]
    assert json.loads((tmp_path / "faults.json").read_text()) == {"idle-rail": {"mlx5_1": 1.0}}


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


def test_several_nodes_have_a_tree_each(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ibpulse",
        "simulate",
        str(tmp_path),
        "--nodes=3",
        "--ports=1",
        "--workload=square",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            file = tmp_path / "node3/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"
            eventually(file.exists)
            first = file.read_text()
            eventually(lambda: file.read_text() != first)
        finally:
            process.terminate()
        assert process.wait(30) == 0
        assert process.stdout is not None
        assert "square on 3 nodes with 1 ports each" in process.stdout.read()
    assert sorted(os.listdir(tmp_path)) == ["node1", "node2", "node3"]
