"""`ibpulse nccl FILE...`: compares benchmark results with the hardware's bound, and with a recording of the run."""

from __future__ import annotations

import argparse
from dataclasses import replace

from ibpulse.agent.config import Settings
from ibpulse.base.errors import ConfigError
from ibpulse.commands.sources import load_against
from ibpulse.core.recordings import Recording
from ibpulse.workbench.nccl.formats import read_benchmark
from ibpulse.workbench.nccl.grades import KnownHardware
from ibpulse.workbench.nccl.report import compare_with_wire, describe_benchmark, render_json, render_text
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
