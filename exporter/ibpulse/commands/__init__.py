"""The table of verbs; each verb has its own module, imported only when it runs, to keep help fast.

A verb of two words, such as `fleet report`, is a row of its own. `GROUPS` is the order in which help lists the verbs.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from ibpulse.errors import ConfigError

if TYPE_CHECKING:
    from ibpulse.config import Settings
    from ibpulse.config.declaration import Setting

EVERY_SETTING = ("path", "sampler", "ring", "ports", "analysis", "slow", "topology", "jobs", "web", "capture", "log")
PORTS = ("ports.include", "ports.exclude", "ports.roles")
SAMPLING = ("path", "sampler.interval", "sampler.scheduler", "sampler.cpu", *PORTS, "topology", "slow.interval")
"""Settings read by a verb that samples this node itself."""
GATEWAY_WEB = ("web.listen-address", "web.config.file", "web.hosts")
GATEWAY_CAPTURES = ("capture.before", "capture.after", "capture.allow-unauthenticated")
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

    `settings` lists groups or single names. `reads_files` marks verbs that read files of unknown origin, with bounded
    memory. A verb that `checks_flags` gets what is wrong with their values as `arguments.faults`, and reports it
    together with what is wrong with their combination.
    """

    name: str
    summary: str
    example: str
    settings: tuple[str, ...]
    module: str = ""
    reads_files: bool = False
    checks_flags: bool = False

    def reads(self, row: Setting) -> bool:
        """Whether a setting has an effect on this verb."""
        return row.group in self.settings or row.name in self.settings

    def rows(self) -> list[Setting]:
        """The settings that have an effect, in the order of the table."""
        from ibpulse.config.setting_table import ROWS  # not for the list of commands

        return [row for row in ROWS if self.reads(row)]

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
        ),
        Verb(
            "record",
            "Record the samples of this node or of a running daemon to a file.",
            "ibpulse record run.parquet --duration=60s",
            settings=(*SAMPLING, "analysis.active-threshold", "log"),
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
            settings=(*SAMPLING, "analysis.active-threshold", "web.listen-address"),
        ),
        Verb(
            "report",
            "Compare recordings, files or the recent past of daemons, and flag statistically significant differences.",
            "ibpulse report before.parquet after.parquet --trim",
            settings=("analysis.active-threshold",),
            reads_files=True,
            checks_flags=True,
        ),
        Verb(
            "render",
            "Plot recordings: a heatmap of all rails, an animation, or the distribution of their bandwidth.",
            "ibpulse render dense.parquet moe.parquet -o rails.png",
            settings=("analysis.active-threshold",),
            reads_files=True,
            checks_flags=True,
        ),
        Verb(
            "import",
            "Convert another program's counter log (CSV or Parquet) into a recording.",
            "ibpulse import log.csv.gz -o log.parquet --time=when --port=port --transmit=tx --receive=rx --unit=words",
            settings=(),
            module="import_log",
            reads_files=True,
        ),
        Verb(
            "model",
            "Predict the traffic of a training job from its parallelism and the hardware.",
            "ibpulse model --model=mixtral-8x7b --nodes=2 --step=1444ms",
            settings=("analysis.active-threshold",),
            reads_files=True,
        ),
        Verb(
            "model experts",
            "Show how uneven the loads of experts are, what that costs, and on which rails it shows.",
            "ibpulse model experts loads.csv --ranks=8 --nodes=2",
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
            "Compare results of nccl-tests, rccl-tests, perftest or NCCL Inspector with the hardware and a recording.",
            "ibpulse nccl all_reduce.json --rails=8 --rate=50GB/s --against=run.parquet",
            settings=("analysis.active-threshold",),
            reads_files=True,
        ),
        Verb(
            "trace",
            "Measure exposed communication in profiler traces; with a recording, split it into waiting and moving.",
            "ibpulse trace rank0.json.gz --against=node7.parquet",
            settings=("analysis.active-threshold",),
            reads_files=True,
            checks_flags=True,
        ),
        Verb(
            "fleet collect",
            "Collect the samples of many nodes into a dataset of Parquet files.",
            "ibpulse fleet collect --nodes.sources=/etc/ibpulse/nodes.yml --last=10m -o /data/fleet",
            settings=("nodes", "log"),
            reads_files=True,
            checks_flags=True,
        ),
        Verb(
            "fleet report",
            "Report who is late, which rails are hot and what stalled, from a dataset of many nodes.",
            "ibpulse fleet report /data/fleet --job=1001 --format=html > fleet.html",
            settings=(),
            reads_files=True,
            checks_flags=True,
        ),
        Verb(
            "fleet render",
            "Plot a dataset of many nodes: nodes over time, nodes and rails, or lateness over time.",
            "ibpulse fleet render /data/fleet -o waterfall.png --sort=rack",
            settings=(),
            reads_files=True,
            checks_flags=True,
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


GROUPS: dict[str, tuple[str, ...]] = {
    "look": ("demo", "top", "doctor"),
    "run": ("serve", "gateway", "config", "completion"),
    "record and compare": ("record", "replay", "import", "report", "render"),
    "explain": ("trace", "model", "model experts", "model check", "nccl"),
    "many nodes": ("fleet collect", "fleet report", "fleet render"),
}
DEVELOP: dict[str, tuple[str, ...]] = {"develop": ("simulate",)}
"""Verbs that only `ibpulse --help-all` lists."""
OTHER_WORDS = {"compare": "report", "plot": "render"}
"""Words of other programs for our verbs."""
START = "start here: `ibpulse demo` simulates a node and serves its page at http://localhost:10055/"


def overview(*, every: bool = False) -> str:
    """The text of `ibpulse --help`, and with `every` that of `ibpulse --help-all`."""
    groups = {title: [VERBS[name] for name in names] for title, names in (GROUPS | (DEVELOP if every else {})).items()}
    return (
        f"usage: ibpulse COMMAND [argument ...]\n\n{DESCRIPTION}\n\n{START}\n\n{_list_verbs(groups)}\n\n"
        "`ibpulse COMMAND --help` lists the arguments of a command; `--help-all` lists its settings as well.\n"
        "`ibpulse --version` prints the version.\n"
    )


def group_overview(word: str) -> str:
    """The text of `ibpulse WORD --help` for the first word of several verbs; empty if it is none."""
    verbs = _two_words(word)
    if word in VERBS or not verbs:
        return ""
    listed = _list_verbs({"commands": verbs})
    return f"usage: ibpulse {word} COMMAND [argument ...]\n\n{listed}\n\nexample: {verbs[0].example}\n"


def _list_verbs(groups: Mapping[str, Sequence[Verb]]) -> str:
    width = max(len(verb.name) for verbs in groups.values() for verb in verbs)
    return "\n\n".join(
        "\n".join([f"{title}:", *(f"  {verb.name:{width}}  {verb.summary}" for verb in verbs)])
        for title, verbs in groups.items()
    )


def _two_words(word: str) -> list[Verb]:
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
    name = two if words[0] not in VERBS and _two_words(words[0]) else words[0]
    return find_verb(name), words[1:]


def find_verb(name: str) -> Verb:
    """The verb of that name.

    Raises:
        ConfigError: no verb has that name.
    """
    if name not in VERBS:
        from ibpulse.base.values import advice  # not for the list of commands

        if meant := OTHER_WORDS.get(name) or next((verb for verb in VERBS if verb.endswith(f" {name}")), None):
            raise ConfigError([f"{name}: no such command; did you mean {meant}?"])
        group = [verb.name for verb in _two_words(name.split()[0])] if name else []
        known = group or [*VERBS, "help", "version"]
        way_out = advice(name, known, f"choose {', '.join(group or VERBS)}")
        raise ConfigError([f"{name}: no such command; {way_out}"])
    return VERBS[name]
