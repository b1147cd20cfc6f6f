"""Measures exposed communication, overlap and idle time of a trace, and splits exposed time into waiting and moving.

Communication is exposed while a communication kernel runs and no other kernel; copies are neither. The overlap is the
share of communication during which another kernel runs (HolisticTraceAnalysis, communication_analysis.py).
Times are exact to the nanosecond, for the whole trace, each step and each communicator.

A sample of a recording says how many bytes moved in its interval, not when. Traffic is taken to be continuous within a
run of active samples. Of the first and the last sample of a run, the active share is its rate divided by that of the
sample next to it, and the traffic touches that sample. A sample inside a run whose rate is far below those around it
contains a pause.

The clocks are aligned by cross-correlation of the ends of communication. The profiler converts the GPU's stamps to the
clock of its host, so both clocks are the same on one node. A kernel starts before its traffic, by the time that it
waits, but ends with it. Hence the ends are correlated: the falls of the share of each sample that communication kernels
cover, and the falls of the share in which the wire was active.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ibpulse.base.errors import RecordingError, TraceError
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core import recordings
from ibpulse.core.arrays import Bools, Counts, Floats
from ibpulse.core.recordings import Recording, RecordingMeta
from ibpulse.workbench.overlap.databases import START
from ibpulse.workbench.overlap.intervals import EMPTY, IntervalSet, union
from ibpulse.workbench.overlap.trace import CommunicatorWork, DeviceTrace, KinetoTrace, TraceStep, union_of

EVERYTHING = IntervalSet(np.array([-(2**61)]), np.array([2**61]))
PAUSE_RATIO = 0.75
"""A sample inside a run with less than this part of the rates around it contains a pause."""
COARSEST_NS = 20 * MILLISECOND_NS
"""Values that are further apart cannot tell waiting from moving."""


@dataclass(frozen=True, slots=True)
class WireActivity:
    """The traffic of a node on a grid of samples; sample i covers [edges_ns[i], edges_ns[i + 1]).

    `shares` (samples,) is the estimated active part of each sample, NaN if missing; `rates` its bytes per second, both
    directions of all ports. `active` is the estimate as intervals, `certain` at least and `possible` at most active.
    `simulated` says that the samples are those of a simulator or a replay; `shift_ns` was added to their times, because
    the clocks are known to differ by it.
    """

    edges_ns: Counts
    rates: Floats
    shares: Floats
    active: IntervalSet
    certain: IntervalSet
    possible: IntervalSet
    missing: IntervalSet
    simulated: bool = False
    shift_ns: int | None = None

    @property
    def interval_ns(self) -> int:
        """Length of a sample."""
        return int(self.edges_ns[1] - self.edges_ns[0])


def read_around(
    path: Path, traces: Sequence[KinetoTrace], ports: Sequence[str], shift_ns: int
) -> tuple[Recording, list[int]]:
    """The samples of a recording around the traces, `shift_ns` added to their times, and the rows of the ports."""
    for trace in traces:
        if not trace.absolute:
            raise TraceError(
                f"trace {trace.path} has no wall time (baseTimeNanoseconds, {START}; rocpd has none); "
                "export it with a newer PyTorch or Nsight Systems, or omit --against"
            )
    extent = recordings.read_extent(path)
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
    return recordings.load(path, first, last), rows


def _choose_rows(path: Path, meta: RecordingMeta, chosen: Sequence[str]) -> list[int]:
    """The rows of the chosen ports, or of the rails."""
    rows, unknown = meta.named_rows(chosen)
    if unknown:
        known = ", ".join(str(port.id) for port in meta.ports)
        raise RecordingError(f"recording {path} has no port {unknown[0]!r}; choose one of {known}")
    rows = rows or [row for row, port in enumerate(meta.ports) if port.rail]
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


def wire_activity(recording: Recording, rows: list[int], threshold: float, shift_ns: int | None = None) -> WireActivity:
    """The activity of the ports `rows`; a sample is active if their sum is above `threshold` bytes per second.

    A sample in which some ports are missing counts if the others are active, and is missing otherwise. `shift_ns` is
    added to the times of the recording.
    """
    interval = recording.meta.interval_ns
    edges = recording.start_ns + (shift_ns or 0) + interval * (np.arange(recording.ticks + 1, dtype=np.int64) - 1)
    every = recording.bytes_per_second[rows].reshape(-1, recording.ticks)
    rates = np.nansum(every, axis=0)
    active = rates > threshold
    missing = np.isnan(every).any(axis=0) & ~active
    shares, late, early = _active_shares(rates, active, missing)
    whole = active & (shares >= 1)
    lengths = np.rint(shares * interval).astype(np.int64)
    starts, ends = edges[:-1], edges[1:]
    # a pause lies in the middle of its sample, and so does a burst that is shorter than its sample
    split = active & ~whole & late & early
    alone = active & ~whole & ~late & ~early
    ahead = np.where(alone, (interval - lengths) // 2, np.where(late & ~early, interval - lengths, 0))
    first = np.where(split, lengths // 2, lengths)
    begin = starts + ahead
    pieces = [(begin[active], (begin + first)[active]), ((ends - (lengths - first))[split], ends[split])]
    return WireActivity(
        edges,
        np.where(missing, np.nan, rates),
        np.where(missing, np.nan, shares),
        union(np.concatenate([piece[0] for piece in pieces]), np.concatenate([piece[1] for piece in pieces])),
        union(starts[whole], ends[whole]),
        union(starts[active], ends[active]),
        union(starts[missing], ends[missing]),
        recording.meta.simulated,
        shift_ns,
    )


def _active_shares(rates: Floats, active: Bools, missing: Bools) -> tuple[Floats, Bools, Bools]:
    """The active share of each sample, and whether its traffic touches its end, and its beginning."""
    # what is outside the samples is not known, so a run may continue there
    known = np.pad(~missing, 1, constant_values=False)
    beside = np.pad(active, 1, constant_values=False)
    early = beside[:-2] | ~known[:-2]
    late = beside[2:] | ~known[2:]
    inner = active & early & late
    plateau = float(np.median(rates[inner])) if inner.any() else 0.0
    padded = np.pad(np.where(active, rates, 0.0), 2)
    before = np.maximum(padded[:-4], padded[1:-3])
    after = np.maximum(padded[3:-1], padded[4:])
    only_before, only_after = early & ~late, late & ~early
    reference = np.where(only_before, padded[1:-3], np.where(only_after, padded[3:-1], 0.0))
    # the neighbour of a sample in a run of two is no reference: it has an edge as well
    short = (only_before & ~np.pad(inner, 1)[:-2]) | (only_after & ~np.pad(inner, 1)[2:])
    reference = np.where(short | (active & ~early & ~late), np.maximum(plateau, reference), reference)
    around = np.minimum(before, after)
    reference = np.where(inner & (rates < PAUSE_RATIO * around), around, reference)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(reference > 0, np.minimum(1.0, rates / reference), 1.0)
    return np.where(active, shares, 0.0), late & active, early & active


REACH_NS, FAR_NS = 65_000_000, 1_000_000_000
"""Clocks further apart are not aligned. Between clocks that differ, a lag is certain if no other is alike so far."""
COARSE_NS, FINE_NS = 1_000_000, 50_000
MIN_CORRELATION, MIN_LEAD = 0.5, 0.1
APART_SAMPLES = 1.5
"""Lags closer than this share samples with the best one, so they are no rivals; beyond it the clocks differ."""
LATE_PART = 0.05
"""Of a sample: how much later than its time it may be read, and a kernel may end after its traffic."""
MIN_ENDS = 5
MIN_SAMPLES = 20


@dataclass(frozen=True, slots=True)
class ClockMatch:
    """The correlation of the ends of communication with the ends of traffic, and its lag.

    `lag_ns` is positive if the wire is later than the trace, and wrong by at most `error_ns`. `rival` is the best
    correlation at another lag. `apart` says that the clocks differ. `problem` says why they cannot be aligned, empty if
    they can.
    """

    lag_ns: int = 0
    correlation: float = 0.0
    rival: float = 0.0
    error_ns: int = 0
    apart: bool = False
    problem: str = ""


def match_clocks(communication: IntervalSet, wire: WireActivity) -> ClockMatch:
    """The lag of the wire behind communication kernels that use it."""
    if not communication.starts.size:
        return ClockMatch(problem="no communication kernel uses the wire")
    begin = int(communication.starts[0]) - 2 * REACH_NS
    end = int(communication.ends[-1]) + 2 * REACH_NS
    first = max(0, int(np.searchsorted(wire.edges_ns, begin, side="right")) - 1)
    last = min(wire.shares.size, int(np.searchsorted(wire.edges_ns, end)))
    if last - first < MIN_SAMPLES:
        return ClockMatch(problem="the recording has less than 20 samples of the time of the trace")
    edges, shares = wire.edges_ns[first : last + 1], wire.shares[first:last]
    falls = _falls(shares)
    known = ~np.isnan(falls)
    # about the number of bursts that ended
    ends = float(falls[known].sum())
    if ends < MIN_ENDS:
        return ClockMatch(problem=f"only {ends:.0f} bursts end on the wire, and it takes {MIN_ENDS}")

    def correlate(lag_ns: int) -> float:
        covered = communication.shift(lag_ns).lengths_ns(edges[:-1], edges[1:]) / wire.interval_ns
        return _correlation(_falls(covered)[known], falls[known])

    coarse = np.arange(-REACH_NS, REACH_NS + 1, COARSE_NS)
    found = np.array([correlate(int(lag)) for lag in coarse])
    around = coarse[int(found.argmax())] + np.arange(-COARSE_NS, COARSE_NS + 1, FINE_NS)
    fine = np.array([correlate(int(lag)) for lag in around])
    # of equal lags, the middle one
    best = np.flatnonzero(fine >= fine.max() - 1e-9)
    lag = int(around[best[best.size // 2]])
    apart = abs(lag) > APART_SAMPLES * wire.interval_ns
    others = coarse
    if apart:
        others = np.arange(-FAR_NS, FAR_NS + 1, wire.interval_ns // 4)
        found = np.array([correlate(int(each)) for each in others])
    rival = float(found[np.abs(others - lag) > APART_SAMPLES * wire.interval_ns].max(initial=0.0))
    match = ClockMatch(lag, float(fine.max()), rival, _bound_lag(communication.ends, edges, shares, lag), apart)
    return replace(match, problem=_problem(match))


def _bound_lag(ends: Counts, edges: Counts, shares: Floats, lag: int) -> int:
    """The largest error of a lag.

    A burst ended within its last active sample, so with the true lag the ends of kernels lie in such samples. If some
    of them do not, because other ranks use the wire as well, as many others may be there by chance.
    """
    interval = int(edges[1] - edges[0])
    last = np.flatnonzero((shares[:-1] > 0) & (shares[1:] == 0))
    middle = edges[last] + interval // 2 - lag
    place = np.searchsorted(ends, middle)
    before, after = ends[np.maximum(place - 1, 0)], ends[np.minimum(place, ends.size - 1)]
    nearest = np.where(np.abs(middle - before) < np.abs(after - middle), before, after)
    low = (edges[last] - nearest)[np.abs(nearest - middle) < APART_SAMPLES * interval]
    if not low.size:
        return interval
    cuts = np.unique(np.concatenate((low, low + interval)))
    agreeing = np.searchsorted(np.sort(low), cuts[:-1], side="right") - np.searchsorted(
        np.sort(low) + interval, cuts[:-1], side="right"
    )
    possible = np.flatnonzero(agreeing >= 2 * agreeing.max() - low.size)
    error = max(lag - int(cuts[possible[0]]), int(cuts[possible[-1] + 1]) - lag, 0)
    return error + round(LATE_PART * interval)


def _problem(match: ClockMatch) -> str:
    if match.correlation < MIN_CORRELATION:
        return (
            f"the correlation of communication with the wire is {match.correlation:.2f}, below {MIN_CORRELATION}: "
            "another node, another clock, or other traffic"
        )
    if match.correlation - match.rival < MIN_LEAD:
        return (
            f"the correlation is {match.correlation:.2f} at a lag of {match.lag_ns / 1e6:+.1f} ms and "
            f"{match.rival:.2f} at another one: not clear, communication is too regular or too short for the samples"
        )
    return ""


def _falls(shares: Floats) -> Floats:
    """Decrease of the active share from each sample to the next: (samples - 1,), NaN next to missing ones."""
    return np.maximum(0.0, -np.diff(shares))


def _correlation(first: Floats, second: Floats) -> float:
    """Pearson's correlation, 0 if one of both is constant."""
    a, b = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else 0.0


@dataclass(frozen=True, slots=True)
class ExposedTime:
    """The use of a span of `length_ns`. Without rounding, length = computation + exposed + idle.

    `idle_ns` is without any kernel; `copying_ns` is the part of it with a memory copy.
    """

    length_ns: int
    computation_ns: int
    communication_ns: int
    exposed_ns: int
    copying_ns: int

    @property
    def overlap_ns(self) -> int:
        """Communication during computation."""
        return self.communication_ns - self.exposed_ns

    @property
    def idle_ns(self) -> int:
        """Time without any kernel."""
        return self.length_ns - self.computation_ns - self.exposed_ns

    @property
    def overlap_ratio(self) -> float | None:
        """Overlap ÷ communication, None without communication."""
        return self.overlap_ns / self.communication_ns if self.communication_ns else None


@dataclass(frozen=True, slots=True)
class CommunicatorTime:
    """Communication of one communicator: `exposed` are its exposed times, `step_exposed_ns` their length in each step.

    Communicators may run at the same time, so their times add up to more than those of the device.
    """

    work: CommunicatorWork
    exposed: IntervalSet
    step_communication_ns: tuple[int, ...]
    step_exposed_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeviceOverlap:
    """A device's times from its first kernel to its last, in each step, and of each communicator.

    `exposed` has the times of exposed communication. `outside_ns` is the communication in none of the steps.
    """

    device: DeviceTrace
    whole: ExposedTime
    steps: tuple[tuple[TraceStep, ExposedTime], ...]
    communicators: tuple[CommunicatorTime, ...]
    exposed: IntervalSet
    outside_ns: int


def measure_overlap(device: DeviceTrace, steps: Sequence[TraceStep]) -> DeviceOverlap:
    """The times of one device; steps without any of its time are left out."""
    shown = [step for step in steps if step.end_ns > device.begin_ns and step.begin_ns < device.end_ns]
    begins = np.array([device.begin_ns, *(step.begin_ns for step in shown)], dtype=np.int64)
    ends = np.array([device.end_ns, *(step.end_ns for step in shown)], dtype=np.int64)
    communication = device.communication
    exposed = communication - device.computation
    busy = device.computation | communication
    parts = (device.computation, communication, exposed, device.copies - busy)
    lengths = np.stack([ends - begins, *(part.lengths_ns(begins, ends) for part in parts)], axis=1)
    whole, *each = (ExposedTime(*map(int, row)) for row in lengths)
    communicators = []
    for work in device.communicators:
        alone = work.active - device.computation
        of_steps = (tuple(part.lengths_ns(begins[1:], ends[1:]).tolist()) for part in (work.active, alone))
        communicators.append(CommunicatorTime(work, alone, *of_steps))
    outside = (communication - union(begins[1:], ends[1:])).total_ns
    return DeviceOverlap(device, whole, tuple(zip(shown, each, strict=True)), tuple(communicators), exposed, outside)


@dataclass(frozen=True, slots=True)
class WireSplit:
    """Exposed time split by the activity of the wire: exposed = moving + waiting + inside_node + unmeasured.

    `moving_ns` is the estimate; it is at least `moving_low_ns` and at most `moving_high_ns`. `inside_node_ns` is the
    exposed time in which only communicators without a member on another node run, which the wire does not show.
    `unmeasured_ns` has no samples.
    """

    moving_ns: int
    moving_low_ns: int
    moving_high_ns: int
    waiting_ns: int
    inside_node_ns: int
    unmeasured_ns: int

    @property
    def waiting_low_ns(self) -> int:
        """Waiting, if all samples with any traffic are all traffic."""
        return self.moving_ns + self.waiting_ns - self.moving_high_ns

    @property
    def waiting_high_ns(self) -> int:
        """Waiting, if samples that may be partly traffic have none."""
        return self.moving_ns + self.waiting_ns - self.moving_low_ns


@dataclass(frozen=True, slots=True)
class ExposedOnWire:
    """The exposed time of a device: whole, in each step, and of each communicator; None for those inside the node.

    `explained_ratio` is the share of the wire's active time in which a communication kernel of the device runs, None if
    the wire was silent. `moving`, `waiting` are the estimate as times of the trace. `simulated` says that the wire is
    that of a simulator or a replay. `shift_ns` was added to the times of its samples, and overrides the match.
    """

    match: ClockMatch
    whole: WireSplit | None = None
    steps: tuple[WireSplit, ...] = ()
    communicators: tuple[WireSplit | None, ...] = ()
    explained_ratio: float | None = None
    moving: IntervalSet = EMPTY
    waiting: IntervalSet = EMPTY
    simulated: bool = False
    shift_ns: int | None = None


def split_exposed(overlap: DeviceOverlap, wire: WireActivity, gpus_per_node: int | None) -> ExposedOnWire:
    """Exposed time split by the wire; only the match and its problem if the clocks cannot be aligned."""
    device = overlap.device
    outer = [not work.communicator.inside_node(gpus_per_node) for work in device.communicators]
    crossing = union_of(work.active for work, out in zip(device.communicators, outer, strict=True) if out)
    match = match_clocks(crossing, wire)
    if match.problem and wire.shift_ns is None:
        return ExposedOnWire(match)
    lag = match.lag_ns if wire.shift_ns is None else 0
    active, certain, possible = (each.shift(-lag) for each in (wire.active, wire.certain, wire.possible))
    recorded = union(wire.edges_ns[:1], wire.edges_ns[-1:]).shift(-lag)
    # times without samples are missing
    missing = wire.missing.shift(-lag) | (EVERYTHING - recorded)

    def split(exposed: IntervalSet, inside: IntervalSet, begins: Counts, ends: Counts) -> list[WireSplit]:
        """The split of exposed time in each window; `inside` is exposed time that does not use the wire."""
        parts = (exposed, exposed & missing, inside, exposed & active, exposed & certain, exposed & possible)
        rows = np.stack([part.lengths_ns(begins, ends) for part in parts], axis=1).tolist()
        return [
            WireSplit(moving, low, high, total - lost - moving, within, lost)
            for total, lost, within, moving, low, high in rows
        ]

    exposed = crossing - device.computation
    begins = np.array([device.begin_ns, *(step.begin_ns for step, _ in overlap.steps)], dtype=np.int64)
    ends = np.array([device.end_ns, *(step.end_ns for step, _ in overlap.steps)], dtype=np.int64)
    whole, *steps = split(exposed, overlap.exposed - exposed, begins, ends)
    communicators = [
        split(each.exposed, EMPTY, begins[:1], ends[:1])[0] if out else None
        for each, out in zip(overlap.communicators, outer, strict=True)
    ]
    within = union(begins[:1], ends[:1])
    busy = active & within
    explained = (busy & device.communication).total_ns / busy.total_ns if busy.total_ns else None
    waiting = exposed - active - missing
    return ExposedOnWire(
        match,
        whole,
        tuple(steps),
        tuple(communicators),
        explained,
        exposed & active,
        waiting,
        wire.simulated,
        wire.shift_ns,
    )
