"""The file of places: what it says, and each way in which it can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.agent.sysfs.overrides import EXAMPLE, Override, read_overrides
from ibpulse.agent.sysfs.pcie import count_bytes
from ibpulse.base.errors import ConfigError


def read(tmp_path: Path, text: str) -> dict[str, Override]:
    file = tmp_path / "topology.yaml"
    file.write_text(text)
    return read_overrides(file)


def faults(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    return [fault.replace(f"topology.file: {tmp_path}/", "") for fault in error.value.faults]


def test_a_device_is_placed_in_full(tmp_path: Path) -> None:
    text = """
mlx5_ib0:
  numa_node: 0
  gpus: [0001:00:00.0, 0002:00:00.0]
  distance: PIX
  pcie: 32 GT/s x16
mlx5_ib1: {numa_node: 1}
"""
    assert read(tmp_path, text) == {
        "mlx5_ib0": Override(0, ("0001:00:00.0", "0002:00:00.0"), "PIX", count_bytes(32.0, 16)),
        "mlx5_ib1": Override(numa_node=1),
    }


def test_one_gpu_needs_no_list_and_is_no_number_of_base_60(tmp_path: Path) -> None:
    assert read(tmp_path, "mlx5_0: {gpus: 0001:00:00.0, distance: PIX}")["mlx5_0"].gpus == ("0001:00:00.0",)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a, b]", f"topology.yaml:1: the file: is not a mapping; write it like {EXAMPLE}"),
        ("mlx5_0: PIX", f"topology.yaml:1: mlx5_0: is not a mapping; write it like {EXAMPLE}"),
        (
            "a: {}\nmlx5_0: {node: 1}",
            "topology.yaml:2: mlx5_0: node: no such key; write numa_node, gpus, distance, pcie",
        ),
        ("mlx5_0: {numa_node: -1}", "topology.yaml:1: mlx5_0: numa_node: '-1' is not a whole number; choose 0 to"),
        ("mlx5_0: {gpus: [GPU0], distance: PIX}", "topology.yaml:1: mlx5_0: gpus: 'GPU0' is not a PCI address; write"),
        ("mlx5_0: {gpus: [0000:1b:00.0], distance: NEAR}", "topology.yaml:1: mlx5_0: distance: unknown value 'NEAR'; "),
        ("mlx5_0: {gpus: [0000:1b:00.0]}", "topology.yaml:1: mlx5_0: gpus is given without distance; give both"),
        ("mlx5_0: {distance: PIX}", "topology.yaml:1: mlx5_0: distance is given without gpus; give both, or neither"),
        ("mlx5_0: {pcie: Gen5}", "topology.yaml:1: mlx5_0: pcie: 'Gen5' is not a PCIe link; write it like 32 GT/s x16"),
        ("a: {numa_node: 1}\na: {numa_node: 0}", "topology.yaml:2: the file: a: is given twice, first in line 1; give"),
        ("mlx5_0: {\nmlx5_1: ]", "topology.yaml:2: not YAML: "),
    ],
)
def test_a_fault_names_its_line_key_value_and_the_way_out(tmp_path: Path, text: str, fault: str) -> None:
    (found,) = faults(tmp_path, text)
    assert found.startswith(fault)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    assert len(faults(tmp_path, "mlx5_0: {numa_node: x, pcie: y}\nmlx5_1: {gpu: z}")) == 3


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot be read: No such file or directory; choose another file, or unset it"
    ):
        read_overrides(tmp_path / "none.yaml")
