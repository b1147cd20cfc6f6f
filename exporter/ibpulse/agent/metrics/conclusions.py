"""What alerts need and only the node knows: whether its numbers can be trusted, and which job saturates it."""

from __future__ import annotations

from collections.abc import Iterator

from ibpulse.agent.aggregator.snapshot import Snapshot
from ibpulse.agent.metrics.ports import port_values
from ibpulse.base.units import SECOND_NS, parse_duration
from ibpulse.core.metrics.row import Labels, Subject

SILENT, HUNG, UNREADABLE, SLOW, MISSING = (
    "sampler-silent",
    "hung-device",
    "unreadable-port",
    "slow-counters",
    "missing-samples",
)
REASONS = (SILENT, HUNG, UNREADABLE, SLOW, MISSING)
# the supervisor restarts a silent sampler within three seconds
MAX_HEARTBEAT_AGE_SECONDS = 10.0
# above this share, lengths of bursts and steps are biased
MAX_MISSING_RATIO = 0.05
# jitter and quiet minutes never reach twice the sampling interval
MAX_RESOLUTION_INTERVALS = 2.0


def _unreliable(snapshot: Snapshot) -> Iterator[tuple[Labels, None]]:
    """The reasons, with device and port if it is one of these; missing samples only if nothing explains them."""
    health, causes = snapshot.health, 0
    if (health.heartbeat_age_seconds or 0.0) > MAX_HEARTBEAT_AGE_SECONDS:
        causes += 1
        yield (SILENT, "", ""), None
    for device in health.quarantined_devices:
        causes += 1
        yield (HUNG, device, ""), None
    for port in snapshot.ports:
        resolution = port.effective_resolution_seconds
        if port.left_alone:
            causes += 1
            yield (UNREADABLE, *port_values(port.port.id)), None
        elif resolution is not None and resolution > MAX_RESOLUTION_INTERVALS * port.sampling_interval_seconds:
            yield (SLOW, *port_values(port.port.id)), None
    if not causes and _misses_samples(snapshot):
        yield (MISSING, "", ""), None


def _misses_samples(snapshot: Snapshot) -> bool:
    """Whether too many samples of the longest window are missing, once the sampler has run for as long."""
    sampler = snapshot.sampler
    ran_ns = (sampler.ticks + sampler.missed_ticks) * sampler.interval_seconds * SECOND_NS
    if not snapshot.windows or ran_ns < parse_duration(snapshot.windows[-1]):
        return False
    sampled = any(port.directions and port.port.rail and port.port.active for port in snapshot.ports)
    return sampled and snapshot.node[-1].observed_ratio < 1 - MAX_MISSING_RATIO


def _stalls(snapshot: Snapshot) -> list[tuple[Labels, bool]]:
    return [((name,), stalled) for name, stalled in snapshot.job_stalls.items()]


def _alone(snapshot: Snapshot) -> list[tuple[Labels, bool]]:
    """The only job on the node, which has all its traffic, and whether that is sustained MoE saturation."""
    jobs = {job.claim.id for job in snapshot.jobs or () if job.ports}
    return [((name,), snapshot.traffic.moe_saturated) for name in jobs] if len(jobs) == 1 else []


STALLS = Subject(("job_id",), _stalls)
UNRELIABLE = Subject(("reason", "device", "port"), _unreliable)
ALONE = Subject(("job_id",), _alone)

ROWS = (
    ALONE.gauge(
        "ibpulse_job_moe_saturated",
        "1 while the traffic of the node's only job is sustained MoE saturation, as ibpulse_node_moe_saturated, "
        "otherwise 0. Absent with several jobs or none.",
        int,
    ),
    STALLS.gauge(
        "ibpulse_job_stall",
        "1 while a job is silent on this node for longer than its steps explain: at once after a lost link or lost "
        "packets, otherwise after 60 s if traffic was cut off, 180 s if it began like a pause, 600 s before there are "
        "steps, and after twice its longest pause so far. Otherwise 0; absent before any traffic.",
        int,
    ),
    UNRELIABLE.gauge(
        "ibpulse_unreliable",
        f"1 while the numbers of the node, or of a device or port of it, cannot be trusted, by reason: "
        f"{', '.join(REASONS)}. Absent otherwise.",
        lambda _: 1,
    ),
)
