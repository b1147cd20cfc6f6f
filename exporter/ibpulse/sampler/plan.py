"""The plan: which files a sampler process reads into which slots, as a JSON file. Standard library only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ibpulse.errors import SamplerError

# In place of a generation: the sampler is to end.
STOP = 2**64 - 1


@dataclass(frozen=True, slots=True)
class PlannedPort:
    """One port: its slot in the ring, its device, the files that are added up per direction, ticks between samples."""

    slot: int
    device: str
    transmit: tuple[str, ...]
    receive: tuple[str, ...]
    stride: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a sampler process is told. `parent` is the process whose end ends it."""

    generation: int
    parent: int
    scheduler: str = "other"
    cpu: int | None = None
    ports: tuple[PlannedPort, ...] = ()

    def devices(self) -> tuple[str, ...]:
        """Names of the devices in the order in which they are read; the heartbeat counts them from one."""
        return tuple(dict.fromkeys(port.device for port in self.ports))


def plan_path(ring: Path, lane: int) -> Path:
    """Where the plan of a lane lies: beside the ring."""
    return ring.with_name(f"plan-{lane}.json")


def write_plan(path: Path, plan: Plan) -> None:
    """Put a plan in place at once, so that no reader sees half of it."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(plan)))
    fresh.replace(path)


def read_plan(path: Path) -> Plan:
    """The plan in a file that `write_plan` wrote.

    Raises:
        SamplerError: the file holds no plan of this version of the program.
    """
    raw = json.loads(path.read_text())
    try:
        ports = [
            PlannedPort(port["slot"], port["device"], tuple(port["transmit"]), tuple(port["receive"]), port["stride"])
            for port in raw.pop("ports")
        ]
        return Plan(**raw, ports=tuple(ports))
    except (AttributeError, KeyError, TypeError) as error:
        raise SamplerError(
            f"plan {path} is not one of this version of ibpulse ({error}); restart `ibpulse serve`"
        ) from error
