"""`ibpulse trace`, `nccl` and `model check`: traces, benchmarks and configurations of a run."""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import chain

from ibpulse.agent.config import Settings
from ibpulse.base.errors import ConfigError, TraceError
from ibpulse.base.text import escape_controls
from ibpulse.commands.compare import load_against
from ibpulse.workbench.models import check
from ibpulse.workbench.nccl import report as benchmarks
from ibpulse.workbench.nccl.formats import read_benchmark
from ibpulse.workbench.nccl.grades import KnownHardware
from ibpulse.workbench.overlap import report as overlaps
from ibpulse.workbench.overlap.exposed import WireActivity, measure_overlap, read_around, split_exposed, wire_activity
from ibpulse.workbench.overlap.kernels import CommunicationNames
from ibpulse.workbench.overlap.report import SUFFIXES, TraceOverlap, WireClock, save_merged
from ibpulse.workbench.overlap.trace import KinetoTrace, read_traces
from ibpulse.workbench.reports.span import ReportOptions


def run_trace(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the overlap of each device, and merge the wire into the trace."""
    _check(arguments)
    names = CommunicationNames(arguments.communication)
    files = [read_traces(path, names) for path in arguments.files]
    wire, threshold = None, settings.analysis.active_threshold
    if arguments.against:
        recording, rows = read_around(arguments.against, [*chain(*files)], arguments.port, arguments.shift or 0)
        wire = wire_activity(recording, rows, threshold, arguments.shift)
    reports = [report for traces in files for report in _measure(traces, wire, arguments)]
    render = overlaps.render_json if arguments.format == "json" else overlaps.render_text
    print(render(reports, arguments.against), end="")
    if arguments.output:
        clock = WireClock.of([report.wire for report in reports if report.wire], arguments.shift)
        save_merged(reports, recording, rows, clock, arguments.output, threshold)
        if arguments.format == "text":
            print(escape_controls(f"{arguments.output}: {clock.text} ({clock.evidence})"))
    return 0


def _check(arguments: argparse.Namespace) -> None:
    faults: list[str] = arguments.faults
    if arguments.shift is not None and not arguments.against:
        faults.append("flag --shift: moves the recording; give --against as well")
    if arguments.port and not arguments.against:
        faults.append("flag --port: names a port of the recording; give --against as well")
    output = arguments.output
    if output and not output.name.lower().endswith(SUFFIXES):
        faults.append(f"flag --output: {str(output)!r} is neither .json nor .json.gz")
    elif output:
        if not arguments.against or len(arguments.files) > 1:
            faults.append("flag --output: a trace is merged with one recording; give one trace, and --against")
        if any(file.exists() and output.exists() and file.samefile(output) for file in arguments.files):
            faults.append(f"flag --output: {str(output)!r} is the trace itself; name another file")
    if faults:
        raise ConfigError(faults)


def _measure(traces: list[KinetoTrace], wire: WireActivity | None, arguments: argparse.Namespace) -> list[TraceOverlap]:
    """The devices of a file. Those that cannot be aligned with the wire are not compared, unless it is all of them."""
    found, problems = [], []
    for trace in traces:
        # one visible GPU says nothing about the node
        gpus = arguments.gpus_per_node or (trace.gpus if trace.gpus and trace.gpus > 1 else None)
        for device in trace.devices:
            overlap, shown = measure_overlap(device, trace.steps), trace
            split = split_exposed(overlap, wire, gpus) if wire else None
            if split and split.match.problem and arguments.shift is None:
                problems.append(split.match.problem)
                note = f"not compared with the recording: {split.match.problem}"
                shown, split = replace(trace, notes=(*trace.notes, note)), None
            found.append(TraceOverlap(shown, overlap, split, gpus))
    if problems and len(problems) == len(found):
        raise TraceError(
            f"trace {traces[0].path} cannot be aligned with recording {arguments.against}: {problems[0]}; "
            "record the node of this rank while it is profiled, give the offset with --shift, or omit --against"
        )
    return found


def run_nccl(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the comparison."""
    if arguments.ranks and arguments.nodes and arguments.ranks % arguments.nodes:
        raise ConfigError(f"flag --ranks: {arguments.ranks} is not a multiple of {arguments.nodes} nodes; correct one")
    hardware = KnownHardware(
        arguments.ranks, arguments.nodes, arguments.rails, arguments.rate, arguments.gpu_rate, arguments.algorithm
    )
    found = load_against(arguments, ReportOptions())
    recording = found and found[1]
    if recording is not None:
        hardware = hardware.with_rails(recording.meta.ports)
    threshold = settings.analysis.active_threshold
    reports = [
        benchmarks.describe_benchmark(run, hardware, recording, threshold, arguments.mtu)
        for path in arguments.files
        for run in read_benchmark(path, arguments.unit or "", arguments.collective or "")
    ]
    as_json = arguments.format == "json"
    print(benchmarks.render_json(reports) if as_json else "\n".join(map(benchmarks.render_text, reports)), end="")
    return 0


def run_check(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the results; the exit code is 1 if the check fails."""
    found = check.read_run_options(arguments.file, arguments.set)
    results = check.check_run(found.program, found.options)
    failed = any(result.fails or (arguments.strict and result.status != "ok") for result in results)
    render = check.render_json if arguments.format == "json" else check.render_text
    print(render(found, results, failed), end="")
    return 1 if failed else 0
