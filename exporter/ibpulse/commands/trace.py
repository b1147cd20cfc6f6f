"""`ibpulse trace TRACE...`: exposed communication of profiler traces, split into waiting and moving."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import ANY_WHOLE, REGULAR_EXPRESSION, SHIFT, whole
from ibpulse.errors import ConfigError, RecordingError, TraceError
from ibpulse.units import MILLISECOND_NS, SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibpulse.config import Settings
    from ibpulse.overlap.kineto_trace import KinetoTrace
    from ibpulse.overlap.trace_report import TraceOverlap
    from ibpulse.overlap.wire_activity import WireActivity
    from ibpulse.recordings import RecordingMeta

COARSEST_NS = 20 * MILLISECOND_NS
THEMES = ("light", "dark")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the traces, the recording, what counts as communication, and the output."""
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="TRACE",
        help="Traces of the PyTorch profiler (Kineto JSON, plain or gzip), one per rank.",
    )
    parser.add_argument("--against", type=Path, metavar="RECORDING", help="Recording of the same node at that time.")
    parser.add_argument(
        "--port",
        action="append",
        default=[],
        metavar="PORT",
        help="Port or device of the recording, such as mlx5_0:1; repeatable (default: the rails).",
    )
    parser.add_argument(
        "--shift",
        type=SHIFT,
        help="Add this to the times of the recording: 10.5ms if its wire leads the trace by it, -10.5ms if it trails.",
    )
    parser.add_argument(
        "--communication",
        type=REGULAR_EXPRESSION,
        action="append",
        default=[],
        help="Further kernel names that are communication, as a regular expression; repeatable.",
    )
    parser.add_argument(
        "--gpus-per-node",
        type=whole(1, 1_000_000),
        help="Ranks per node, to find communicators inside a node (default: the GPUs that the trace lists).",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="Output format (default: text).")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT", help="Picture of the first trace and its wire, .png or .svg."
    )
    parser.add_argument(
        "--step", type=ANY_WHOLE, metavar="NUMBER", help="Draw only this step (default: the whole trace)."
    )
    parser.add_argument("--theme", choices=THEMES, default="light", help="Colours of the picture (default: light).")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the overlap of each device, and draw the picture.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        TraceError: a trace cannot be read, or not be aligned with the recording.
        RecordingError: the recording cannot be read, or is unsuitable.
        PictureError: the picture cannot be drawn or written.
    """
    from ibpulse.overlap.communication_kernels import CommunicationNames  # not for help texts
    from ibpulse.overlap.kineto_trace import read_trace
    from ibpulse.overlap.trace_report import render_json, render_text

    _check(arguments)
    names = CommunicationNames(arguments.communication)
    traces = [read_trace(path, names) for path in arguments.files]
    wire = None
    if arguments.against:
        threshold = settings.analysis.active_threshold
        wire = _read_wire(arguments.against, traces, arguments.port, threshold, arguments.shift or 0)
    reports = [report for trace in traces for report in _measure(trace, wire, arguments)]
    render = render_json if arguments.format == "json" else render_text
    print(render(reports, arguments.against), end="")
    if arguments.output:
        from ibpulse.pictures.trace_picture import save_trace_picture

        save_trace_picture(reports[0], wire, arguments.output, arguments.theme, arguments.step)
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
    from ibpulse.overlap.exposed_time import measure_overlap  # not for help texts
    from ibpulse.overlap.trace_report import TraceOverlap
    from ibpulse.overlap.waiting_time import split_exposed

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


def _read_wire(
    path: Path, traces: Sequence[KinetoTrace], ports: Sequence[str], threshold: float, shift_ns: int
) -> WireActivity:
    """The activity of the wire around the traces, with `shift_ns` added to the times of the recording.

    Raises:
        RecordingError: the recording cannot be read, is too coarse, or covers no trace.
        TraceError: a trace has no wall time.
    """
    from ibpulse.overlap.wire_activity import wire_activity  # not for help texts
    from ibpulse.recordings import load
    from ibpulse.recordings.reading import read_extent

    for trace in traces:
        if not trace.absolute:
            raise TraceError(
                f"trace {trace.path} has no wall time, neither in ts nor in baseTimeNanoseconds; "
                "export it with a newer PyTorch, or omit --against"
            )
    extent = read_extent(path)
    rows = _choose_rows(path, extent.meta, ports)
    interval = extent.meta.interval_ns
    begin = min(device.begin_ns for trace in traces for device in trace.devices) - SECOND_NS
    end = max(device.end_ns for trace in traces for device in trace.devices) + SECOND_NS
    start_ns = extent.start_ns + shift_ns
    first, last = max(0, (begin - start_ns) // interval), min(extent.ticks, (end - start_ns) // interval)
    if last <= first:
        raise RecordingError(
            f"recording {path} has no sample of the time of the trace; record the node while it is profiled"
        )
    return wire_activity(load(path, first, last), rows, threshold, shift_ns)


def _choose_rows(path: Path, meta: RecordingMeta, chosen: Sequence[str]) -> list[int]:
    """The rows of the chosen ports, or of the rails.

    Raises:
        RecordingError: a port does not exist, or its samples are too far apart.
    """
    for name in chosen:
        if not any(name in (str(port.id), port.device) for port in meta.ports):
            known = ", ".join(str(port.id) for port in meta.ports)
            raise RecordingError(f"recording {path} has no port {name!r}; choose one of {known}")
    rows = [
        row
        for row, port in enumerate(meta.ports)
        if (str(port.id) in chosen or port.device in chosen if chosen else port.rail)
    ]
    if not rows:
        raise RecordingError(f"recording {path} has no rail; choose its ports with --port")
    for port in (meta.ports[row] for row in rows):
        apart = max(port.stride * meta.interval_ns, (port.resolution_seconds or 0) * SECOND_NS)
        if apart > COARSEST_NS or port.stride > 1:
            raise RecordingError(
                f"recording {path} has a value of port {port.id} only every {apart / 1e6:g} ms, too coarse for waiting "
                "and moving; record every 10ms or less, or choose other ports with --port"
            )
    return rows
