"""The file `topology.file`: what an operator says of the place of devices where a virtual machine hides it.

A mapping from the name of a device to what replaces the kernel's word; what is left out stays as it is:

    mlx5_ib0:
      numa_node: 0
      gpus: [0001:00:00.0]
      distance: PIX
      pcie: 32 GT/s x16

It must not look at a sysfs tree: whether the names exist is seen at each scan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from ibpulse.errors import ConfigError
from ibpulse.sysfs.gpus import WORDS
from ibpulse.sysfs.pcie import ADDRESS, count_bytes, parse_speed, parse_width

SETTING = "topology.file"
KEYS = ("numa_node", "gpus", "distance", "pcie")
EXAMPLE = "mlx5_0: {numa_node: 0, gpus: [0000:1b:00.0], distance: PIX, pcie: 32 GT/s x16}"

_PCIE = re.compile(r"(.+) x([0-9]{1,3})")


@dataclass(frozen=True, slots=True)
class Override:
    """What replaces the kernel's word on one device; None, or no GPUs, for what stays.

    `distance` is that of every GPU named here. `pcie_bytes_per_second` stands for the whole way, now and at most.
    """

    numa_node: int | None = None
    gpus: tuple[str, ...] = ()
    distance: str = ""
    pcie_bytes_per_second: float | None = None


def read_overrides(path: Path | None) -> dict[str, Override]:
    """The overrides in the file, by device; none without a file.

    Raises:
        ConfigError: with every fault of the file, each with its line, its key, its value and the way out.
    """
    if path is None:
        return {}
    faults: list[str] = []
    overrides = dict(_read_devices(_compose(path), path, faults))
    if faults:
        raise ConfigError([f"{SETTING}: {fault}" for fault in faults])
    return overrides


def _compose(path: Path) -> yaml.Node | None:
    try:
        return yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        fault = f"{path}: cannot be read: {error.strerror}; name a file that can, or leave the setting out"
    except UnicodeDecodeError as error:
        fault = f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text"
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        fault = f"{place}: not YAML: {getattr(error, 'problem', None) or error}; correct this line or the one before"
    raise ConfigError([f"{SETTING}: {fault}"])


def _read_devices(root: yaml.Node | None, path: Path, faults: list[str]) -> Iterator[tuple[str, Override]]:
    if root is None:
        return
    for device, place, node in _entries(root, path, "the file", faults):
        texts: dict[str, str | tuple[str, ...]] = {}
        for key, inner_place, value in _entries(node, path, device, faults):
            if key not in KEYS:
                faults.append(f"{inner_place}: {device}: {key}: no such key; write {', '.join(KEYS)}")
            else:
                texts[key] = _text(value)
        yield device, _check(device, texts, place, faults)


def _entries(node: yaml.Node, path: Path, what: str, faults: list[str]) -> Iterator[tuple[str, str, yaml.Node]]:
    """Key, place and value of each entry of a mapping."""
    if not isinstance(node, yaml.MappingNode):
        faults.append(f"{path}:{node.start_mark.line + 1}: {what}: is not a mapping; write it like {EXAMPLE}")
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        name = str(key.value)
        if name in seen:
            faults.append(f"{path}:{line}: {what}: {name} is given twice, first in line {seen[name]}; give it once")
        else:
            seen[name] = line
            yield name, f"{path}:{line}", value


def _text(node: yaml.Node) -> str | tuple[str, ...]:
    """A scalar or a list as written: YAML itself would read 0001:00:00.0 as a number of base 60."""
    if isinstance(node, yaml.SequenceNode):
        return tuple(str(item.value) for item in node.value)
    return str(node.value)


def _check(device: str, texts: dict[str, str | tuple[str, ...]], place: str, faults: list[str]) -> Override:
    """The override that the texts make; what is wrong with them goes to the faults."""

    def refuse(key: str, advice: str) -> None:
        faults.append(f"{place}: {device}: {key}: {_show(texts[key])} {advice}")

    numa = texts.get("numa_node", "")
    if numa and not (isinstance(numa, str) and re.fullmatch("[0-9]{1,4}", numa)):
        refuse("numa_node", "is no NUMA node; write its number, like 0")
        numa = ""
    given = texts.get("gpus", ())
    gpus = (given,) if isinstance(given, str) else given
    if not all(ADDRESS.fullmatch(gpu) for gpu in gpus):
        refuse("gpus", "names no PCI address; write them like [0000:1b:00.0]")
    distance = texts.get("distance", "")
    if distance and distance not in WORDS:
        refuse("distance", f"is not known; choose {', '.join(WORDS)}")
    elif bool(gpus) != bool(distance):
        missing, there = ("distance", "gpus") if gpus else ("gpus", "distance")
        faults.append(f"{place}: {device}: {there} is given without {missing}; give both, or neither")
    pcie = _parse_pcie(texts.get("pcie", ""))
    if "pcie" in texts and pcie is None:
        refuse("pcie", "is no PCIe link; write it like 32 GT/s x16")
    return Override(int(str(numa)) if numa else None, gpus, str(distance), pcie)


def _parse_pcie(text: str | tuple[str, ...]) -> float | None:
    match = _PCIE.fullmatch(text) if isinstance(text, str) else None
    return count_bytes(parse_speed(match[1]), parse_width(match[2])) if match else None


def _show(value: str | tuple[str, ...]) -> str:
    return repr(value) if isinstance(value, str) else f"[{', '.join(value)}]"
