"""`ibpulse nccl FILE...`: compares benchmark results with the hardware's bound, and with a recording of the run."""

from __future__ import annotations

import argparse

from ibpulse.agent.config import Settings
from ibpulse.base.errors import ConfigError
from ibpulse.commands.sources import load_against
from ibpulse.workbench.nccl.formats import read_benchmark
from ibpulse.workbench.nccl.grades import KnownHardware
from ibpulse.workbench.nccl.report import describe_benchmark, render_json, render_text
from ibpulse.workbench.reports.span import ReportOptions


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the comparison.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        BenchmarkError: a file cannot be read.
        IbpulseError: the recording cannot be read, or the daemon does not answer.
    """
    hardware = _hardware(arguments)
    found = load_against(arguments, ReportOptions())
    recording = found and found[1]
    if recording is not None:
        hardware = hardware.with_rails(recording.meta.ports)
    reports = [
        describe_benchmark(run, hardware, recording, settings.analysis.active_threshold, arguments.mtu)
        for path in arguments.files
        for run in read_benchmark(path, arguments.unit or "", arguments.collective or "")
    ]
    print(render_json(reports) if arguments.format == "json" else "\n".join(map(render_text, reports)), end="")
    return 0


def _hardware(arguments: argparse.Namespace) -> KnownHardware:
    if arguments.ranks and arguments.nodes and arguments.ranks % arguments.nodes:
        raise ConfigError(f"flag --ranks: {arguments.ranks} is not a multiple of {arguments.nodes} nodes; correct one")
    return KnownHardware(
        arguments.ranks,
        arguments.nodes,
        arguments.rails,
        arguments.rate,
        arguments.gpu_rate,
        arguments.algorithm,
    )
