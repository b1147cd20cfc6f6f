"""Measures exposed communication, overlap and idle time of a trace, and splits exposed time into waiting and moving.

Communication is exposed while a communication kernel runs and no other kernel; copies are neither. The overlap is the
share of communication during which another kernel runs (HolisticTraceAnalysis, communication_analysis.py).
Times are exact to the nanosecond, for the whole trace, each step and each communicator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.core.arrays import Counts
from ibpulse.workbench.overlap.intervals import EMPTY, IntervalSet, union
from ibpulse.workbench.overlap.trace import CommunicatorWork, DeviceTrace, TraceStep, union_of
from ibpulse.workbench.overlap.wire import ClockMatch, WireActivity, match_clocks


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
    communicators = tuple(_measure_communicator(device, work, begins[1:], ends[1:]) for work in device.communicators)
    outside = (communication - union(begins[1:], ends[1:])).total_ns
    return DeviceOverlap(device, whole, tuple(zip(shown, each, strict=True)), communicators, exposed, outside)


def _measure_communicator(
    device: DeviceTrace, work: CommunicatorWork, begins: Counts, ends: Counts
) -> CommunicatorTime:
    exposed = work.active - device.computation
    lengths = (tuple(part.lengths_ns(begins, ends).tolist()) for part in (work.active, exposed))
    return CommunicatorTime(work, exposed, *lengths)


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
    that of a simulator or a replay; `shift_ns` was added to the times of its samples.
    """

    match: ClockMatch
    whole: WireSplit | None = None
    steps: tuple[WireSplit, ...] = ()
    communicators: tuple[WireSplit | None, ...] = ()
    explained_ratio: float | None = None
    moving: IntervalSet = EMPTY
    waiting: IntervalSet = EMPTY
    simulated: bool = False
    shift_ns: int = 0


def split_exposed(overlap: DeviceOverlap, wire: WireActivity, gpus_per_node: int | None) -> ExposedOnWire:
    """Exposed time split by the wire; only the match and its problem if the clocks cannot be aligned."""
    device = overlap.device
    outer = [not work.communicator.inside_node(gpus_per_node) for work in device.communicators]
    crossing = union_of(work.active for work, out in zip(device.communicators, outer, strict=True) if out)
    match = match_clocks(crossing, wire)
    if match.problem:
        return ExposedOnWire(match)
    seen = _Seen(wire, match.lag_ns)
    exposed = crossing - device.computation
    begins = np.array([device.begin_ns, *(step.begin_ns for step, _ in overlap.steps)], dtype=np.int64)
    ends = np.array([device.end_ns, *(step.end_ns for step, _ in overlap.steps)], dtype=np.int64)
    whole, *steps = seen.split(exposed, overlap.exposed - exposed, begins, ends)
    communicators = [
        seen.split(each.exposed, EMPTY, begins[:1], ends[:1])[0] if out else None
        for each, out in zip(overlap.communicators, outer, strict=True)
    ]
    within = union(begins[:1], ends[:1])
    active = seen.active & within
    explained = (active & device.communication).total_ns / active.total_ns if active.total_ns else None
    waiting = exposed - seen.active - seen.missing
    return ExposedOnWire(
        match,
        whole,
        tuple(steps),
        tuple(communicators),
        explained,
        exposed & seen.active,
        waiting,
        wire.simulated,
        wire.shift_ns,
    )


class _Seen:
    """The wire in the clock of the trace. Times without samples are missing."""

    def __init__(self, wire: WireActivity, lag_ns: int) -> None:
        self.active, self.certain, self.possible = (
            each.shift(-lag_ns) for each in (wire.active, wire.certain, wire.possible)
        )
        recorded = union(wire.edges_ns[:1], wire.edges_ns[-1:]).shift(-lag_ns)
        everything = IntervalSet(np.array([-(2**61)]), np.array([2**61]))
        self.missing = wire.missing.shift(-lag_ns) | (everything - recorded)

    def split(self, exposed: IntervalSet, inside: IntervalSet, begins: Counts, ends: Counts) -> list[WireSplit]:
        """The split of exposed time in each window; `inside` is exposed time that does not use the wire."""
        parts = [exposed, exposed & self.missing, inside]
        parts += [exposed & each for each in (self.active, self.certain, self.possible)]
        rows = np.stack([part.lengths_ns(begins, ends) for part in parts], axis=1).tolist()
        return [
            WireSplit(moving, low, high, total - missing - moving, within, missing)
            for total, missing, within, moving, low, high in rows
        ]
