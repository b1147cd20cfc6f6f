"""The table of verbs; each verb has its own module, imported only when it runs, to keep help fast."""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from ibpulse.errors import ConfigError

if TYPE_CHECKING:
    from ibpulse.config import Settings
    from ibpulse.config.setting_table import DeprecatedSetting, SettingRow

EVERY_SETTING = ("path", "sampler", "ring", "ports", "analysis", "slow", "topology", "jobs", "web", "capture", "log")
PORTS = ("ports.include", "ports.exclude", "ports.rails", "ports.roles")
SAMPLING = ("path", "sampler.interval", "sampler.scheduler", "sampler.cpu", *PORTS, "topology", "slow.interval")
"""Settings read by a verb that samples this node itself."""
GATEWAY_WEB = ("web.listen-address", "web.config.file", "web.hosts")
DOCTOR = ("analysis.active-threshold", "capture.dir", "capture.min-free")
DESCRIPTION = "Shows the traffic of every InfiniBand and RoCE port of this node, every 10 ms."


class Command(Protocol):
    """The interface of a verb's module. Slow imports belong inside `run`, so that help stays fast."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's own arguments; the settings' flags are already declared."""

    def run(self, arguments: argparse.Namespace, settings: Settings) -> int:
        """Run the verb and return the exit code. `arguments.origins` maps each setting to the source of its value.

        Raises:
            IbpulseError: the verb failed; the command line prints the message.
        """


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its line in `ibpulse --help`, its example, and the settings it reads.

    `settings` lists groups or single names. The remaining flags of the groups in `ignored` have no effect; they are
    accepted with a warning, because version 0.1 accepted them. `reads_files` marks verbs that read files of unknown
    origin, with bounded memory.
    """

    name: str
    summary: str
    example: str
    settings: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    module: str = ""
    reads_files: bool = False

    def reads(self, row: SettingRow) -> bool:
        """Whether a setting has an effect on this verb."""
        return row.group in self.settings or row.name in self.settings

    def rows(self) -> list[SettingRow]:
        """The settings that have an effect, in the order of the table."""
        from ibpulse.config.setting_table import ROWS  # not for the list of commands

        return [row for row in ROWS if self.reads(row)]

    def ignored_rows(self) -> list[SettingRow]:
        """The settings whose flags are accepted without an effect."""
        from ibpulse.config.setting_table import ROWS  # not for the list of commands

        return [row for row in ROWS if row.group in self.ignored and not self.reads(row)]

    def deprecated(self) -> list[DeprecatedSetting]:
        """The settings of version 0.1 whose flags are still accepted, with a warning."""
        from ibpulse.config.setting_table import DEPRECATED  # not for the list of commands

        groups = {name.partition(".")[0] for name in (*self.settings, *self.ignored)}
        return [old for old in DEPRECATED if old.group in groups]

    def load(self) -> Command:
        """Import the verb's module; its name differs from the verb's only where that is a Python keyword."""
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
            "gateway",
            "Serve the pages and the data of many nodes at one address.",
            "ibpulse gateway --nodes.sources=dns+ibpulse.monitoring.svc:10055",
            settings=("nodes", *GATEWAY_WEB, "capture.allow-unauthenticated", "log"),
        ),
        Verb(
            "simulate",
            "Simulate a fabric as a sysfs tree whose counters advance in real time; starts no daemon.",
            "ibpulse simulate /tmp/fabric --workload=dense",
            settings=("log",),
        ),
        Verb(
            "doctor",
            "Check whether this node's measurements can be trusted; works with or without a running daemon.",
            "ibpulse doctor --path.sysfs=/host/sys --format=json",
            settings=("path", "sampler", "ring", *PORTS, "topology", "web.listen-address", *DOCTOR),
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
            "Replay a recording as a sysfs tree that advances in real time, or faster.",
            "ibpulse replay run.parquet /tmp/fabric --speed=10",
            settings=("log",),
            reads_files=True,
        ),
        Verb(
            "top",
            "Show a live view of this node's rails in the terminal.",
            "ibpulse top --url=http://node7:10055",
            settings=(*SAMPLING, "analysis.active-threshold", "analysis.timescales", "web.listen-address"),
            ignored=EVERY_SETTING,
        ),
        Verb(
            "report",
            "Compare recordings side by side and flag statistically significant differences.",
            "ibpulse report before.parquet after.parquet --trim",
            settings=("analysis.active-threshold",),
            ignored=("analysis", "log"),
            reads_files=True,
        ),
        Verb(
            "render",
            "Plot recordings: a heatmap of all rails, an animation, or the distribution of their bandwidth.",
            "ibpulse render dense.parquet moe.parquet -o rails.png",
            settings=("analysis.active-threshold",),
            ignored=("analysis", "log"),
            reads_files=True,
        ),
        Verb(
            "import",
            "Convert another program's counter log (CSV or Parquet) into a recording.",
            "ibpulse import log.csv.gz -o log.parquet --time=when --port=port --transmit=tx --receive=rx --unit=words",
            settings=(),
            ignored=("log",),
            module="import_log",
            reads_files=True,
        ),
        Verb(
            "config",
            "Check the configuration and show where each value comes from, or print the resulting configuration file.",
            "ibpulse config print --config.file=/etc/ibpulse.yaml --sampler.history=10m",
            settings=(*EVERY_SETTING, "nodes"),
        ),
    )
}


def overview() -> str:
    """The text of `ibpulse --help`."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb.name:{width}}  {verb.summary}" for verb in VERBS.values())
    return (
        f"usage: ibpulse COMMAND [argument ...]\n\n{DESCRIPTION}\n\ncommands:\n{verbs}\n\n"
        "`ibpulse COMMAND --help` lists the arguments of a command; `--help-all` lists its settings as well.\n"
        "`ibpulse --version` prints the version.\n\n"
        f"example: {VERBS['demo'].example}\n"
    )


def find_verb(name: str) -> Verb:
    """The verb of that name.

    Raises:
        ConfigError: no verb has that name.
    """
    if name not in VERBS:
        from ibpulse.config.setting_table import advice  # not for the list of commands

        way_out = advice(name, (*VERBS, "help", "version"), f"choose {', '.join(VERBS)}")
        raise ConfigError([f"{name}: no such command; {way_out}"])
    return VERBS[name]
