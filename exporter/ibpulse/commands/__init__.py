"""The table of verbs; the options of each are data, and its module is imported only when it runs: help is fast.

A verb of two words, such as `fleet report`, is a row of its own. `GROUPS` is the order in which help lists the verbs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import Namespace

    from ibpulse.agent.config import Settings

EVERY_SETTING = ("path", "sampler", "ring", "ports", "analysis", "slow", "topology", "jobs", "web", "capture", "log")
PORTS = ("ports.include", "ports.exclude", "ports.roles", "ports.sources")
SAMPLING = ("path", "sampler.interval", "sampler.scheduler", "sampler.cpu", *PORTS, "topology", "slow.interval")
"""Settings read by a verb that samples this node itself."""
GATEWAY_WEB = ("web.listen-address", "web.config.file", "web.hosts")
GATEWAY_CAPTURES = ("capture.before", "capture.after", "capture.allow-unauthenticated")
DOCTOR = ("analysis.active-threshold", "capture.dir", "capture.min-free")
DESCRIPTION = "Shows the traffic of every InfiniBand and RoCE port of this node, every 10 ms."


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its line in `ibpulse --help`, its example, and the settings it reads.

    `runs` names its module and function, `options` the module with the table of its options; the former is imported
    only when the verb runs. With one of the arguments in `variants`, the function named there runs instead, because it
    needs much more. `settings` lists groups or single names; log messages go to standard error if `log` is one of
    them. `reads_files` marks verbs that read files of unknown origin, with bounded memory, and `writes_files` those
    that write recordings. A verb that `checks_flags` gets what is wrong with their values as `arguments.faults`, and
    reports it together with what is wrong with their combination.
    """

    name: str
    summary: str
    example: str
    options: str
    runs: str
    settings: tuple[str, ...] = ()
    reads_files: bool = False
    writes_files: bool = False
    checks_flags: bool = False
    variants: Mapping[str, str] = field(default_factory=dict)

    def load_options(self) -> Sequence[Any]:
        """The table of its options."""
        options: Sequence[Any] = _load(f"options.{self.options}").OPTIONS[self.name]
        return options

    def run(self, arguments: Namespace, settings: Settings) -> int:
        """Run it and return the exit code. `arguments.origins` maps each setting to the source of its value.

        Raises:
            IbpulseError: it failed; `ibpulse.cli` prints the message.
            ModuleNotFoundError: a package that it needs is not installed.
        """
        variant = next((other for name, other in self.variants.items() if getattr(arguments, name)), self.runs)
        module, _, function = variant.partition(".")
        code: int = getattr(_load(module), function)(arguments, settings)
        return code


def _load(module: str) -> Any:
    return importlib.import_module(f"{__name__}.{module}")


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "serve",
            "Sample every port of this node; serve /metrics and the raw samples.",
            "ibpulse serve --sampler.interval=10ms --ports.exclude=mlx5_bond_0",
            settings=EVERY_SETTING,
            options="look",
            runs="serve.run",
        ),
        Verb(
            "demo",
            "Serve a simulated fabric with a simulated training job; needs no hardware.",
            "ibpulse demo --workload=moe --web.listen-address=127.0.0.1:10055",
            settings=tuple(group for group in EVERY_SETTING if group not in ("path", "ring")),
            options="look",
            runs="demo.run_demo",
        ),
        Verb(
            "gateway",
            "Serve the pages and the data of many nodes at one address.",
            "ibpulse gateway --nodes.sources=dns+ibpulse.monitoring.svc:10055",
            settings=("nodes", "gateway", *GATEWAY_WEB, *GATEWAY_CAPTURES, "log"),
            options="look",
            runs="gateway.run",
            variants={"demo": "demo.run_gateway"},
        ),
        Verb(
            "simulate",
            "Simulate a fabric as a sysfs tree whose counters advance in real time; starts no daemon.",
            "ibpulse simulate /tmp/fabric --workload=dense",
            settings=("log",),
            options="look",
            runs="simulate.run_simulate",
        ),
        Verb(
            "doctor",
            "Check whether this node's measurements can be trusted; works with or without a running daemon.",
            "ibpulse doctor --path.sysfs=/host/sys --format=json",
            settings=("path", "sampler", "ring", *PORTS, "topology", "web.listen-address", *DOCTOR),
            options="look",
            runs="doctor.run",
        ),
        Verb(
            "record",
            "Record the samples of this node or of a running daemon to a file.",
            "ibpulse record run.parquet --duration=60s",
            settings=(*SAMPLING, "analysis.active-threshold", "log"),
            options="record",
            runs="record.run_record",
            writes_files=True,
        ),
        Verb(
            "replay",
            "Replay a recording as a sysfs tree that advances in real time, or faster.",
            "ibpulse replay run.parquet /tmp/fabric --speed=10",
            settings=("log",),
            options="record",
            runs="replay.run_replay",
            reads_files=True,
        ),
        Verb(
            "top",
            "Show a live view of this node's rails in the terminal.",
            "ibpulse top --url=http://node7:10055",
            settings=(*SAMPLING, "analysis.active-threshold", "web.listen-address"),
            options="look",
            runs="top.run",
        ),
        Verb(
            "report",
            "Compare recordings, files or the recent past of daemons, and flag statistically significant differences.",
            "ibpulse report before.parquet after.parquet --trim",
            settings=("analysis.active-threshold",),
            options="record",
            runs="compare.run_report",
            reads_files=True,
            checks_flags=True,
        ),
        Verb(
            "render",
            "Plot recordings: a heatmap of all rails, an animation, or the distribution of their bandwidth.",
            "ibpulse render dense.parquet moe.parquet -o rails.png",
            settings=("analysis.active-threshold",),
            options="record",
            runs="compare.run_render",
            reads_files=True,
            checks_flags=True,
        ),
        Verb(
            "import",
            "Convert another program's counter log (CSV or Parquet) into a recording.",
            "ibpulse import log.csv.gz -o log.parquet --time=when --port=port --transmit=tx --receive=rx --unit=words",
            options="record",
            runs="record.run_import",
            reads_files=True,
        ),
        Verb(
            "model",
            "Predict the traffic of a training job from its parallelism and the hardware.",
            "ibpulse model --model=mixtral-8x7b --nodes=2 --step=1444ms",
            settings=("analysis.active-threshold",),
            options="explain",
            runs="model.run_model",
            reads_files=True,
            variants=dict.fromkeys(("against", "url", "last"), "model_measured.run"),
        ),
        Verb(
            "model experts",
            "Show how uneven the loads of experts are, what that costs, and on which rails it shows.",
            "ibpulse model experts loads.csv --ranks=8 --nodes=2",
            options="explain",
            runs="model.run_experts",
            reads_files=True,
        ),
        Verb(
            "model check",
            "Check the configuration of a Megatron run against the rules about overlap.",
            "ibpulse model check run_config.yaml --set torch=2.6.0",
            options="explain",
            runs="explain.run_check",
            reads_files=True,
        ),
        Verb(
            "nccl",
            "Compare results of nccl-tests, rccl-tests, perftest or NCCL Inspector with the hardware and a recording.",
            "ibpulse nccl all_reduce.json --rails=8 --rate=50GB/s --against=run.parquet",
            settings=("analysis.active-threshold",),
            options="explain",
            runs="explain.run_nccl",
            reads_files=True,
        ),
        Verb(
            "trace",
            "Measure exposed communication in profiler traces; with a recording, split it into waiting and moving.",
            "ibpulse trace rank0.json.gz --against=node7.parquet",
            settings=("analysis.active-threshold",),
            options="explain",
            runs="explain.run_trace",
            reads_files=True,
            checks_flags=True,
        ),
        Verb(
            "fleet collect",
            "Collect the samples of many nodes into a dataset of Parquet files.",
            "ibpulse fleet collect --nodes.sources=/etc/ibpulse/nodes.yml --last=10m -o /data/fleet",
            settings=("nodes", "log"),
            options="explain",
            runs="fleet.run_collect",
            reads_files=True,
            writes_files=True,
            checks_flags=True,
        ),
        Verb(
            "fleet report",
            "Report who is late, which rails are hot and what stalled, from a dataset of many nodes.",
            "ibpulse fleet report /data/fleet --job=1001 --format=html > fleet.html",
            options="explain",
            runs="fleet.run_report",
            reads_files=True,
            checks_flags=True,
        ),
        Verb(
            "fleet render",
            "Plot a dataset of many nodes: nodes over time, nodes and rails, or lateness over time.",
            "ibpulse fleet render /data/fleet -o waterfall.png --sort=rack",
            options="explain",
            runs="fleet.run_render",
            reads_files=True,
            checks_flags=True,
        ),
        Verb(
            "config",
            "Check the configuration and show where each value comes from, or print the resulting configuration file.",
            "ibpulse config print --config.file=/etc/ibpulse.yaml --sampler.history=10m",
            settings=(*EVERY_SETTING, "nodes", "gateway"),
            options="look",
            runs="config.run_config",
        ),
        Verb(
            "completion",
            "Print a script with which bash, zsh or fish completes commands, flags and file names.",
            "ibpulse completion bash > ~/.local/share/bash-completion/completions/ibpulse",
            options="look",
            runs="config.run_completion",
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
    verbs = verbs_of(word)
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


def verbs_of(word: str) -> list[Verb]:
    """The verbs of two words that begin with this one."""
    return [verb for name, verb in VERBS.items() if name.startswith(f"{word} ")]
