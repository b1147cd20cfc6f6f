"""The signs of limits of the ports of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.core.arrays import Floats
from ibpulse.core.limits import INFINIBAND, TRANSMIT, PortSigns, states_over
from ibpulse.core.recordings.recording import Recording
from ibpulse.core.signals import MEANINGS
from ibpulse.core.statistics.signs import RailSamples, find_rail_signs


@dataclass(frozen=True, slots=True)
class SignalChange:
    """What a counter of congestion gained on all rails of a node together, None if that of no rail is known.

    `full` are the rails on which it had reached its maximum, and `unknown` those on which it was reset or readings are
    missing; what they gained meanwhile is not counted.
    """

    name: str
    unit: str
    gained: float | None
    full: tuple[str, ...]
    unknown: tuple[str, ...]


def signal_changes(recording: Recording, rows: Sequence[int]) -> list[SignalChange]:
    """The change of every signal of the ports of these rows over a recording, in the order of their table."""
    found: dict[str, list[tuple[str, Floats, bool]]] = {}
    for row in rows:
        readings = recording.readings(row)
        gains = readings.gains()
        for column, signal in enumerate(readings.signals):
            mine = str(recording.meta.ports[row].id), gains.gained[1:, column], bool(gains.full[:, column].any())
            found.setdefault(signal.name, []).append(mine)
    changes = []
    for name in (name for name in MEANINGS if name in found):
        known = [float(np.nansum(gained)) for _, gained, _ in found[name] if not np.isnan(gained).all()]
        full = tuple(port for port, _, is_full in found[name] if is_full)
        unknown = tuple(port for port, gained, is_full in found[name] if np.isnan(gained).any() and not is_full)
        changes.append(SignalChange(name, MEANINGS[name].unit, sum(known) if known else None, full, unknown))
    return changes


def find_recorded_signs(
    recording: Recording, rows: Sequence[int], active_bytes_per_second: float, peaks: dict[str, float] | None = None
) -> list[PortSigns]:
    """The signs of the rails of these rows that have signals; none is whole that is slower than the fastest.

    Their usual peaks are those of the recording, or the highest of this one and of `peaks`, which are updated.
    """
    states = {
        row: states_over(recording.states.spans(str(recording.meta.ports[row].id), 0, recording.ticks), recording.ticks)
        for row in rows
    }
    whole = max((float(np.nan_to_num(line).max(initial=0.0)) for line, _ in states.values()), default=0.0) or np.nan
    found = []
    for row in rows:
        port, signals = recording.meta.ports[row], recording.readings(row)
        if not signals.signals or np.isnan(recording.bytes_per_second[row, TRANSMIT]).all():
            continue
        name = str(port.id)
        infiniband = port.identity.link_layer == INFINIBAND
        samples = RailSamples(
            recording.start_ns,
            recording.meta.interval_ns,
            recording.bytes_per_second[row, TRANSMIT],
            recording.seconds[row, TRANSMIT],
            *states[row],
            infiniband,
            whole,
        )
        peak = samples.usual_peak()
        if peaks is not None:
            peak = peaks[name] = float(np.fmax(peak, peaks.get(name, np.nan)))
        signs = find_rail_signs(samples, signals, active_bytes_per_second, peak=peak)
        found.append(PortSigns(name, signs, signals, infiniband))
    return found
