"""What a running fabric is told by its faults file: the faults, and another workload. It must not touch a tree.

`{"workload": "moe"}` or `{"workload": {"name": "dense", "stretch": 1.1}}` beside the faults; without it the fabric goes
back to the workload that it began with.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ibpulse.errors import ConfigError
from ibpulse.simulate.faults import DeviceFaults, parse_faults
from ibpulse.simulate.step import Workload
from ibpulse.simulate.workloads import Stretched, make_workload

EXAMPLE = '{"name": "dense", "stretch": 1.1}'


@dataclass(frozen=True, slots=True)
class Control:
    """The faults of each device that has any, and the workload, None for the first one."""

    faults: Mapping[str, DeviceFaults]
    workload: Workload | None = None


def parse_control(text: str, devices: Collection[str], place: str) -> Control:
    """What the text says. An empty text means no fault and the first workload.

    Raises ConfigError with every fault of the text, each naming `place`.
    """
    try:
        document = json.loads(text or "{}")
    except json.JSONDecodeError:
        document = None
    if not isinstance(document, dict) or "workload" not in document:
        return Control(parse_faults(text, devices, place))
    workload = _parse_workload(document.pop("workload"), place)
    return Control(parse_faults(json.dumps(document), devices, place), workload)


def _parse_workload(entry: object, place: str) -> Workload:
    named = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(named, dict) or not isinstance(named.get("name"), str) or named.keys() - {"name", "stretch"}:
        raise ConfigError([f"{place}: workload holds {entry!r}; give a name, or for example {EXAMPLE}"])
    factor = named.get("stretch", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0.1 <= factor <= 10:
        raise ConfigError([f"{place}: workload: stretch is {factor!r}; give a number from 0.1 to 10"])
    try:
        workload = make_workload(named["name"])
    except ConfigError as error:
        raise ConfigError([f"{place}: {fault}" for fault in error.faults]) from error
    return workload if factor == 1 else Stretched(workload, float(factor))
