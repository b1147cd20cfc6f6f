"""A file of places that cannot be used stops the program before it begins, with every fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.cli import main


def test_config_check_tells_the_faults_of_the_file_of_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("mlx5_0: {numa_node: left}\n")
    assert main(["config", "check", f"--topology.file={file}"], {}) == 2
    told = f"topology.file: {file}:1: mlx5_0: numa_node: 'left' is no NUMA node; write its number, like 0"
    assert told in capsys.readouterr().err


def test_config_check_takes_a_file_of_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("mlx5_0: {numa_node: 1}\n")
    assert main(["config", "check", f"--topology.file={file}"], {}) == 0
    assert f"topology.file = {file} (flag --topology.file)" in capsys.readouterr().out


def test_the_daemon_does_not_start_with_a_file_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "none.yaml"
    flags = [f"--topology.file={file}", f"--ring.dir={tmp_path / 'ring'}", f"--path.sysfs={tmp_path}"]
    assert main(["serve", *flags], {}) == 2
    assert f"topology.file: {file}: cannot be read: No such file or directory" in capsys.readouterr().err


def test_an_empty_setting_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--topology.file="], {}) == 0
    assert "topology.file = none (flag --topology.file)" in capsys.readouterr().out
