"""What two snapshots say about the time between them, as the rules look at it. It must not keep anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ibpulse.aggregator.snapshot import PortSnapshot, Snapshot

CARRYING, QUIET, IDLE, DOWN = "carrying", "quiet", "idle", "down"


@dataclass(frozen=True, slots=True)
class Sight:
    """One second or a few.

    `rate_bytes_per_second` is what all rails moved, None where too little of the time was observed. `rails` has the
    state of each rail of the fabric by its port's name: carrying, quiet (all rails are), idle (its siblings are not)
    or down.
    """

    end_tick: int
    end_wall_ns: int
    seconds: float
    rate_bytes_per_second: float | None
    step_seconds: float | None
    signature: str
    moe_saturated: bool
    rails: Mapping[str, str]


def see(before: Snapshot, after: Snapshot) -> Sight | None:
    """The sight between two snapshots; None where no time passed between them."""
    seconds = (after.end_tick - before.end_tick) * after.sampler.interval_seconds
    if seconds <= 0 or after.end_wall_ns is None or not before.end_tick:
        return None
    return Sight(
        end_tick=after.end_tick,
        end_wall_ns=after.end_wall_ns,
        seconds=seconds,
        rate_bytes_per_second=_rate(before, after, seconds),
        step_seconds=after.traffic.step_seconds,
        signature=after.traffic.signature,
        moe_saturated=after.traffic.moe_saturated,
        rails={str(port.port.id): _state(port) for port in after.ports if port.port.rail},
    )


def _rate(before: Snapshot, after: Snapshot, seconds: float) -> float | None:
    """Bytes per second over the rails that are in both snapshots, if at least half of the time of any was observed."""
    earlier = {port.port.id: port for port in before.ports if port.directions}
    moved, observed = 0, 0.0
    for port in after.ports:
        if port.port.rail and port.directions and port.port.id in earlier:
            was = earlier[port.port.id]
            moved += sum(
                (now.bytes_total or 0) - (then.bytes_total or 0)
                for now, then in zip(port.directions, was.directions, strict=True)
            )
            observed = max(observed, port.observed_seconds - was.observed_seconds)
    return moved / seconds if 2 * observed >= seconds else None


def _state(port: PortSnapshot) -> str:
    if not port.port.active:
        return DOWN
    standing = port.traffic.rail if port.traffic else None
    if standing is None or standing.share is None:
        return QUIET
    return IDLE if standing.idle else CARRYING
