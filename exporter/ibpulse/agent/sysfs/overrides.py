"""Reads `topology.file`, in which an operator describes device locations that a virtual machine hides.

It maps a device name to values that override the kernel's; omitted values are unchanged:

    mlx5_ib0:
      numa_node: 0
      gpus: [0001:00:00.0]
      distance: PIX
      pcie: 32 GT/s x16

Each scan checks whether the names exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ibpulse.agent.sysfs.gpus import WORDS
from ibpulse.agent.sysfs.pcie import ADDRESS, count_bytes, parse_speed, parse_width
from ibpulse.base.errors import ConfigError
from ibpulse.base.text import show
from ibpulse.base.values import Kind, choice, many, matching, one, whole
from ibpulse.base.yaml import YamlFile, is_empty, texts_of

SETTING = "topology.file"
EXAMPLE = "mlx5_0: {numa_node: 0, gpus: [0000:1b:00.0], distance: PIX, pcie: 32 GT/s x16}"

_PCIE = re.compile(r"(.+) x([0-9]{1,3})")


@dataclass(frozen=True, slots=True)
class Override:
    """Values that override the kernel's for one device; None, or no GPUs, keeps the kernel's value.

    `distance` applies to every GPU in `gpus`. `pcie_bytes_per_second` is that of the whole path, both current and
    maximum.
    """

    numa_node: int | None = None
    gpus: tuple[str, ...] = ()
    distance: str = ""
    pcie_bytes_per_second: float | None = None


def read_overrides(path: Path | None) -> dict[str, Override]:
    """The overrides in the file, by device; empty without a file.

    Raises:
        ConfigError: lists every error of the file with its line, key, value and remedy.
    """
    if path is None:
        return {}
    file = YamlFile(path)
    overrides = dict(_read_devices(file))
    if file.faults:
        raise ConfigError([f"{SETTING}: {fault}" for fault in file.faults])
    return overrides


def _read_devices(file: YamlFile) -> Iterator[tuple[str, Override]]:
    root = file.compose("choose another file, or unset it")
    if root is None:
        return
    for device, line, node in file.mapping_entries(root, "the file", EXAMPLE, "the file: "):
        values: dict[str, Any] = {}
        faults: list[str] = []
        for key, inner_line, value in file.mapping_entries(node, device, EXAMPLE, f"{device}: "):
            if key not in KINDS:
                file.refuse(inner_line, f"{device}: {key}: no such key; write {', '.join(KINDS)}")
            if key not in KINDS or is_empty(value):
                continue
            try:
                given = texts_of(value)
                values[FIELDS.get(key, key)] = KINDS[key].parse("[...]" if given is None else given)
            except ValueError as error:
                faults.append(f"{device}: {key}: {error.args[0]}")
        if not faults and bool(values.get("gpus")) != bool(values.get("distance")):
            missing, there = ("distance", "gpus") if values.get("gpus") else ("gpus", "distance")
            faults.append(f"{device}: {there} is given without {missing}; give both, or neither")
        yield device, Override(**values)
        for fault in faults:
            file.refuse(line, fault)


def _pcie_link(text: str) -> float:
    match = _PCIE.fullmatch(text)
    found = count_bytes(parse_speed(match[1]), parse_width(match[2])) if match else None
    if found is None:
        raise ValueError(f"{show(text)} is not a PCIe link; write it like 32 GT/s x16")
    return found


FIELDS = {"pcie": "pcie_bytes_per_second"}
_GPU = matching("ADDRESS", ADDRESS.pattern, "a PCI address", "write them like [0000:1b:00.0]")
KINDS: Mapping[str, Kind[Any]] = {
    "numa_node": whole(0, 9999),
    "gpus": many(_GPU, split=False),
    "distance": choice(*WORDS),
    "pcie": one("LINK", _pcie_link),
}
