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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.yaml import YamlEntry, YamlFile, is_sequence, text_of
from ibpulse.errors import ConfigError
from ibpulse.sysfs.gpus import WORDS
from ibpulse.sysfs.pcie import ADDRESS, count_bytes, parse_speed, parse_width

if TYPE_CHECKING:
    import yaml

SETTING = "topology.file"
KEYS = ("numa_node", "gpus", "distance", "pcie")
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
    for device, line, node in _entries(file, root, "the file"):
        texts: dict[str, str | tuple[str, ...]] = {}
        for key, inner_line, value in _entries(file, node, device):
            if key not in KEYS:
                file.refuse(inner_line, f"{device}: {key}: no such key; write {', '.join(KEYS)}")
            else:
                texts[key] = _text(value)
        faults: list[str] = []
        yield device, _check(device, texts, faults)
        for fault in faults:
            file.refuse(line, fault)


def _entries(file: YamlFile, node: yaml.Node, what: str) -> Iterator[YamlEntry]:
    return file.mapping_entries(node, what, EXAMPLE, f"{what}: ")


def _text(node: yaml.Node) -> str | tuple[str, ...]:
    """A scalar or a list as written, because YAML would read 0001:00:00.0 as a base-60 number."""
    if is_sequence(node):
        return tuple(map(text_of, node.value))
    return text_of(node)


def _check(device: str, texts: dict[str, str | tuple[str, ...]], faults: list[str]) -> Override:
    """The override described by the texts; errors are appended to `faults`."""

    def refuse(key: str, advice: str) -> None:
        faults.append(f"{device}: {key}: {_show(texts[key])} {advice}")

    numa = texts.get("numa_node", "")
    if numa and not (isinstance(numa, str) and re.fullmatch("[0-9]{1,4}", numa)):
        refuse("numa_node", "is not a NUMA node; write its number, such as 0")
        numa = ""
    given = texts.get("gpus", ())
    gpus = (given,) if isinstance(given, str) else given
    if not all(ADDRESS.fullmatch(gpu) for gpu in gpus):
        refuse("gpus", "is not a list of PCI addresses; write them like [0000:1b:00.0]")
    distance = texts.get("distance", "")
    if distance and distance not in WORDS:
        refuse("distance", f"is not known; choose {', '.join(WORDS)}")
    elif bool(gpus) != bool(distance):
        missing, there = ("distance", "gpus") if gpus else ("gpus", "distance")
        faults.append(f"{device}: {there} is given without {missing}; give both, or neither")
    pcie = _parse_pcie(texts.get("pcie", ""))
    if "pcie" in texts and pcie is None:
        refuse("pcie", "is not a PCIe link; write it like 32 GT/s x16")
    return Override(int(str(numa)) if numa else None, gpus, str(distance), pcie)


def _parse_pcie(text: str | tuple[str, ...]) -> float | None:
    match = _PCIE.fullmatch(text) if isinstance(text, str) else None
    return count_bytes(parse_speed(match[1]), parse_width(match[2])) if match else None


def _show(value: str | tuple[str, ...]) -> str:
    return repr(value) if isinstance(value, str) else f"[{', '.join(value)}]"
