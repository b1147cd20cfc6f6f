"""The phases of a job in its traffic, the thresholds by which they are found, and what they are found in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND

FIRST_TRAFFIC, FIRST_STEP, BARRIER, CHECKPOINT = KINDS = ("first-traffic", "first-step", "barrier", "checkpoint")


@dataclass(frozen=True, slots=True)
class PhaseRules:
    """The thresholds, and why they are what they are.

    `start_quiet_seconds`: a start follows at least this much silence; barriers and evaluations take less, and saving
    shows on storage ports. `least_quiet_seconds`: a shorter silence is a pause between bursts. `lasting_seconds`:
    traffic that ends earlier may be a test and not a job. `barrier_gaps`: a barrier lasts this many times as long as
    the usual longest silence of a step, which a delayed step at most doubles. `barrier_periods`: and at least this
    share of a step, because the tiny silences of steps that have hardly any vary by more than that. `most_missing`:
    with a larger share of missing data, a silence is not even a guess. `checkpoint_pause_seconds`: within a checkpoint,
    a file system pauses for less. `checkpoint_bytes`: log files and metrics are smaller. `checkpoint_share`: a guess
    needs this share of the bytes while the rails are silent; `certain_share`: a checkpoint that stops the job has it.
    """

    active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND
    start_quiet_seconds: float = 30.0
    least_quiet_seconds: float = 1.0
    lasting_seconds: float = 10.0
    barrier_gaps: float = 4.0
    barrier_periods: float = 0.5
    most_missing: float = 0.1
    checkpoint_pause_seconds: float = 1.0
    checkpoint_bytes: float = 1e8
    checkpoint_share: float = 0.5
    certain_share: float = 0.9


@dataclass(frozen=True, slots=True)
class PhaseTraffic:
    """Samples of a node at equal intervals; NaN where data is missing.

    `rails` (samples,) is transmit + receive of all rails, `storage` (2, samples) transmit and receive of all storage
    ports, None if the node has none. `troubled` (samples,) is true where the link of a rail was down, or may have been.
    Counters resolve nothing shorter than `resolution` samples.
    """

    rails: Floats
    troubled: Bools
    interval_seconds: float
    storage: Floats | None = None
    resolution: int = 1


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase from sample `first` to before `end`; it begins at most `uncertainty` samples before or after
    that.

    `doubt` says why it is a guess, and is empty if it is certain. `silent_seconds` is the silence of the rails: before
    the first traffic, at a barrier, during a checkpoint. `transmitted` and `received` are the bytes of storage ports
    in a checkpoint; NaN for others.
    """

    kind: str
    first: int
    end: int
    uncertainty: int
    doubt: str = ""
    silent_seconds: float = math.nan
    transmitted: float = math.nan
    received: float = math.nan

    @property
    def certain(self) -> bool:
        """Whether it is certain and not a guess."""
        return not self.doubt

    def overlaps(self, first: int, end: int) -> bool:
        """Whether it has samples in a part."""
        return self.first < end and first < self.end
