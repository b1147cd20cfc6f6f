"""The verbs of the command line, one module each, and the list of them.

This file imports no verb, so that help is quick.
"""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from ibpulse.errors import ConfigError

if TYPE_CHECKING:
    from ibpulse.config import Settings
    from ibpulse.config.table import DeprecatedSetting, SettingRow


class Command(Protocol):
    """What the module of a verb offers. It imports what is heavy inside `run`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments that are the verb's own; the settings' flags are there already."""

    def run(self, arguments: argparse.Namespace, settings: Settings) -> int:
        """Do it; the exit code. `arguments.origins` has, by the name of each setting, the place that gave it.

        Raises:
            IbpulseError: what went wrong, in a sentence; the command line prints it.
        """


EVERY_SETTING = ("path", "sampler", "ring", "ports", "analysis", "slow", "topology", "web", "capture", "log")
SAMPLING = ("path", "sampler.interval", "sampler.scheduler", "sampler.cpu", "ports", "topology", "slow.interval")
"""What a verb reads that samples this node by itself."""
DOCTOR = ("analysis.active-threshold", "capture.dir", "capture.min-free")


@dataclass(frozen=True, slots=True)
class Verb:
    """One line of `ibpulse --help`, what its own help adds, and the settings that it reads.

    `settings` are whole groups or single names. The other flags of the groups in `ignored` are accepted with a warning
    that they have no effect, because version 0.1 accepted them.
    """

    name: str
    summary: str
    example: str
    settings: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    module: str = ""

    def reads(self, row: SettingRow) -> bool:
        """Whether a setting has an effect on this verb."""
        return row.group in self.settings or row.name in self.settings

    def rows(self) -> list[SettingRow]:
        """The settings that have an effect, in the order of the table."""
        from ibpulse.config.table import ROWS  # not for the list of commands

        return [row for row in ROWS if self.reads(row)]

    def ignored_rows(self) -> list[SettingRow]:
        """The settings whose flags are accepted without an effect."""
        from ibpulse.config.table import ROWS  # not for the list of commands

        return [row for row in ROWS if row.group in self.ignored and not self.reads(row)]

    def deprecated(self) -> list[DeprecatedSetting]:
        """The settings of version 0.1 whose flags are still accepted, with a warning."""
        from ibpulse.config.table import DEPRECATED  # not for the list of commands

        groups = {name.partition(".")[0] for name in (*self.settings, *self.ignored)}
        return [old for old in DEPRECATED if old.group in groups]

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
            settings=EVERY_SETTING,
        ),
        Verb(
            "demo",
            "Serve a simulated fabric with a simulated training job; needs no hardware.",
            "ibpulse demo --workload=moe --web.listen-address=127.0.0.1:10055",
            settings=tuple(group for group in EVERY_SETTING if group not in ("path", "ring")),
            ignored=EVERY_SETTING,
        ),
        Verb(
            "simulate",
            "Only write a simulated fabric as a sysfs tree that advances in real time.",
            "ibpulse simulate /tmp/fabric --workload=dense",
            settings=("log",),
        ),
        Verb(
            "doctor",
            "Check whether this node's measurements can be trusted and how to fix problems. Works with or without a "
            "running daemon.",
            "ibpulse doctor --path.sysfs=/host/sys --format=json",
            settings=("path", "sampler", "ring", "ports", "topology", "web.listen-address", *DOCTOR),
            ignored=EVERY_SETTING,
        ),
        Verb(
            "record",
            "Record the samples of this node or of a running daemon to a file.",
            "ibpulse record run.parquet --duration=60s",
            settings=(*SAMPLING, "analysis.active-threshold", "log"),
            ignored=EVERY_SETTING,
        ),
        Verb(
            "replay",
            "Write a recording as a sysfs tree that advances in real time, or faster.",
            "ibpulse replay run.parquet /tmp/fabric --speed=10",
            settings=("log",),
        ),
        Verb(
            "top",
            "Show a live view of the rails and the node's numbers in this terminal.",
            "ibpulse top --url=http://node7:10055",
            settings=(*SAMPLING, "analysis.active-threshold", "analysis.timescales", "web.listen-address"),
            ignored=EVERY_SETTING,
        ),
        Verb(
            "report",
            "Print the statistics of recordings side by side, and flag significant differences.",
            "ibpulse report before.parquet after.parquet --trim",
            settings=("analysis.active-threshold",),
            ignored=("analysis", "log"),
        ),
        Verb(
            "render",
            "Plot recordings: a heatmap of all rails, an animation, or the distribution of their bandwidth.",
            "ibpulse render dense.parquet moe.parquet -o rails.png",
            settings=("analysis.active-threshold",),
            ignored=("analysis", "log"),
        ),
        Verb(
            "import",
            "Convert the counter log of another program, CSV or Parquet, into a recording.",
            "ibpulse import log.csv.gz -o log.parquet --time=when --port=port --transmit=tx --receive=rx --unit=words",
            settings=(),
            ignored=("log",),
            module="import_log",
        ),
        Verb(
            "config",
            "Check the configuration and show where each value comes from, or print it as a file.",
            "ibpulse config print --config.file=/etc/ibpulse.yaml --sampler.history=10m",
            settings=EVERY_SETTING,
        ),
    )
}

DESCRIPTION = "Shows what every InfiniBand and RoCE port of this node does, every 10 ms."


def overview() -> str:
    """The text of `ibpulse --help`."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb.name:{width}}  {verb.summary}" for verb in VERBS.values())
    return (
        f"usage: ibpulse COMMAND [argument ...]\n\n{DESCRIPTION}\n\ncommands:\n{verbs}\n\n"
        "`ibpulse COMMAND --help` lists the arguments of a command, `--help-all` its settings too.\n"
        "`ibpulse --version` prints the version.\n\n"
        f"example: {VERBS['demo'].example}\n"
    )


def find_verb(name: str) -> Verb:
    """The verb of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in VERBS:
        from ibpulse.config.table import advice  # not for the list of commands

        way_out = advice(name, (*VERBS, "help", "version"), f"choose {', '.join(VERBS)}")
        raise ConfigError([f"{name}: no such command; {way_out}"])
    return VERBS[name]
