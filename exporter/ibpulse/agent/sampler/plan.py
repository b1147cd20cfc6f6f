"""The plan: a JSON file that maps counter files to slots for a sampler process. Standard library only."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from ibpulse.base import owned_files
from ibpulse.base.errors import SamplerError

# Used as a generation to ask the sampler to end.
STOP = 2**64 - 1
# the unit of `st_blocks`
BLOCK_BYTES = 512


class PlannedSignals(NamedTuple):
    """The signals of a port, as in `SignalSource`, and the number of their set in the ring.

    If `message` is not 0, those of `hw_counters` are asked for by netlink instead, at the port of this number.
    """

    set: int
    files: tuple[str, ...]
    asked: int
    message: int = 0
    refresh: str = ""


class PlannedPort(NamedTuple):
    """One port: its slot in the ring, its device, the files to sum per direction, and the ticks between samples.

    The files are those of the device only while its directory `folder` has this inode; 0 if that is unknown. If
    `message` is not 0, their counters are asked for by netlink instead, at the port of this number.
    """

    slot: int
    device: str
    transmit: tuple[str, ...]
    receive: tuple[str, ...]
    stride: int = 1
    folder: str = ""
    inode: int = 0
    message: int = 0
    signals: PlannedSignals | None = None


class Plan(NamedTuple):
    """The instructions for a sampler process. It ends when the process `parent` ends.

    The signals of a port are read every `signal_ticks` at most; 0 means that none are.
    """

    generation: int
    parent: int
    scheduler: str = "other"
    cpu: int | None = None
    ports: tuple[PlannedPort, ...] = ()
    signal_ticks: int = 0

    def devices(self) -> tuple[str, ...]:
        """Names of the devices in read order; the heartbeat numbers them from 1."""
        return tuple(dict.fromkeys(port.device for port in self.ports))


def plan_path(ring: Path, lane: int) -> Path:
    """Path of a lane's plan, next to the ring."""
    return ring.with_name(f"plan-{lane}.json")


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan atomically, so that readers never see a partial one.

    On a full file system, a plan that fits into the space of the old one is written over it. A reader at that moment
    sees text that is not JSON.

    Raises:
        OSError: the plan cannot be written; the old one is unchanged.
    """
    ports = [{**port._asdict(), "signals": port.signals and port.signals._asdict()} for port in plan.ports]
    raw = {**plan._asdict(), "ports": ports}
    text = json.dumps(raw).encode()
    try:
        with owned_files.replacing(path) as fresh, open(os.dup(fresh), "wb") as file:
            file.write(text)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not _overwrite(path, text):
            raise


def _overwrite(path: Path, text: bytes) -> bool:
    """Write into the space of an existing file; false if it does not have enough."""
    try:
        descriptor = owned_files.open_to_write(path)
    except OSError:
        return False
    with open(descriptor, "wb") as file:
        if len(text) > os.fstat(descriptor).st_blocks * BLOCK_BYTES:
            return False
        file.write(text)
        file.truncate()
    return True


def read_plan(path: Path) -> Plan:
    """Read a plan written by `write_plan`.

    Raises:
        SamplerError: the plan was written by a different version of the program.
    """
    with open(owned_files.open_to_read(path), "rb") as file:
        raw = json.load(file)
    try:
        return Plan(**raw | {"ports": tuple(map(_read_port, raw["ports"]))})
    except (AttributeError, KeyError, TypeError) as error:
        raise SamplerError(
            f"plan {path} was written by a different version of ibpulse ({error}); restart `ibpulse serve`"
        ) from error


def _read_port(raw: dict[str, Any]) -> PlannedPort:
    files = {direction: tuple(raw[direction]) for direction in ("transmit", "receive")}
    signals = raw["signals"] and PlannedSignals(**raw["signals"] | {"files": tuple(raw["signals"]["files"])})
    return PlannedPort(**{**raw, **files, "signals": signals})
