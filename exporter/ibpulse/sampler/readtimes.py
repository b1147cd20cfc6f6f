"""How long the reads of each device took, measured on the instants that the ring holds. It must not judge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.ring import layout as at
from ibpulse.ring.reader import RingReader
from ibpulse.sampler.calibration import Cost
from ibpulse.sampler.plan import PlannedPort

Floats = npt.NDArray[np.float64]

# What holds in each of these parts of the span is no passing disturbance.
PARTS = 3
SPAN_SECONDS = 3.0
# planned samples of a part, and those that it must hold to tell anything
PART_SAMPLES = 20
FEWEST_SAMPLES = 2
# A rate rests on four reads of its port. Where 15 % of the reads are too long, half of the rates are holes, and twice
# the interval loses no more; below that a longer interval would lose more than it saves.
LONG = 0.85
TOLD = 0.99


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """The reads of a device: what they cost in each part of the span at least, and in no part more than.

    `p99_ns` and `worst_ns` are of single reads over the whole span.
    """

    lasting: Cost
    highest: Cost
    p99_ns: float
    worst_ns: float


def measure_reads(reader: RingReader, ports: Sequence[PlannedPort], last_tick: int) -> dict[str, ReadTimes]:
    """The read times of each device up to a tick; none of a device that was sampled too seldom to tell."""
    found: dict[str, list[tuple[Floats, Floats]]] = {}
    unknown: set[str] = set()
    for stride in sorted({port.stride for port in ports}):
        mine = [port for port in ports if port.stride == stride]
        for port, parts, whole in zip(mine, *_measure(reader, mine, stride, last_tick), strict=True):
            if np.isnan(parts).any():
                unknown.add(port.device)
            found.setdefault(port.device, []).append((parts, whole))
    return {device: _sum_up(of_ports) for device, of_ports in found.items() if device not in unknown}


def _measure(reader: RingReader, ports: Sequence[PlannedPort], stride: int, last_tick: int) -> tuple[Floats, Floats]:
    """Long read and mean tick of each part, (ports, PARTS, 2), NaN where unknown; p99 and worst read, (ports, 2)."""
    samples = max(PART_SAMPLES, int(SPAN_SECONDS / PARTS * 1e9 / reader.interval_ns) // stride)
    last_tick -= last_tick % stride
    block = reader.read([port.slot for port in ports], last_tick - (PARTS * samples - 1) * stride, last_tick)
    present = block.present[:, ::stride].reshape(len(ports), PARTS, samples)
    stamps = block.records[:, ::stride, at.R_BEFORE : at.R_AFTER + 1].astype(np.float64)
    reads = np.diff(stamps, axis=2).reshape(*present.shape, 2)
    # below all that was measured
    reads[~present] = -1.0
    count = np.count_nonzero(present, axis=2)
    mean = np.where(present, reads.sum(axis=3), 0.0).sum(axis=2) / np.maximum(count, 1)
    each = np.sort(reads.reshape(*present.shape[:2], -1), axis=2)
    parts = np.stack([_quantile(each, 2 * count, LONG), mean], axis=2)
    parts[count < FEWEST_SAMPLES] = np.nan
    whole = np.sort(each.reshape(len(ports), -1), axis=1)
    told = _quantile(whole, 2 * count.sum(axis=1), TOLD)
    return parts, np.stack([told, whole[:, -1]], axis=1)


def _quantile(ordered: Floats, count: npt.NDArray[np.intp], part: float) -> Floats:
    """The value that `part` of the last `count` values, the largest, do not exceed; along the last axis."""
    index = ordered.shape[-1] - 1 - np.floor((1 - part) * count).astype(np.intp)
    return np.asarray(np.take_along_axis(ordered, index[..., None], axis=-1)[..., 0])


def _sum_up(ports: Sequence[tuple[Floats, Floats]]) -> ReadTimes:
    """The read times of the device that has these ports, each with its parts and its whole."""
    parts, whole = (np.array(numbers) for numbers in zip(*ports, strict=True))
    read, tick = parts[..., 0].max(axis=0), parts[..., 1].sum(axis=0)
    return ReadTimes(
        Cost(float(read.min()), float(tick.min())),
        Cost(float(read.max()), float(tick.max())),
        float(whole[:, 0].max()),
        float(whole[:, 1].max()),
    )
