"""The verbs of the command line, one module each: the only room that wires parts together.

This file holds their list and what a verb's module must offer. It must import no verb: help texts must be quick.
"""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from ibpulse.config.table import GROUPS

if TYPE_CHECKING:
    from ibpulse.config import Settings


class Command(Protocol):
    """What the module of a verb offers. It imports what is heavy inside `run`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments that are the verb's own; the settings' flags are there already."""

    def run(self, arguments: argparse.Namespace, settings: Settings) -> int:
        """Do it; the exit code. `arguments.origins` has, by the name of each setting, the place that gave it.

        Raises:
            IbpulseError: what went wrong, in a sentence; the command line prints it.
        """


@dataclass(frozen=True, slots=True)
class Verb:
    """One line of `ibpulse --help`, what its own help adds, and the groups of settings that it takes as flags."""

    name: str
    summary: str
    example: str
    groups: tuple[str, ...] = tuple(GROUPS)
    module: str = ""

    def load(self) -> Command:
        """The module that does it: the one of its name, unless that is a word of the language."""
        return cast("Command", importlib.import_module(f"ibpulse.commands.{self.module or self.name}"))


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "serve",
            "Sample every port of this node; serve /metrics and the raw samples.",
            "ibpulse serve --sampler.interval=10ms --ports.exclude=mlx5_bond_0",
        ),
        Verb(
            "demo",
            "Serve a simulated fabric under a simulated training job; no hardware is needed.",
            "ibpulse demo --workload=moe --web.listen-address=127.0.0.1:10055",
        ),
        Verb(
            "simulate",
            "Write a simulated fabric as a sysfs tree that advances in real time, and nothing else.",
            "ibpulse simulate /tmp/fabric --workload=dense",
            groups=("log",),
        ),
        Verb(
            "doctor",
            "Tell whether this node's numbers can be trusted, and what to do; needs no daemon and disturbs none.",
            "ibpulse doctor --path.sysfs=/host/sys --format=json",
        ),
        Verb(
            "record",
            "Record the samples of this node, or of a running daemon, into a file.",
            "ibpulse record run.parquet --duration=60s",
        ),
        Verb(
            "replay",
            "Write a recording as a sysfs tree that advances in real time, or faster.",
            "ibpulse replay run.parquet /tmp/fabric --speed=10",
            groups=("log",),
        ),
        Verb(
            "top",
            "Show the rails and the node's numbers live in this terminal.",
            "ibpulse top --url=http://node7:10055",
        ),
        Verb(
            "report",
            "Print the statistics of recordings side by side, with what differs beyond the noise.",
            "ibpulse report before.parquet after.parquet --trim",
            groups=("analysis", "log"),
        ),
        Verb(
            "render",
            "Draw recordings: a heatmap of all rails, an animation, or the distribution of their bandwidth.",
            "ibpulse render dense.parquet moe.parquet -o rails.png",
            groups=("analysis", "log"),
        ),
        Verb(
            "import",
            "Turn the counter log of another program, CSV or Parquet, into a recording.",
            "ibpulse import log.csv.gz -o log.parquet --time=when --port=port --transmit=tx --receive=rx --unit=words",
            groups=("log",),
            module="import_log",
        ),
        Verb(
            "config",
            "Check the configuration and say where each value came from, or print it as a file.",
            "ibpulse config print --config.file=/etc/ibpulse.yaml --sampler.history=10m",
        ),
    )
}
