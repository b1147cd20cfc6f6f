"""Which part of a recording is described, and what of it. It must not compute a statistic."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ibpulse.errors import RecordingError
from ibpulse.recording import Recording
from ibpulse.reporters.options import ReportOptions
from ibpulse.reporters.series import Series, add_up


@dataclass(frozen=True, slots=True)
class Window:
    """The described part of a recording; `cut_before` and `cut_after` are the ticks left out on either side of it."""

    recording: Recording
    series: Series
    cut_before: int
    cut_after: int


def choose_window(path: Path, recording: Recording, options: ReportOptions) -> Window:
    """The part of a recording that the options ask for.

    Raises:
        RecordingError: nothing of it is left, or it has no such port; `path` names it.
    """
    rows = _choose_ports(path, recording, options)
    first, end = _between(path, recording, options)
    series = add_up(recording.cut(first, end), rows)
    if options.trim:
        with np.errstate(invalid="ignore"):
            active = np.flatnonzero(series.bandwidth > options.active_bytes_per_second) - series.lead
        if not len(active):
            raise RecordingError(f"recording {path} is never active, so nothing is left after --trim; leave that out")
        first, end = first + int(active[0]), first + int(active[-1]) + 1
        if end - first < series.ticks:
            series = add_up(recording.cut(first, end), rows)
    return Window(recording.cut(first, end), series, first, recording.ticks - end)


def _choose_ports(path: Path, recording: Recording, options: ReportOptions) -> list[int]:
    ports = recording.meta.ports
    if not options.ports:
        rails = [row for row, port in enumerate(ports) if port.rail]
        if not rails:
            raise RecordingError(f"recording {path} has no rail; choose ports with --port, it has {_names(recording)}")
        return rails
    chosen = [row for row, port in enumerate(ports) if {str(port.id), port.device} & set(options.ports)]
    known = {name for port in ports for name in (str(port.id), port.device)}
    missing = [name for name in options.ports if name not in known]
    if missing:
        raise RecordingError(f"recording {path} has no port {', '.join(missing)}; it has {_names(recording)}")
    return chosen


def _names(recording: Recording) -> str:
    return ", ".join(str(port.id) for port in recording.meta.ports)


def _between(path: Path, recording: Recording, options: ReportOptions) -> tuple[int, int]:
    """The ticks from `begin` to before `end`: those of which the time since the tick before lies between them."""
    first, end = 0, recording.ticks
    # a tick's rate is that of the interval before it
    begin_ns = recording.start_ns - recording.meta.interval_ns
    if options.begin:
        first = -(-(options.begin.in_recording(begin_ns) - begin_ns) // recording.meta.interval_ns)
    if options.end:
        end = (options.end.in_recording(begin_ns) - begin_ns) // recording.meta.interval_ns
    first, end = max(first, 0), min(end, recording.ticks)
    if first >= end:
        seconds = recording.ticks * recording.meta.interval_ns / 1e9
        raise RecordingError(
            f"recording {path} has nothing between --from and --to: it is {seconds:g} s long; name other times"
        )
    return first, end
