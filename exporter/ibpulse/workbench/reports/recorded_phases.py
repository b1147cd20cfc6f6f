"""The phases of a recording, from its rails, its storage ports and the events of their links."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.model import STORAGE
from ibpulse.core.recordings import Recording
from ibpulse.core.statistics.rail_series import RailSeries
from ibpulse.core.statistics.span_statistics import find_period_between
from ibpulse.core.statistics.steps.phase import FIRST_TRAFFIC, Phase, PhaseRules, PhaseTraffic
from ibpulse.core.statistics.steps.phases import find_phases
from ibpulse.workbench.reports.span import ReportSpan, series_of

LINK_EVENTS = frozenset({"link-down", "link-up", "link-flap", "appeared", "disappeared", "unreadable", "readable"})
"""Events within whose uncertainty the link of a port may have been down."""


@dataclass(frozen=True, slots=True)
class RecordedPhases:
    """The phases of a recorded span; samples are its own. `remarks` are sentences on those that cannot be known."""

    phases: tuple[Phase, ...] = ()
    remarks: tuple[str, ...] = ()


NO_PHASES: RecordedPhases = RecordedPhases()


def describe_phases(chosen: ReportSpan, active_bytes_per_second: float) -> RecordedPhases:
    """The phases of the covered part of a recording."""
    series, recording = chosen.series, chosen.recording
    storage = _sum_storage(recording)
    traffic = PhaseTraffic(
        rails=_sum_rails(series),
        troubled=_find_trouble(recording, series),
        interval_seconds=series.interval_seconds,
        storage=storage,
        resolution=max(series.coarsest_stride, series.resolution_ticks),
    )
    phases = find_phases(
        traffic,
        lambda first, end: find_period_between(series, series.lead + first, series.lead + end, active_bytes_per_second),
        PhaseRules(active_bytes_per_second),
    )
    active = np.flatnonzero(traffic.rails > active_bytes_per_second)
    remarks = [_on_start(traffic.rails[: active[0]], phases) if len(active) else "The rails carry no traffic."]
    if storage is None:
        remarks.append("No port for storage was recorded, so checkpoints are not shown.")
    return RecordedPhases(phases, tuple(filter(None, remarks)))


def _sum_rails(series: RailSeries) -> Floats:
    """The sum over the rails that are up, at each recorded sample; missing where any of them is missing."""
    lost = (series.up & ~series.good).any(axis=0)
    return np.where(lost, np.nan, series.bandwidth)[series.lead : series.lead + series.ticks]


def _sum_storage(recording: Recording) -> Floats | None:
    """Transmit and receive of all storage ports: (2, samples); None without any."""
    states, ports = recording.states, recording.meta.ports
    rows = [
        row
        for row, port in enumerate(ports)
        if any(span.state and span.state.role == STORAGE for span in states.spans(str(port.id), 0, recording.ticks))
    ]
    if not rows:
        return None
    series = series_of(recording, rows)
    recorded = slice(series.lead, series.lead + series.ticks)
    return np.where(np.isnan(_sum_rails(series)), np.nan, series.directions[:, recorded])


def _find_trouble(recording: Recording, series: RailSeries) -> Bools:
    """Where the link of a rail was down, or may have been, at each recorded sample."""
    rails = series.rails
    trouble = np.asarray(~rails.up[rails.ever_up].all(axis=0))
    for event in recording.meta.events:
        if event.kind in LINK_EVENTS and event.subject in rails.names:
            after_ns = event.time_ns - recording.start_ns
            first = (after_ns - event.uncertainty_ns) // recording.meta.interval_ns
            trouble[max(0, first) : max(0, after_ns // recording.meta.interval_ns + 2)] = True
    return trouble


def _on_start(before: Floats, phases: tuple[Phase, ...]) -> str:
    """A sentence if the first traffic is not among the phases; `before` is what precedes the first active sample."""
    if any(phase.kind == FIRST_TRAFFIC and phase.end <= len(before) + 1 for phase in phases):
        return ""
    # the first sample of a recording has no rate
    if np.count_nonzero(np.isnan(before)) > 1:
        return "Data is missing before its first active sample, so its first traffic and first step are not known."
    return "It begins in traffic, so its first traffic and first step are not in it."
