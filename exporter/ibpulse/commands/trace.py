"""`ibpulse trace TRACE...`: exposed communication of profiler traces, split into waiting and moving."""

from __future__ import annotations

import argparse

from ibpulse.agent.config import Settings
from ibpulse.base.errors import ConfigError, TraceError
from ibpulse.workbench import pictures
from ibpulse.workbench.overlap.exposed import WireActivity, measure_overlap, read_wire, split_exposed
from ibpulse.workbench.overlap.kernels import CommunicationNames
from ibpulse.workbench.overlap.report import TraceOverlap, render_json, render_text
from ibpulse.workbench.overlap.trace import KinetoTrace, read_trace


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the overlap of each device, and draw the picture.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        TraceError: a trace cannot be read, or not be aligned with the recording.
        RecordingError: the recording cannot be read, or is unsuitable.
        PictureError: the picture cannot be drawn or written.
    """
    _check(arguments)
    names = CommunicationNames(arguments.communication)
    traces = [read_trace(path, names) for path in arguments.files]
    wire = None
    if arguments.against:
        threshold = settings.analysis.active_threshold
        wire = read_wire(arguments.against, traces, arguments.port, threshold, arguments.shift or 0)
    reports = [report for trace in traces for report in _measure(trace, wire, arguments)]
    render = render_json if arguments.format == "json" else render_text
    print(render(reports, arguments.against), end="")
    if arguments.output:
        pictures.save_trace_picture(reports[0], wire, arguments.output, arguments.theme, arguments.step)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    faults: list[str] = arguments.faults
    if arguments.shift and not arguments.against:
        faults.append("flag --shift: moves the recording; give --against as well")
    if arguments.port and not arguments.against:
        faults.append("flag --port: names a port of the recording; give --against as well")
    if arguments.step is not None and not arguments.output:
        faults.append("flag --step: chooses what the picture shows; give --output as well")
    if arguments.output and arguments.output.suffix.lower() not in (".png", ".svg"):
        faults.append(f"flag --output: {str(arguments.output)!r} is neither .png nor .svg")
    if faults:
        raise ConfigError(faults)


def _measure(trace: KinetoTrace, wire: WireActivity | None, arguments: argparse.Namespace) -> list[TraceOverlap]:
    """The devices of a trace.

    Raises:
        TraceError: a device cannot be aligned with the recording.
    """
    # one visible GPU says nothing about the node
    gpus = arguments.gpus_per_node or (trace.gpus if trace.gpus and trace.gpus > 1 else None)
    found = []
    for device in trace.devices:
        overlap, split = measure_overlap(device, trace.steps), None
        if wire:
            split = split_exposed(overlap, wire, gpus)
            if split.match.problem:
                raise TraceError(
                    f"trace {trace.path} cannot be aligned with recording {arguments.against}: {split.match.problem}; "
                    "record the node of this rank while it is profiled, or omit --against"
                )
        found.append(TraceOverlap(trace, overlap, split, gpus))
    return found
