"""The plan: a JSON file that maps counter files to slots for a sampler process. Standard library only."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import NamedTuple

from ibpulse.base import owned_files
from ibpulse.base.errors import SamplerError

# Used as a generation to ask the sampler to end.
STOP = 2**64 - 1
# the unit of `st_blocks`
BLOCK_BYTES = 512


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


class Plan(NamedTuple):
    """The instructions for a sampler process. It ends when the process `parent` ends."""

    generation: int
    parent: int
    scheduler: str = "other"
    cpu: int | None = None
    ports: tuple[PlannedPort, ...] = ()

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
    raw = {**plan._asdict(), "ports": [port._asdict() for port in plan.ports]}
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
        ports = [
            PlannedPort(**{**port, "transmit": tuple(port["transmit"]), "receive": tuple(port["receive"])})
            for port in raw.pop("ports")
        ]
        return Plan(**raw, ports=tuple(ports))
    except (AttributeError, KeyError, TypeError) as error:
        raise SamplerError(
            f"plan {path} was written by a different version of ibpulse ({error}); restart `ibpulse serve`"
        ) from error
