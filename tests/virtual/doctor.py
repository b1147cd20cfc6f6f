"""`ibpulse doctor` in virtual time: the command itself, whose facts are collected in this process."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ibpulse.agent.doctor.examination import FactsRequest, find_facts
from ibpulse.agent.doctor.facts import Facts
from ibpulse.cli import main
from ibpulse.commands import doctor
from tests.virtual.clock import NodeClock, VirtualLoop
from tests.virtual.samplers import Samplers
from tests.virtual.world import World


@dataclass(frozen=True)
class Answer:
    """The exit status and the output of one run."""

    code: int
    said: str

    @property
    def document(self) -> dict[str, Any]:
        """The output with `--format=json`."""
        found: dict[str, Any] = json.loads(self.said)
        return found

    def troubles(self) -> list[dict[str, str]]:
        """The findings that are a problem, with `--format=json`."""
        return [finding for finding in self.document["findings"] if finding["level"] not in ("OK", "SKIP")]


def ask_doctor(world: World, clock: NodeClock, tree: Path, ring_dir: Path, *flags: str) -> Answer:
    """What doctor says of a tree; it finds the daemon of this directory, if one runs in this world."""
    loop, samplers = VirtualLoop.of(world), Samplers(world, clock)

    def find(request: FactsRequest) -> Facts:
        return loop.run_until_complete(find_facts(request, clock, samplers.start))

    world.patch(doctor, "find_facts_in_child", find)
    settings = (f"--path.sysfs={tree}", f"--ring.dir={ring_dir}", "--web.listen-address=127.0.0.1:0")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main(["doctor", *settings, *flags])
    return Answer(code, said.getvalue())
