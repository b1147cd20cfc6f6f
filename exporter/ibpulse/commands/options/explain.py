"""The options of the verbs that explain traffic, and of those about many nodes."""

from __future__ import annotations

import os
from pathlib import Path

from ibpulse.base.values import ANY_WHOLE, INSTANT, REGULAR_EXPRESSION, SHIFT, SOME_RATE, SOME_TIME, number, whole
from ibpulse.commands.options import Option, against_options, format_option, recording_or_address
from ibpulse.workbench.models.inputs import KEYS
from ibpulse.workbench.pictures.options import THEMES

LAST = "5m"
MAX_PROCESSES = 256
FLEET_PICTURES = ("waterfall", "rails", "lateness")
ORDERS = ("lateness", "rack", "name")
WIDTH, DPI = 2000, 200

CHOICE = (
    Option("dataset", type=Path, metavar="DATASET", help="Directory that `ibpulse fleet collect` wrote."),
    Option("--job", default="", metavar="ID", help="Only the parts collected for this job."),
    Option("--from", dest="begin", type=INSTANT, help="Begin at this wall-clock time, such as 2026-11-21T12:00:00Z."),
    Option("--to", dest="end", type=INSTANT, help="End at this wall-clock time."),
)
"""The dataset, and the part of it."""
UNITS = ("MiB/s", "Gb/s")
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv", "broadcast", "reduce"]
ALGORITHMS = ("ring", "tree", "hierarchical", "collnet")
COUNT = whole(1, 1_000_000)
MAX_RANKS = 1_000_000

OPTIONS = {
    "trace": (
        Option(
            "files",
            type=Path,
            nargs="+",
            metavar="TRACE",
            help="Traces of the PyTorch profiler (Kineto JSON, plain or gzip), one per rank; SQLite exports of Nsight "
            "Systems; rocpd databases of ROCm.",
        ),
        Option("--against", type=Path, metavar="RECORDING", help="Recording of the same node at that time."),
        Option(
            "--port",
            repeated=True,
            metavar="PORT",
            help="Port or device of the recording, such as mlx5_0:1; repeatable (default: the rails).",
        ),
        Option(
            "--shift",
            type=SHIFT,
            help="Add this to the times of the recording instead of searching for the offset of the clocks: 10.5ms if "
            "its wire leads the trace by it, -10.5ms if it trails.",
        ),
        Option(
            "--communication",
            repeated=True,
            type=REGULAR_EXPRESSION,
            help="Further kernel names that are communication, as a regular expression; repeatable.",
        ),
        Option(
            "--gpus-per-node",
            type=whole(1, 1_000_000),
            help="Ranks per node, to find communicators inside a node (default: the GPUs that the trace lists).",
        ),
        Option("--format", choices=("text", "json"), default="text", help="Output format (default: text)."),
        Option(
            "-o",
            "--output",
            type=Path,
            metavar="OUT",
            help="Trace with the rails, and what is exposed, below its kernels, for Perfetto (.json.gz, .json).",
        ),
    ),
    "model": (
        Option(
            "file",
            type=Path,
            nargs="?",
            metavar="FILE",
            help="The job: YAML of such inputs, config.json, run_config.yaml or a file with MODEL_ARGS.",
        ),
        *(
            Option(
                f"--{key.name}",
                metavar=key.kind.metavar,
                help=f"{key.sentence}{f'; {key.default} by default.' if key.default else ''}",
            )
            for key in KEYS.values()
            if key.flag
        ),
        *against_options("Recording of a node to compare with."),
        format_option("text", "json"),
        Option("-o", "--output", type=Path, metavar="OUT", help="Also draw two steps into this file, .png or .svg."),
    ),
    "model experts": (
        Option("file", type=Path, metavar="FILE", help="Loads as CSV: a row per layer (or time), a column per expert."),
        Option("--ranks", type=whole(2, MAX_RANKS), help="Expert-parallel ranks (default: one for each expert)."),
        Option("--nodes", type=whole(1, MAX_RANKS), help="Nodes of these ranks (default: unknown)."),
        Option(
            "--placement",
            type=Path,
            metavar="FILE",
            help="CSV with the expert in each slot, rank by rank, a row per layer (default: consecutive experts).",
        ),
        Option(
            "--tokens",
            type=number(0, 1e18, "COUNT", "4096", some=True),
            help="Token copies of a row (default: its sum, if all loads are whole numbers).",
        ),
        Option("--exchange", type=SOME_TIME, help="Time of a step's token exchanges with even loads, such as 120ms."),
        Option("--step", type=SOME_TIME, help="Time of a step."),
        format_option("text", "json"),
    ),
    "model check": (
        Option(
            "file",
            type=Path,
            metavar="FILE",
            help="run_config.yaml of Megatron-Bridge, or a YAML or JSON file with MODEL_ARGS of Megatron-LM.",
        ),
        Option(
            "--set",
            repeated=True,
            metavar="KEY=VALUE",
            help="Option that FILE lacks, such as torch=2.6.0 or compute_capability=9.0; overrides FILE; repeatable.",
        ),
        Option(
            "--strict", action="store_true", help="Exit with code 1 for warnings, advice and unknown rules as well."
        ),
        format_option("text", "json"),
    ),
    "nccl": (
        Option(
            "files",
            type=Path,
            nargs="+",
            metavar="FILE",
            help="Results: output or JSON of nccl-tests, rccl-tests or perftest, CSV of rccl-tests, "
            "log of NCCL Inspector.",
        ),
        *against_options("Recording of one node during the run."),
        Option("--format", choices=("text", "json"), default="text", help="Output format (default: text)."),
        Option("--rate", type=SOME_RATE, help="Line rate of a rail, one direction, such as 50GB/s."),
        Option("--rails", type=COUNT, help="Rails per node (default: those of the recording)."),
        Option(
            "--gpu-rate", type=SOME_RATE, help="Rate of a GPU's links within its node, one direction, such as 450GB/s."
        ),
        Option("--ranks", type=COUNT, help="Ranks of the run (default: from the file)."),
        Option("--nodes", type=COUNT, help="Nodes of the run (default: from the file)."),
        Option(
            "--collective", choices=COLLECTIVES, help="Collective of a file that does not name it (default: unknown)."
        ),
        Option("--algorithm", choices=ALGORITHMS, help="Algorithm of NCCL (default: from the file)."),
        Option("--unit", choices=UNITS, help="Unit of perftest's bandwidth (default: inferred from the file)."),
        Option("--mtu", type=COUNT, metavar="BYTES", help="MTU of the rails (default: 1024 to 4096)."),
    ),
    "fleet collect": (
        Option(
            "files",
            type=recording_or_address,
            nargs="*",
            metavar="FILE",
            help="Captures or recordings to collect instead of asking nodes, or the URL of a gateway.",
        ),
        Option(
            "-o",
            "--output",
            required=True,
            metavar="DATASET",
            help="Directory or URI (s3://bucket/path) of the dataset; one that exists is continued.",
        ),
        Option("--url", metavar="URL", help="Collect the nodes of a gateway, such as http://gateway:10056."),
        Option("--job", default="", metavar="ID", help="Collect the nodes of this job, and its ports."),
        Option("--last", type=SOME_TIME, help=f"Collect the time up to now (default: {LAST})."),
        Option(
            "--from", dest="begin", type=INSTANT, help="Begin at this wall-clock time, such as 2026-11-21T12:00:00Z."
        ),
        Option("--to", dest="end", type=INSTANT, help="End at this wall-clock time (default: now)."),
        Option(
            "--processes",
            type=whole(1, MAX_PROCESSES),
            default=min(os.cpu_count() or 1, MAX_PROCESSES),
            help="Processes that compute the small tiers (default: one for each CPU).",
        ),
        Option(
            "--scheduler",
            metavar="ADDRESS",
            help="Compute the small tiers on a Dask scheduler, such as tcp://dask:8786.",
        ),
    ),
    "fleet report": (
        *CHOICE,
        Option("--compare-job", metavar="ID", help="Compare the steps with those of this job."),
        Option("--compare-from", type=INSTANT, help="Compare with the span that begins at this time."),
        Option("--compare-to", type=INSTANT, help="End of that span."),
        format_option("text", "json", "html"),
    ),
    "fleet render": (
        *CHOICE,
        Option("-o", "--output", type=Path, required=True, metavar="OUT", help="Picture to write, .png or .svg."),
        Option(
            "--picture",
            choices=FLEET_PICTURES,
            default="waterfall",
            help="waterfall: nodes over time; rails: nodes and rails; lateness: lateness over time (default: "
            "waterfall).",
        ),
        Option(
            "--sort",
            choices=ORDERS,
            default="lateness",
            help=f"Order of the nodes: {', '.join(ORDERS)} (default: lateness).",
        ),
        Option("--theme", choices=THEMES, default="light", help="Colours: light or dark (default: light)."),
        Option("--width", type=ANY_WHOLE, default=WIDTH, metavar="PIXELS", help=f"Width (default: {WIDTH})."),
        Option(
            "--dpi",
            type=ANY_WHOLE,
            default=DPI,
            metavar="NUMBER",
            help=f"Pixels per inch; more enlarges the text (default: {DPI}).",
        ),
    ),
}
