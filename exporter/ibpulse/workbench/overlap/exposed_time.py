"""Exposed communication, overlap and idle time of a trace: per step and per communicator, exact to the nanosecond.

Communication is exposed while a communication kernel runs and no other kernel; copies are neither. The overlap is the
share of communication during which another kernel runs (HolisticTraceAnalysis, communication_analysis.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.core.arrays import Counts
from ibpulse.workbench.overlap.intervals import IntervalSet, union
from ibpulse.workbench.overlap.kineto_trace import Communicator, DeviceTrace, TraceStep


@dataclass(frozen=True, slots=True)
class ExposedTime:
    """How a span of `length_ns` was used. Without rounding, length = computation + exposed + idle.

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
    """Communication of one communicator. The sum over communicators counts time in which several run several times.

    `exposed` has the exposed times; `step_exposed_ns` is their length in each step.
    """

    communicator: Communicator
    kernels: int
    payload_bytes: int | None
    communication_ns: int
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
    communicators = tuple(
        _measure_communicator(device, place, begins, ends) for place in range(len(device.communicators))
    )
    inside = _merged_windows(shown)
    outside = (communication - inside).total_ns
    return DeviceOverlap(device, whole, tuple(zip(shown, each, strict=True)), communicators, exposed, outside)


def _measure_communicator(device: DeviceTrace, place: int, begins: Counts, ends: Counts) -> CommunicatorTime:
    work = device.communicators[place]
    exposed = work.active - device.computation
    return CommunicatorTime(
        work.communicator,
        work.kernels,
        work.payload_bytes,
        work.active.total_ns,
        exposed,
        tuple(work.active.lengths_ns(begins, ends).tolist()[1:]),
        tuple(exposed.lengths_ns(begins, ends).tolist()[1:]),
    )


def _merged_windows(steps: Sequence[TraceStep]) -> IntervalSet:
    begins = np.array([step.begin_ns for step in steps], dtype=np.int64)
    return union(begins, np.array([step.end_ns for step in steps], dtype=np.int64))
