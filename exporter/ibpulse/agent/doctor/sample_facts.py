"""Some seconds of samples, from a running daemon or from a temporary sampler.

A running daemon is not disturbed: doctor maps its ring read-only, leaves its lock alone, and samples nothing itself.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ibpulse.agent.doctor.facts import SUBJECT, DoctorOptions, EventFacts, SamplingResult
from ibpulse.agent.doctor.ring_facts import (
    HISTORY_SECONDS,
    RingState,
    forgotten_ports,
    last_tick_needed,
    quantile_of_lateness,
    read_port_samples,
)
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
from ibpulse.core.events import Event
from ibpulse.core.events.log import NAME, read_events
from ibpulse.core.jobs import find_running_jobs
from ibpulse.core.model import Fabric, SamplerHealth
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import place_ports

POLL_SECONDS = 0.1
SCAN_SECONDS = 1.0
# The whole run must end within ten seconds, even if a device hangs.
MAX_SAMPLING_SECONDS = 5.5
# A heartbeat moves at every tick, and an interval is a second at most.
HEARTBEAT_SECONDS = 1.3
OWN_CAPACITY_SECONDS = 12
_UNPRINTABLE = re.compile(r"[^ -~]+")


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
    return EventFacts(_make_printable(events), now_ns)


def _make_printable(events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(
        replace(event, text=_UNPRINTABLE.sub("?", event.text)) for event in events if SUBJECT.fullmatch(event.subject)
    )


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
