"""Which number of what the traffic does is which metric. It formats nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ibpulse import metrics
from ibpulse.aggregator.snapshot import NodeTraffic, Snapshot
from ibpulse.analysis.signature import LABELS
from ibpulse.exposition.lines import Family, known


def traffic_families(snapshot: Snapshot) -> Iterator[Family]:
    """The families of bursts, rails, step, signature and saturation."""
    yield from _port_families(snapshot)
    yield from _node_families(snapshot.traffic)


def _port_families(snapshot: Snapshot) -> Iterator[Family]:
    ports = [((port.port.id.device, str(port.port.id.port)), port.traffic) for port in snapshot.ports if port.traffic]
    yield metrics.PORT_BURSTS, [(labels, traffic.bursts) for labels, traffic in ports]
    yield metrics.PORT_BURST_SECONDS, [(labels, traffic.burst_seconds) for labels, traffic in ports]
    rails = [(labels, traffic.rail) for labels, traffic in ports if traffic.rail]
    yield metrics.PORT_RAIL_SHARE, known([(labels, rail.share) for labels, rail in rails])
    yield metrics.PORT_RAIL_IDLE, [(labels, int(rail.idle)) for labels, rail in rails]
    yield metrics.PORT_RAIL_SLOW, [(labels, int(rail.slow)) for labels, rail in rails]
    for way in range(2):
        states = known([(labels, traffic.saturated[way]) for labels, traffic in ports])
        yield metrics.PORT_SATURATED[way], [(labels, int(state is True)) for labels, state in states]
        yield (
            metrics.PORT_SATURATED_SECONDS[way],
            [(labels, traffic.saturated_seconds[way]) for labels, traffic in ports],
        )


def _node_families(traffic: NodeTraffic) -> Iterator[Family]:
    yield metrics.NODE_UTILIZATION, known([((), traffic.utilization)])
    yield metrics.NODE_BURST_DURATION, [((), traffic.burst_durations)]
    yield metrics.NODE_GAP_DURATION, [((), traffic.gap_durations)]
    yield metrics.NODE_BURSTS, [((), traffic.bursts)]
    yield metrics.NODE_BURST_BYTES, [((), traffic.burst_bytes)]
    yield metrics.NODE_ACTIVE_RAILS, [((), traffic.active_rails)]
    yield metrics.NODE_RAIL_FAIRNESS, known([((), traffic.fairness)])
    if traffic.step_score is not None:
        period = math.nan if traffic.step_seconds is None else traffic.step_seconds
        yield metrics.NODE_STEP_PERIOD, [((), period)]
        yield metrics.NODE_STEP_SCORE, [((), traffic.step_score)]
    yield metrics.NODE_SIGNATURE, [((label,), int(label == traffic.signature)) for label in LABELS]
    yield metrics.NODE_SIGNATURE_CONFIDENCE, [((), traffic.confidence)]
    yield metrics.NODE_SATURATED, [((), int(traffic.saturated))]
    yield metrics.NODE_SATURATED_SECONDS, [((), traffic.saturated_seconds)]
    yield metrics.NODE_MOE_SATURATED, [((), int(traffic.moe_saturated))]
    yield metrics.NODE_MOE_SATURATED_SECONDS, [((), traffic.moe_saturated_seconds)]
