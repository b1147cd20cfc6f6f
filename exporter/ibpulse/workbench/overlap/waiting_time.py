"""Splits exposed communication into waiting and moving, by whether the wire of the node was active."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ibpulse.core.arrays import Counts
from ibpulse.workbench.overlap.clock_match import ClockMatch, match_clocks
from ibpulse.workbench.overlap.exposed_time import DeviceOverlap
from ibpulse.workbench.overlap.intervals import EMPTY, IntervalSet, union
from ibpulse.workbench.overlap.kineto_trace import union_of
from ibpulse.workbench.overlap.wire_activity import WireActivity


@dataclass(frozen=True, slots=True)
class WireSplit:
    """Exposed time by what the wire did: exposed = moving + waiting + inside_node + unmeasured.

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
