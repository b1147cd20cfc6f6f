"""Finds what a timeline of a node shows next to its rates: steps, bursts, stalls, jobs, events and missing data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND
from ibpulse.core.jobs import trace_jobs
from ibpulse.core.limits import LEGEND
from ibpulse.core.recordings.limits import find_recorded_signs
from ibpulse.core.recordings.recording import Recording, RecordingMeta, concatenate
from ibpulse.core.statistics.signs import LETTERS, NAMES, NOTHING
from ibpulse.core.statistics.silences import SampleTimes, describe_rates
from ibpulse.core.statistics.steps.edges import find_least_idle, find_step_edges
from ibpulse.core.statistics.steps.runs import (
    MAX_BRIDGED,
    SILENT_BYTES_PER_SECOND,
    find_equal_runs,
    find_pauses,
    find_row_runs,
    silence_level,
)
from ibpulse.core.statistics.sums import line_rate
from ibpulse.core.statistics.verdict import notable_seconds

STEPS, BURSTS, STALLS, EVENTS, MISSING = "steps", "bursts", "stalls", "events", "missing data"
SIGNS = "signs of limits,"
SIGNS_AT_ONCE_NS = 60 * SECOND_NS
"""Signs are found in parts of this length; the usual peak of a rail is the highest so far."""
MIN_STEPS = 3
"""Steps whose usual period says which silence is a stall."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A span on a track of the node, or on that of a port; without an end, an instant."""

    track: str
    name: str
    begin_ns: int
    end_ns: int | None = None
    port: str = ""
    details: Mapping[str, str | float] = field(default_factory=dict)


class NodeSamples:
    """Adds up the ports `rows` of the pieces of a recording as they pass, and finds the marks at the end."""

    def __init__(self, meta: RecordingMeta, rows: Sequence[int]) -> None:
        self._meta, self._rows = meta, rows
        self._names = [str(meta.ports[row].id) for row in rows]
        self._sums: list[Floats] = []
        self._missing: list[Bools] = []
        self._pending: list[Recording] = []
        self._peaks: dict[str, float] = {}
        self._signs: list[Mark] = []
        self.ticks = self._start_ns = 0

    @property
    def begin_ns(self) -> int:
        """The beginning of the first sample."""
        return self._start_ns - self._meta.interval_ns

    @property
    def end_ns(self) -> int:
        """The end of the last sample."""
        return self.begin_ns + self.ticks * self._meta.interval_ns

    def add(self, piece: Recording) -> Floats:
        """The sum over the ports of a piece: (2, samples), NaN where a port that is up, or every port, is missing."""
        if not self.ticks:
            self._start_ns = piece.start_ns
        self.ticks += piece.ticks
        rates, up = piece.bytes_per_second[self._rows], np.zeros((len(self._rows), 1, piece.ticks), dtype=np.bool_)
        states = piece.states
        for row, name in enumerate(self._names):
            for span in states.spans(name, 0, piece.ticks):
                up[row, 0, span.first : span.end] = span.state is not None and span.state.active
        missing = np.isnan(rates)
        total = np.where(missing, 0.0, rates).sum(axis=0)
        total[(missing & up).any(axis=0) | missing.all(axis=0)] = np.nan
        self._sums.append(total)
        self._missing.append(np.asarray(missing.any(axis=1)))
        if piece.signals:
            self._pending.append(piece)
        if sum(each.ticks for each in self._pending) * self._meta.interval_ns >= SIGNS_AT_ONCE_NS:
            self._find_signs()
        return np.asarray(total)

    def marks(self, active: float) -> Iterator[Mark]:
        """The marks of all samples, those of each track in order of time; bursts are above `active`."""
        self._find_signs()
        yield from self._signs
        rates = np.concatenate(self._sums, axis=1)
        yield from self._find_jobs()
        yield from self._find_steps(rates)
        yield from self._find_bursts(rates.sum(axis=0), active)
        for row, first, end in zip(*find_row_runs(np.concatenate(self._missing, axis=1)), strict=True):
            yield Mark(MISSING, MISSING, self._at(first), self._at(end), self._names[row])
        for event in self._meta.events:
            if self.begin_ns <= event.time_ns <= self.end_ns:
                error_ms = event.uncertainty_ns / MILLISECOND_NS
                details: dict[str, str | float] = {"subject": event.subject, "text": event.text}
                port = event.subject if event.subject in self._names else ""
                yield Mark(EVENTS, event.kind, event.time_ns, None, port, {**details, "uncertainty_ms": error_ms})

    def _find_signs(self) -> None:
        """Note the signs of what limited the ports in the pending pieces."""
        if not self._pending:
            return
        part, self._pending = concatenate(self._pending), []
        begin_ns, interval_ns = part.start_ns - part.meta.interval_ns, part.meta.interval_ns
        for port in find_recorded_signs(part, self._rows, ACTIVE_BYTES_PER_SECOND, self._peaks):
            codes = port.signs.of_samples()
            for first, end in zip(*find_equal_runs(codes.astype(np.int64)), strict=True):
                if codes[first] != NOTHING:
                    details = {"sign": LEGEND[LETTERS[codes[first]]]}
                    begin, stop = (begin_ns + int(at) * interval_ns for at in (first, end))
                    self._signs.append(Mark(f"{SIGNS} {port.name}", NAMES[codes[first]], begin, stop, "", details))

    def _at(self, sample: float) -> int:
        """The beginning of a sample."""
        return self.begin_ns + round(sample * self._meta.interval_ns)

    def _find_jobs(self) -> Iterator[Mark]:
        for record in trace_jobs(self._meta.events, self._meta.jobs):
            begin, end = record.began_ns or self.begin_ns, record.ended_ns or self.end_ns
            begin, end = max(begin, self.begin_ns), min(end, self.end_ns)
            if begin < end:
                name = f"job {record.job.claim.id}"
                ports = ", ".join(map(str, record.job.ports))
                yield Mark(name, name, begin, end, "", {"scheduler": record.job.claim.scheduler, "ports": ports})

    def _find_steps(self, rates: Floats) -> Iterator[Mark]:
        """Steps with a period, from the first traffic of one to that of the next; silences that are longer."""
        interval_ns, both = self._meta.interval_ns, rates.sum(axis=0)
        silent = float(silence_level(np.nanmax(rates, initial=0.0), SILENT_BYTES_PER_SECOND))
        least = find_least_idle(np.max(rates, axis=0), silent, interval_ns)
        if least is None:
            return
        known = [self._meta.ports[row].rate_bytes_per_second or np.nan for row in self._rows]
        line = float(line_rate(np.array(known), 1)[()])
        times = find_step_edges(rates, interval_ns, line if line > 0 else None, least).times
        at = np.fmin(times.transmit.at, times.receive.at)
        error = np.fmax(times.transmit.high, times.receive.high) - np.fmin(times.transmit.low, times.receive.low)
        begins, errors = self.begin_ns + at[~np.isnan(at)], error[~np.isnan(at)]
        if len(begins) < MIN_STEPS:
            return
        for number, (begin, end) in enumerate(pairwise(begins)):
            details = {"begin_uncertainty_ms": float(errors[number]) / MILLISECOND_NS}
            yield Mark(STEPS, f"step {number}", int(begin), int(end), "", details)
        samples = SampleTimes(0.0, interval_ns / SECOND_NS, 0.0)
        regular = describe_rates(("",), rates[np.newaxis], samples, SILENT_BYTES_PER_SECOND).regular
        shortest = notable_seconds(regular) * SECOND_NS
        pauses = find_pauses(both, silent)
        for first, end, missing in zip(pauses.first, pauses.end, pauses.missing, strict=True):
            if first and not missing and (end - first) * interval_ns >= shortest:
                yield Mark(STALLS, "stall", self._at(first), self._at(end))

    def _find_bursts(self, both: Floats, active: float) -> Iterator[Mark]:
        """Spans above the threshold; one or two missing samples do not end them."""
        pauses = find_pauses(both, active)
        kept = (pauses.missing < pauses.samples) | (pauses.samples > MAX_BRIDGED)
        firsts = np.concatenate(([0], pauses.end[kept]))
        ends = np.append(pauses.first[kept], len(both))
        for first, end in zip(firsts, ends, strict=True):
            if end > first:
                moved = float(np.nansum(both[first:end])) * self._meta.interval_ns / SECOND_NS
                yield Mark(BURSTS, "burst", self._at(first), self._at(end), "", {"GB": moved / 1e9})
