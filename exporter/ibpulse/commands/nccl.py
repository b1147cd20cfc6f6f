"""`ibpulse nccl FILE...`: compares benchmark results with the hardware's bound, and with a recording of the run."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import SOME_RATE, whole
from ibpulse.commands.arguments import add_against_arguments, load_against
from ibpulse.errors import ConfigError

if TYPE_CHECKING:
    from ibpulse.config import Settings
    from ibpulse.nccl.bandwidth_theory import KnownHardware
    from ibpulse.recordings import Recording

UNITS = ("MiB/s", "Gb/s")
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv", "broadcast", "reduce"]
ALGORITHMS = ("ring", "tree", "hierarchical", "collnet")
COUNT = whole(1, 1_000_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files, the recording, and what the files may not have."""
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="Results: output or JSON of nccl-tests, rccl-tests or perftest, CSV of rccl-tests, log of NCCL Inspector.",
    )
    add_against_arguments(parser, "Recording of one node during the run.")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="Output format (default: text).")
    parser.add_argument("--rate", type=SOME_RATE, help="Line rate of a rail, one direction, such as 50GB/s.")
    parser.add_argument("--rails", type=COUNT, help="Rails per node (default: those of the recording).")
    parser.add_argument(
        "--gpu-rate",
        type=SOME_RATE,
        help="Rate of a GPU's links within its node, one direction, such as 450GB/s.",
    )
    parser.add_argument("--ranks", type=COUNT, help="Ranks of the run (default: from the file).")
    parser.add_argument("--nodes", type=COUNT, help="Nodes of the run (default: from the file).")
    parser.add_argument(
        "--collective", choices=COLLECTIVES, help="Collective of a file that does not name it (default: unknown)."
    )
    parser.add_argument("--algorithm", choices=ALGORITHMS, help="Algorithm of NCCL (default: from the file).")
    parser.add_argument("--unit", choices=UNITS, help="Unit of perftest's bandwidth (default: inferred from the file).")
    parser.add_argument("--mtu", type=COUNT, metavar="BYTES", help="MTU of the rails (default: 1024 to 4096).")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the comparison.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        BenchmarkError: a file cannot be read.
        IbpulseError: the recording cannot be read, or the daemon does not answer.
    """
    from ibpulse.nccl.benchmark_files import read_benchmark  # not for help texts
    from ibpulse.nccl.benchmark_report import compare_with_wire, describe_benchmark, render_json, render_text
    from ibpulse.reports.span import ReportOptions

    hardware = _hardware(arguments)
    found = load_against(arguments, ReportOptions())
    recording = found and found[1]
    if recording is not None:
        hardware = _with_rails(hardware, recording)
    reports = []
    for path in arguments.files:
        for results in read_benchmark(path, arguments.unit or "", arguments.collective or ""):
            report = describe_benchmark(results, hardware)
            if recording is not None:
                report = compare_with_wire(report, recording, settings.analysis.active_threshold, arguments.mtu)
            reports.append(report)
    print(render_json(reports) if arguments.format == "json" else "\n".join(map(render_text, reports)), end="")
    return 0


def _hardware(arguments: argparse.Namespace) -> KnownHardware:
    from ibpulse.nccl.bandwidth_theory import KnownHardware

    if arguments.ranks and arguments.nodes and arguments.ranks % arguments.nodes:
        raise ConfigError(f"flag --ranks: {arguments.ranks} is not a multiple of {arguments.nodes} nodes; correct one")
    return KnownHardware(
        arguments.ranks,
        arguments.nodes,
        arguments.rails,
        arguments.rate,
        arguments.gpu_rate,
        algorithm=arguments.algorithm or "",
    )


def _with_rails(hardware: KnownHardware, recording: Recording) -> KnownHardware:
    """The hardware with rails and rate of a recording where they were not given; rates that differ stay unknown."""
    rails = [port for port in recording.meta.ports if port.rail]
    rates = {port.rate_bytes_per_second for port in rails}
    return replace(
        hardware,
        rails=hardware.rails or len(rails) or None,
        rail_rate=hardware.rail_rate or (rates.pop() if len(rates) == 1 else None),
    )
