"""Some seconds of samples, from a running daemon or from a temporary sampler.

A running daemon is not disturbed: doctor maps its ring read-only, leaves its lock alone, and samples nothing itself.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.agent.doctor.facts import SUBJECT, DoctorOptions, EventFacts, PortSamples, Reads, SamplingResult
from ibpulse.agent.jobs.owners import find_owners
from ibpulse.agent.sampler.kernel import quota_cpus, throttled_periods
from ibpulse.agent.sampler.lane import StartProcess, start_sampler
from ibpulse.agent.sampler.plan import STOP, plan_path, read_plan
from ibpulse.agent.sampler.process import MAIN_LANE
from ibpulse.agent.sampler.supervisor import PortInventory, SupervisorOptions
from ibpulse.agent.sampler.temporary_sampler import TemporarySampler, temporary_sampler
from ibpulse.base.clocks import Clock
from ibpulse.base.errors import IbpulseError, RingError, SamplerError
from ibpulse.base.owned_files import find_directories
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.summary import RailStatistics
from ibpulse.core.arrays import Words
from ibpulse.core.events.log import NAME, read_events
from ibpulse.core.jobs import PlacedJob, find_running_jobs
from ibpulse.core.model import Fabric, PortId, SamplerHealth
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import Block, RingReader
from ibpulse.core.ring.spans import RingPort, place_ports, ticks_to_settle, widest_stride
from ibpulse.core.statistics.rates import effective_resolution, increase

WHOLE_SECONDS = 3
# How far back resets are searched for in the ring of a daemon; a ring of doctor's own holds no more than its seconds.
HISTORY_SECONDS = 10
WINDOW_NS = WHOLE_SECONDS * SECOND_NS
POLL_SECONDS = 0.1
SCAN_SECONDS = 1.0
# The whole run must end within ten seconds, even if a device hangs.
MAX_SAMPLING_SECONDS = 5.5
# A heartbeat moves at every tick, and an interval is a second at most.
HEARTBEAT_SECONDS = 1.3
OWN_CAPACITY_SECONDS = 12
_UNPRINTABLE = re.compile(r"[^ -~]+")


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
    return {one.port.id: one.balance for one in snapshot.ports if one.balance}


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
        slow_signals=ring.slow_readings(slot),
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


def _measure_reads(records: Words) -> Reads | None:
    """Quantiles of the read times in `records` (samples, 6), both directions together; None without records."""
    if not len(records):
        return None
    stamps = records[:, at.R_BEFORE : at.R_AFTER + 1].astype(np.int64)
    single = np.abs(np.diff(stamps, axis=1)).ravel() / SECOND_NS
    both = np.ptp(stamps, axis=1) / SECOND_NS
    p50, p99 = np.quantile(single, (0.5, 0.99))
    return Reads(float(p50), float(p99), float(single.max()), float(np.quantile(both, 0.99)))


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


def find_daemon(options: DoctorOptions, clock: Clock = time) -> RingFile | None:
    """The ring of a running daemon that samples this tree, mapped read-only; None if there is no such daemon."""
    for directory in find_directories(options.ring_dir):
        try:
            ring = RingFile(directory / "ring", writable=False, clock=clock)
        except RingError:
            continue
        if _samples(ring, options.sysfs) and _lives(ring):
            return ring
        ring.close()
    return None


def read_event_facts(ring_dir: Path, clock: Clock = time) -> EventFacts:
    """The events next to the ring, without subjects and characters that a terminal would not show as text."""
    now_ns = clock.time_ns()
    try:
        events = read_events(ring_dir / NAME)
    except OSError as error:
        return EventFacts(now_ns=now_ns, problem=f"event log {ring_dir / NAME} cannot be read: {error.strerror}")
    except ValueError as error:
        return EventFacts(now_ns=now_ns, problem=_UNPRINTABLE.sub("?", str(error)))
    shown = (replace(each, text=_UNPRINTABLE.sub("?", each.text)) for each in events if SUBJECT.fullmatch(each.subject))
    return EventFacts(tuple(shown), now_ns)


def _samples(ring: RingFile, sysfs: Path) -> bool:
    """Whether the ring's plan reads files of this tree; False for a plan without files, which could be of any tree."""
    try:
        ports = read_plan(plan_path(ring.path, MAIN_LANE)).ports
    except (OSError, ValueError, IbpulseError):
        return False
    root = os.path.join(os.path.abspath(sysfs), "")
    return bool(ports) and all(path.startswith(root) for port in ports for path in (*port.transmit, *port.receive))


def _lives(ring: RingFile) -> bool:
    index = at.lane_at(MAIN_LANE) + at.L_HEARTBEAT_NS
    clock = ring.clock
    before, deadline = ring.words[index], clock.monotonic() + HEARTBEAT_SECONDS
    if clock.monotonic_ns() - before > HEARTBEAT_SECONDS * SECOND_NS:
        return False
    while clock.monotonic() < deadline:
        if ring.words[index] != before:
            return True
        clock.sleep(0.02)
    return False


async def read_daemon_samples(ring: RingFile, inventory: PortInventory, options: DoctorOptions) -> SamplingResult:
    """Samples of a running daemon over the next seconds; the only additional reads are the inventory's scans."""
    fabric = await asyncio.to_thread(inventory.scan)
    seen = [fabric]
    begin = RingState.take(ring)

    async def scan_again() -> None:
        while True:
            await asyncio.sleep(SCAN_SECONDS)
            _keep_if_changed(seen, await asyncio.to_thread(inventory.scan))

    scanning = asyncio.create_task(scan_again())
    try:
        await _wait(RingReader(ring), lambda: seen[-1], begin)
    finally:
        scanning.cancel()
        await asyncio.gather(scanning, return_exceptions=True)
    return _sampling_result(ring, seen, _daemon_health(ring, options), begin, options, by_daemon=True)


async def take_samples(
    inventory: PortInventory,
    sampling: SupervisorOptions,
    options: DoctorOptions,
    clock: Clock = time,
    start_process: StartProcess = start_sampler,
) -> SamplingResult:
    """Samples over the next seconds by a temporary sampler, which runs under the daemon's supervisor.

    Raises:
        IbpulseError: there is no space for the ring, or the process cannot be started.
    """
    often = replace(sampling, scan_seconds=SCAN_SECONDS)
    interval_ns, capacity_seconds = options.interval_ns, OWN_CAPACITY_SECONDS
    async with temporary_sampler(
        inventory, often, interval_ns, capacity_seconds, None, clock, start_process
    ) as sampler:
        supervisor, reader = sampler.supervisor, sampler.reader
        seen = [supervisor.fabric]
        begin = await _await_first_tick(sampler)
        await _wait(reader, lambda: _keep_if_changed(seen, supervisor.fabric), begin, lambda: sampler.ended)
        sampler.check()
        return _sampling_result(reader.ring, seen, supervisor.health(), begin, options, by_daemon=False)


async def _await_first_tick(sampler: TemporarySampler) -> RingState:
    ring = sampler.reader.ring
    deadline = ring.clock.monotonic() + MAX_SAMPLING_SECONDS / 2
    while not ring.latest_tick() and ring.clock.monotonic() < deadline and not sampler.ended:
        await asyncio.sleep(0.02)
    if not ring.latest_tick():
        raise SamplerError("the sampler took no sample; see its own message above, if any")
    # the first tick is part of the result
    mark = RingState.take(ring)
    return RingState(mark.tick - 1, (0,) * len(mark.lane), {})


async def _wait(
    reader: RingReader, fabric: Callable[[], Fabric], begin: RingState, ended: Callable[[], bool] = lambda: False
) -> None:
    """Wait until the whole seconds after `begin` are complete, or until sampling times out."""
    clock = reader.ring.clock
    deadline = clock.monotonic() + MAX_SAMPLING_SECONDS
    while clock.monotonic() < deadline and not ended():
        ports = place_ports(reader, fabric().ports, reader.ring.slots())
        if reader.newest_tick() > last_tick_needed(reader, begin.tick, ports):
            return
        await asyncio.sleep(POLL_SECONDS)


def _keep_if_changed(seen: list[Fabric], fabric: Fabric) -> Fabric:
    """Append the fabric if it differs from the last one, and return it."""
    if fabric != seen[-1]:
        seen.append(fabric)
    return fabric


def _sampling_result(
    ring: RingFile,
    seen: list[Fabric],
    health: SamplerHealth,
    begin: RingState,
    options: DoctorOptions,
    *,
    by_daemon: bool,
) -> SamplingResult:
    reader = RingReader(ring)
    last_tick = reader.newest_tick()
    jobs = find_running_jobs(read_event_facts(ring.path.parent, ring.clock).events) if by_daemon else ()
    # include ports that disappeared during sampling
    ports = {
        port: samples
        for fabric in seen
        for port, samples in read_port_samples(
            reader, fabric, begin, last_tick, options.active_bytes_per_second, jobs
        ).items()
    }
    end = RingState.take(ring)
    process = str(end.lane[at.L_PID])
    seconds = (end.tick - begin.tick) * ring.interval_ns / SECOND_NS
    reach = min(HISTORY_SECONDS, ring.capacity * ring.interval_ns // SECOND_NS) if by_daemon else seconds
    return SamplingResult(
        by_daemon=by_daemon,
        interval_ns=ring.interval_ns,
        seconds=seconds,
        history_seconds=reach,
        fabrics=tuple(seen),
        health=health,
        ports=ports,
        ticks=end.lane[at.L_TICKS] - begin.lane[at.L_TICKS],
        missed_ticks=end.lane[at.L_MISSED] - begin.lane[at.L_MISSED],
        clock_steps=end.lane[at.L_CLOCK_STEPS] - begin.lane[at.L_CLOCK_STEPS],
        lateness_p50=quantile_of_lateness(begin, end, 0.5),
        lateness_p99=quantile_of_lateness(begin, end, 0.99),
        timer_slack_ns=_read_slack(options.root, process),
        quota_cpus=quota_cpus(options.root, process),
        throttled_periods=throttled_periods(options.root, process),
        remembered=forgotten_ports(ring, seen[-1]),
        owners=find_owners(jobs),
    )


def _read_slack(root: Path, process: str) -> int | None:
    """Timer slack of the sampler in ns (proc(5)); None if not permitted or if it runs in another PID namespace."""
    try:
        return int((root / f"proc/{process}/timerslack_ns").read_text())
    except (OSError, ValueError):
        return None


def _daemon_health(ring: RingFile, options: DoctorOptions) -> SamplerHealth:
    """Health of the daemon's sampler, from its ring."""
    lane = at.lane_at(MAIN_LANE)
    fifo, pinned = ring.words[lane + at.L_FIFO], ring.words[lane + at.L_PINNED]
    asked = "other" if fifo == at.ABSENT else "fifo"
    cpu = "" if pinned == at.ABSENT or options.cpu is None else str(options.cpu)
    return SamplerHealth(
        quarantined_devices=_find_quarantined(ring),
        scheduler_requested=asked,
        scheduler_actual="fifo" if fifo == 0 else "other",
        cpu_requested=cpu,
        cpu_actual=cpu if pinned == 0 else "",
    )


def _find_quarantined(ring: RingFile) -> tuple[str, ...]:
    """Quarantined devices whose sampler process hangs; slow devices that still answer are not included."""
    found: list[str] = []
    for lane in range(1, at.LANE_COUNT):
        words = ring.words[at.lane_at(lane) : at.lane_at(lane) + at.LANE_WORDS]
        silence_ns = ring.clock.monotonic_ns() - words[at.L_HEARTBEAT_NS]
        if words[at.L_PLAN_WANTED] not in (0, STOP) and silence_ns > HEARTBEAT_SECONDS * SECOND_NS:
            try:
                found += read_plan(plan_path(ring.path, lane)).devices()
            except (OSError, ValueError, IbpulseError):
                continue
    return tuple(dict.fromkeys(found))
