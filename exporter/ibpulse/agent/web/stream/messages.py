"""Encodes the messages of the stream, which are server-sent events."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ibpulse.agent.aggregator.snapshot import PortSnapshot, Snapshot
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.jobs import JobPortsAnswer
from ibpulse.core.answers.statistics import NO_RAIL
from ibpulse.core.answers.stream import (
    StreamDirections,
    StreamEntry,
    StreamEvents,
    StreamJob,
    StreamJobSpan,
    StreamPort,
    StreamPorts,
    StreamPortTraffic,
    StreamSampler,
    StreamState,
    StreamSummary,
    StreamTraffic,
)
from ibpulse.core.events import Event
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.http.stream import answer_event
from ibpulse.core.jobs.claims import Key
from ibpulse.core.jobs.job_history import JobRecord
from ibpulse.core.metrics.row import Histogram
from ibpulse.core.model import PortState

PART = 0.99
DISAPPEARED = "disappeared"
STATE_MEMBERS = ("state", "physical", "active", "rate_bytes_per_second", "rail", "role", "problem")
# by the kind of an event; others can be large, such as the states of all ports at the start
EVENT_DETAILS: Mapping[str, Sequence[str]] = {"capture": ("name",)}
# on a node with very many short jobs, the newest
MAX_JOB_SPANS = 500


def ports_event(
    ports: Sequence[KnownPort],
    states: Mapping[str, Sequence[tuple[int, PortState | None]]],
    interval_ns: int,
    history_ns: int,
    version: str,
    simulated: bool,
    jobs: Iterable[JobRecord],
    since_ns: int,
    job: JobPortsAnswer | None,
) -> bytes:
    """The series of the following batches: two per port, transmit before receive, in this order.

    `states` holds the states of each port over the history, oldest first, each with the wall time (ns) at which it
    began. `jobs` are those of the history, which goes back to `since_ns`. `job` describes the one whose ports they are,
    if only these were asked for. Models cost 80 µs more than dictionaries with 8 ports, but only after a change of a
    port or of a job.
    """
    chosen: dict[str, Any] = {} if job is None else {"job": job}
    data = StreamPorts.model_construct(
        version=version,
        interval_ms=interval_ns // MILLISECOND_NS,
        history_ms=history_ns // MILLISECOND_NS,
        simulated=simulated,
        ports=[_describe(known, states.get(str(known.port.id), ())) for known in ports],
        jobs=_describe_jobs(jobs, since_ns),
        **chosen,
    )
    return answer_event("ports", data)


def _describe(known: KnownPort, states: Sequence[tuple[int, PortState | None]]) -> StreamPort:
    state = known.state
    return StreamPort.model_construct(
        port=str(known.port.id),
        rail=known.port.rail if state is None else state.rail,
        role=known.port.role if state is None else state.role,
        active=state is not None and state.active,
        state=DISAPPEARED if state is None else state.state,
        rate_bytes_per_second=known.port.rate_bytes_per_second if state is None else state.rate_bytes_per_second,
        problem=DISAPPEARED if state is None else state.problem,
        problem_text=known.problem,
        since_ms=None if known.since_ns is None else known.since_ns // MILLISECOND_NS,
        states=[
            StreamState.model_construct(from_ms=begin_ns // MILLISECOND_NS, **_members(each))
            for begin_ns, each in states
        ],
    )


def _describe_jobs(jobs: Iterable[JobRecord], since_ns: int) -> list[StreamJobSpan]:
    """The times since `since_ns` in which jobs had ports: those that last until now, then the last that ended."""
    held = [
        (each, record.job.claim)
        for record in jobs
        for each in record.holdings
        if each.ports and (each.until is None or each.until.time_ns > since_ns)
    ]
    held.sort(key=lambda one: -(math.inf if one[0].until is None else one[0].until.time_ns))
    return [
        StreamJobSpan.model_construct(
            job_id=claim.id,
            scheduler=claim.scheduler,
            name=claim.name,
            ports=[str(port) for port in each.ports],
            from_ms=None if each.since is None else each.since.time_ns // MILLISECOND_NS,
            to_ms=None if each.until is None else each.until.time_ns // MILLISECOND_NS,
        )
        for each, claim in held[:MAX_JOB_SPANS]
    ]


def _members(state: PortState | None) -> dict[str, Any]:
    if state is None:
        return {"state": DISAPPEARED}
    return {name: getattr(state, name) for name in STATE_MEMBERS}


def log_event(events: Iterable[Event]) -> bytes:
    """Events of the log as in `/api/v1/events`, without the states of ports, which `ports` has."""
    return answer_event("events", StreamEvents.model_construct(events=[_entry(each) for each in events]))


def _entry(found: Event) -> StreamEntry:
    return StreamEntry.model_construct(
        time_ms=found.time_ns // MILLISECOND_NS,
        uncertainty_ms=-(-found.uncertainty_ns // MILLISECOND_NS),
        kind=found.kind,
        subject=found.subject,
        text=found.text,
        details={name: found.details[name] for name in EVENT_DETAILS.get(found.kind, ()) if name in found.details},
    )


def describe_second(snapshot: Snapshot, job: Key | None = None, names: Sequence[str] = ()) -> StreamSummary:
    """The data of one event `summary`; unknown values are null.

    With `job`, the numbers are those of the job in place of the node's, and the ports are those of these names.
    """
    chosen = [port for port in snapshot.ports if port.directions and (job is None or str(port.port.id) in names)]
    numbers: dict[str, Any] = {"node": _node(snapshot)} if job is None else {"job": _job(snapshot, job)}
    return StreamSummary.model_construct(
        end_ms=None if snapshot.end_wall_ns is None else snapshot.end_wall_ns // MILLISECOND_NS,
        **numbers,
        ports=[_port(port, snapshot.windows) for port in chosen],
        sampler=_sampler(snapshot),
        notices=list(snapshot.fabric.notices),
    )


def _node(snapshot: Snapshot) -> StreamTraffic:
    traffic = snapshot.traffic
    return StreamTraffic.model_construct(
        **vars(snapshot.rails),
        **vars(traffic.concluded),
        bandwidth_saturated=traffic.saturated,
        moe_saturated=traffic.moe_saturated,
        windows=dict(zip(snapshot.windows, snapshot.node, strict=True)),
    )


def _job(snapshot: Snapshot, key: Key) -> StreamJob | None:
    job = snapshot.statistics_of(key)
    if job is None:
        return None
    return StreamJob.model_construct(
        job_id=job.job_id,
        duty_cycle_ratio=job.duty_cycle_ratio,
        active_bytes_per_second=job.active_bytes_per_second,
        rail_fairness_ratio=job.fairness,
        step_period_seconds=None if job.step_seconds is None or math.isnan(job.step_seconds) else job.step_seconds,
        last_traffic_ms=None if job.last_traffic_ns is None else job.last_traffic_ns // MILLISECOND_NS,
    )


def _port(port: PortSnapshot, windows: tuple[str, ...]) -> StreamPortTraffic:
    """A port with its peaks in the shortest window, for the marks on its bars."""
    transmit, receive = (direction.windows[0].peak_bytes_per_second for direction in port.directions)
    return StreamPortTraffic.model_construct(
        port=str(port.port.id),
        peak_window=windows[0],
        peak_bytes_per_second=StreamDirections.model_construct(transmit=transmit, receive=receive),
        **vars(port.balance or NO_RAIL),
        left_alone=port.left_alone,
        effective_resolution_seconds=port.effective_resolution_seconds,
    )


def _sampler(snapshot: Snapshot) -> StreamSampler:
    sampler, health = snapshot.sampler, snapshot.health
    return StreamSampler.model_construct(
        interval_seconds=sampler.interval_seconds,
        ticks=sampler.ticks,
        missed_ticks=sampler.missed_ticks,
        clock_steps=sampler.clock_steps,
        lateness_p99_bound_seconds=_bound_of(sampler.lateness),
        tick_duration_p99_bound_seconds=_bound_of(sampler.tick_duration),
        read_errors=sum(port.read_errors for port in snapshot.ports),
        implausible_samples=sum(port.implausible_samples for port in snapshot.ports),
        skipped_seconds=snapshot.skipped_seconds,
        heartbeat_age_seconds=health.heartbeat_age_seconds,
        restarts=health.restarts,
        takeovers=health.takeovers,
        quarantined_devices=list(health.quarantined_devices),
        scheduler=health.scheduler_actual,
        throttled_periods=health.throttled_periods,
    )


def _bound_of(histogram: Histogram) -> float | None:
    """The upper bound of the bucket with the 99th percentile; None without samples, or beyond the last bound."""
    count = histogram.cumulative[-1]
    if not count:
        return None
    index = bisect.bisect_left(histogram.cumulative, PART * count)
    return histogram.bounds[index] if index < len(histogram.bounds) else None
