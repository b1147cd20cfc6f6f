"""The table of verbs; each verb has its own module, imported only when it runs, to keep help fast.

A verb of two words, such as `overlap trace`, is a row of its own. Verbs with the same first word form a group.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Sequence
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
GATEWAY_CAPTURES = ("capture.before", "capture.after", "capture.cooldown", "capture.allow-unauthenticated")
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
        module = self.module or self.name.replace(" ", "_")
        return cast("Command", importlib.import_module(f"ibpulse.commands.{module}"))


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
            settings=("nodes", *GATEWAY_WEB, *GATEWAY_CAPTURES, "log"),
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
            "model",
            "Predict the traffic of a training job from its parallelism and the hardware.",
            "ibpulse model --model=mixtral-8x7b --nodes=2 --step=1444ms",
            settings=("analysis.active-threshold",),
            ignored=("analysis", "log"),
            reads_files=True,
        ),
        Verb(
            "model skew",
            "Show how uneven the loads of experts are, what that costs, and on which rails it shows.",
            "ibpulse model skew loads.csv --ranks=8 --nodes=2",
            settings=(),
            reads_files=True,
        ),
        Verb(
            "model check",
            "Check the configuration of a Megatron run against the rules about overlap.",
            "ibpulse model check run_config.yaml --set torch=2.6.0",
            settings=(),
            reads_files=True,
        ),
        Verb(
            "nccl",
            "Compare results of nccl-tests, perftest or NCCL Inspector with the hardware and with a recording.",
            "ibpulse nccl all_reduce.json --rails=8 --rate=50GB/s --against=run.parquet",
            settings=("analysis.active-threshold",),
            ignored=("analysis", "log"),
            reads_files=True,
        ),
        Verb(
            "overlap trace",
            "Measure exposed communication in profiler traces; with a recording, split it into waiting and moving.",
            "ibpulse overlap trace rank0.json.gz --against=node7.parquet",
            settings=("analysis.active-threshold",),
            reads_files=True,
        ),
        Verb(
            "overlap compare",
            "Compare the steps of a job before and after a change, with the bounds that the wire sets.",
            "ibpulse overlap compare before.parquet after.parquet --trim",
            settings=("analysis.active-threshold",),
            ignored=("analysis", "log"),
            reads_files=True,
        ),
        Verb(
            "fleet collect",
            "Collect the samples of many nodes into a dataset of Parquet files.",
            "ibpulse fleet collect --nodes.sources=/etc/ibpulse/nodes.yml --last=10m -o /data/fleet",
            settings=("nodes", "log"),
            reads_files=True,
        ),
        Verb(
            "fleet report",
            "Report who is late, which rails are hot and what stalled, from a dataset of many nodes.",
            "ibpulse fleet report /data/fleet --job=1001 --format=html > fleet.html",
            settings=(),
            reads_files=True,
        ),
        Verb(
            "fleet render",
            "Plot a dataset of many nodes: nodes over time, nodes and rails, or lateness over time.",
            "ibpulse fleet render /data/fleet -o waterfall.png --sort=rack",
            settings=(),
            reads_files=True,
        ),
        Verb(
            "config",
            "Check the configuration and show where each value comes from, or print the resulting configuration file.",
            "ibpulse config print --config.file=/etc/ibpulse.yaml --sampler.history=10m",
            settings=(*EVERY_SETTING, "nodes"),
        ),
        Verb(
            "completion",
            "Print a script with which bash, zsh or fish completes commands, flags and file names.",
            "ibpulse completion bash > ~/.local/share/bash-completion/completions/ibpulse",
            settings=(),
        ),
    )
}


def overview() -> str:
    """The text of `ibpulse --help`."""
    return (
        f"usage: ibpulse COMMAND [argument ...]\n\n{DESCRIPTION}\n\n{_list_verbs(VERBS.values())}\n\n"
        "`ibpulse COMMAND --help` lists the arguments of a command; `--help-all` lists its settings as well.\n"
        "`ibpulse --version` prints the version.\n\n"
        f"example: {VERBS['demo'].example}\n"
    )


def group_overview(word: str) -> str:
    """The text of `ibpulse WORD --help` for the first word of several verbs; empty if it is none."""
    verbs = _group(word)
    if word in VERBS or not verbs:
        return ""
    return f"usage: ibpulse {word} COMMAND [argument ...]\n\n{_list_verbs(verbs)}\n\nexample: {verbs[0].example}\n"


def _list_verbs(verbs: Iterable[Verb]) -> str:
    chosen = list(verbs)
    width = max(len(verb.name) for verb in chosen)
    return "\n".join(["commands:", *(f"  {verb.name:{width}}  {verb.summary}" for verb in chosen)])


def _group(word: str) -> list[Verb]:
    """The verbs of two words that begin with this one."""
    return [verb for name, verb in VERBS.items() if name.startswith(f"{word} ")]


def split_verb(words: Sequence[str]) -> tuple[Verb, Sequence[str]]:
    """The verb that the first two words name, or else the first one, and the words after it.

    Raises:
        ConfigError: no verb has that name.
    """
    two = " ".join(words[:2])
    if len(words) > 1 and two in VERBS:
        return VERBS[two], words[2:]
    name = two if words[0] not in VERBS and _group(words[0]) else words[0]
    return find_verb(name), words[1:]


def find_verb(name: str) -> Verb:
    """The verb of that name.

    Raises:
        ConfigError: no verb has that name.
    """
    if name not in VERBS:
        from ibpulse.config.setting_table import advice  # not for the list of commands

        group = [verb.name for verb in _group(name.split()[0])] if name else []
        known = group or [*VERBS, "help", "version"]
        way_out = advice(name, known, f"choose {', '.join(group or VERBS)}")
        raise ConfigError([f"{name}: no such command; {way_out}"])
    return VERBS[name]
