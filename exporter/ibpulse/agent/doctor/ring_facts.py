"""Statistics of some seconds of the ring, per port and for the sampler itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.agent.doctor.facts import PortSamples, Reads
from ibpulse.agent.sampler.process import MAIN_LANE
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.statistics import RailStatistics
from ibpulse.core.jobs.claims import PlacedJob
from ibpulse.core.model import Fabric, PortId
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import Block, RingReader
from ibpulse.core.ring.spans import RingPort, place_ports, ticks_to_settle, widest_stride
from ibpulse.core.statistics.rates import increase
from ibpulse.core.statistics.resolution import effective_resolution

WHOLE_SECONDS = 3
# How far back resets are searched for in the ring of a daemon; a ring of doctor's own holds no more than its seconds.
HISTORY_SECONDS = 10
WINDOW_NS = WHOLE_SECONDS * SECOND_NS


@dataclass(frozen=True, slots=True)
class RingState:
    """State of the ring at one instant: its newest tick and its running totals."""

    tick: int
    lane: tuple[int, ...]
    errors: Mapping[int, int]

    @classmethod
    def take(cls, ring: RingFile) -> RingState:
        """The current state of the ring."""
        begin = at.lane_at(MAIN_LANE)
        lane = tuple(ring.words[begin : begin + at.LANE_WORDS].tolist())
        errors = {slot: ring.slot_word(slot, at.S_ERRORS) for slot in ring.slots().values()}
        return cls(ring.latest_tick(), lane, errors)


def last_tick_needed(reader: RingReader, first_tick: int, ports: Sequence[RingPort]) -> int:
    """The tick after which the whole seconds that follow `first_tick` are complete."""
    ticks_per_second = SECOND_NS // reader.interval_ns
    settle = ticks_to_settle(reader.interval_ns, widest_stride(port.stride for port in ports))
    return (-(-first_tick // ticks_per_second) + WHOLE_SECONDS) * ticks_per_second + settle + 1


def read_port_samples(
    reader: RingReader,
    fabric: Fabric,
    begin: RingState,
    last_tick: int,
    active_bytes_per_second: float,
    jobs: Sequence[PlacedJob] = (),
) -> dict[PortId, PortSamples]:
    """Statistics of the samples after `begin` up to `last_tick`, for each port in the ring, and verdicts by `jobs`."""
    placed = place_ports(reader, fabric.ports, reader.ring.slots())
    standings = _rail_standings(reader, fabric, last_tick, active_bytes_per_second, jobs)
    return {
        port.port.id: _read_one_port(
            reader, port, begin, last_tick, active_bytes_per_second, standings.get(port.port.id)
        )
        for port in placed
    }


def _rail_standings(
    reader: RingReader, fabric: Fabric, last_tick: int, active_bytes_per_second: float, jobs: Sequence[PlacedJob]
) -> dict[PortId, RailStatistics]:
    """The aggregator's verdict on each rail over the last whole seconds."""
    options = AggregatorOptions(
        active_bytes_per_second, windows_ns=(WINDOW_NS,), timescales_ns=(SECOND_NS,), traffic_window_ns=WINDOW_NS
    )
    snapshot: Snapshot = Aggregator(reader, options).update(fabric, last_tick, jobs=jobs)
    return {one.port.id: one.traffic.rail for one in snapshot.ports if one.traffic and one.traffic.rail}


def _read_one_port(
    reader: RingReader,
    port: RingPort,
    begin: RingState,
    last_tick: int,
    active_bytes_per_second: float,
    standing: RailStatistics | None,
) -> PortSamples:
    ring, slot = reader.ring, port.slot
    # samples are at multiples of the stride
    first_tick = (begin.tick // port.stride + 1) * port.stride
    block = reader.read([slot], first_tick, last_tick)
    history = reader.read([slot], max(1, last_tick - _history_ticks(reader)), last_tick)
    rates = _mean_rates(block)
    status = ring.slot_word(slot, at.S_STATUS)
    return PortSamples(
        samples=int(np.count_nonzero(block.valid()[0].all(axis=0))),
        expected=max(0, last_tick - first_tick) // port.stride + 1,
        stride=port.stride,
        reads=_measure_reads(block.records[0][block.present[0]]),
        rates=rates,
        resets=int(increase(history.counters(), history.valid(), history.scale).resets[0]),
        errors=ring.slot_word(slot, at.S_ERRORS) - begin.errors.get(slot, 0),
        last_errno=ring.slot_word(slot, at.S_LAST_ERRNO),
        left_alone=status == at.LEFT_ALONE,
        gone=status == at.GONE,
        resolution_seconds=_measure_resolution(block, port.stride, rates, active_bytes_per_second),
        standing=standing,
    )


def _mean_rates(block: Block) -> tuple[float, float] | None:
    """Bytes per second per direction between the first and the last valid sample; None with fewer than two."""
    instants = block.time_ns()[0][0, block.valid()[0].all(axis=0)]
    if len(instants) < 2:
        return None
    moved = increase(block.counters(), block.valid(), block.scale).moved_bytes[0]
    seconds = float(instants[-1] - instants[0]) / SECOND_NS
    return float(moved[0]) / seconds, float(moved[1]) / seconds


def _measure_resolution(
    block: Block, stride: int, rates: tuple[float, float] | None, active_bytes_per_second: float
) -> float | None:
    """Seconds between two changes of a counter under traffic; None without traffic."""
    if rates is None or max(rates) <= active_bytes_per_second:
        return None
    planned = block.every(stride)
    counters, valid, instants = planned.counters()[0], planned.valid()[0], planned.time_ns()[0]
    found = effective_resolution(instants, counters, valid, int(block.scale[0]), active_bytes_per_second)
    if not math.isnan(found):
        return found
    # the counter changes too rarely for that: use the average time between its changes
    busiest = int(np.argmax(rates))
    kept = counters[busiest][valid[busiest]]
    times = instants[busiest][valid[busiest]]
    changes = int(np.count_nonzero(kept[1:] > kept[:-1]))
    return float(times[-1] - times[0]) / SECOND_NS / changes if changes else None


def _history_ticks(reader: RingReader) -> int:
    return min(reader.readable_ticks, HISTORY_SECONDS * SECOND_NS // reader.interval_ns)


def _measure_reads(records: npt.NDArray[np.uint64]) -> Reads | None:
    """Quantiles of the read times in `records` (samples, 6), both directions together; None without records."""
    if not len(records):
        return None
    stamps = records[:, at.R_BEFORE : at.R_AFTER + 1].astype(np.int64)
    single = np.abs(np.diff(stamps, axis=1)).ravel() / SECOND_NS
    both = np.ptp(stamps, axis=1) / SECOND_NS
    p50, p99 = np.quantile(single, (0.5, 0.99))
    return Reads(len(single), float(p50), float(p99), float(single.max()), float(np.quantile(both, 0.99)))


def quantile_of_lateness(begin: RingState, end: RingState, share: float) -> float | None:
    """Upper bound in seconds of this quantile of the wake-up delay between two states; None without a tick."""
    counts = np.array(end.lane[at.L_LATENESS : at.L_LATENESS + at.BUCKET_COUNT]) - np.array(
        begin.lane[at.L_LATENESS : at.L_LATENESS + at.BUCKET_COUNT]
    )
    total = int(counts.sum())
    if total <= 0:
        return None
    bucket = int(np.searchsorted(np.cumsum(counts), share * total))
    return at.LATENESS_BOUNDS_NS[bucket] / SECOND_NS if bucket < len(at.LATENESS_BOUNDS_NS) else float("inf")


def forgotten_ports(ring: RingFile, fabric: Fabric) -> tuple[str, ...]:
    """Ports that the ring marks as disappeared and that are not in the fabric."""
    here = {str(port.id) for port in fabric.ports}
    slots = ring.slots()
    return tuple(name for name, slot in slots.items() if name not in here and ring.slot_word(slot, at.S_STATUS))
