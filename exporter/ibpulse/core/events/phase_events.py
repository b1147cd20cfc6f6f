"""Records the phases of a job, which the aggregator finds, as events of the node."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ibpulse.core.events.event import Event
from ibpulse.core.events.log import EventLog
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.statistics.steps.phase import CHECKPOINT, Phase


class PhaseEvents:
    """Adds each phase to the event log: a first traffic at its first sample, a checkpoint at its last one."""

    def __init__(self, log: EventLog, reader: RingReader) -> None:
        self._log, self._reader = log, reader

    def note(self, phases: Iterable[Phase]) -> None:
        """Record phases, whose samples are ticks of the ring."""
        for phase in phases:
            interval_ns, ring = self._reader.interval_ns, self._reader.ring.words[at.H_CREATED_WALL_NS]
            details: dict[str, float | int] = {"silent_seconds": round(phase.silent_seconds, 3)}
            if phase.kind == CHECKPOINT:
                tick, seconds = phase.end - 1, (phase.end - phase.first) * interval_ns / 1e9
                details |= {
                    "seconds": round(seconds, 3),
                    "transmitted_bytes": round(phase.transmitted),
                    "received_bytes": round(phase.received),
                }
                text = f"checkpoint: {phase.transmitted / 1e9:.2f} GB to storage in {seconds:.2f} s, rails silent"
            else:
                tick, text = phase.first, f"first traffic on the rails, after {phase.silent_seconds:.2f} s of silence"
            time_ns = int(self._reader.wall_ns(np.array([tick]))[0])
            uncertainty_ns = phase.uncertainty * interval_ns
            self._log.add(Event(time_ns, phase.kind, "", text, uncertainty_ns, details=details, tick=tick, ring=ring))
