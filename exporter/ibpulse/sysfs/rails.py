"""Which ports are rails: those that carry the job's traffic. Management and storage ports are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ibpulse.model import Port
from ibpulse.sysfs.kinds import NEVER_RAILS
from ibpulse.sysfs.selection import match_port

INFINIBAND = "InfiniBand"


def mark_rails(ports: Sequence[Port], patterns: Sequence[str]) -> tuple[Port, ...]:
    """The same ports in the same order, each with its `rail` flag set by the patterns, or by the rule without any."""
    if patterns:
        return tuple(_flag(port, any(match_port(pattern, port.id) for pattern in patterns)) for port in ports)
    candidates = _find_candidates(ports)
    rates = [rate for port in candidates if (rate := port.rate_bytes_per_second) is not None]
    if not rates:
        rails = {port.id for port in candidates}
        return tuple(_flag(port, port.id in rails) for port in ports)
    fastest = [port for port in candidates if port.rate_bytes_per_second == max(rates)]
    places = {(make_of(port), port.id.port) for port in fastest}
    down = [port for port in candidates if not port.active and (make_of(port), port.id.port) in places]
    rails = {port.id for port in (*fastest, *down)}
    return tuple(_flag(port, port.id in rails) for port in ports)


def find_slow_twins(ports: Sequence[Port]) -> tuple[Port, ...]:
    """ACTIVE ports that are no rails but of the same hardware and layer as a rail: rails that trained down, perhaps."""
    kinds = {(port.identity.link_layer, make_of(port)) for port in ports if port.rail and port.identity.hca_type}
    return tuple(
        port
        for port in ports
        if port.active
        and port.source
        and not port.rail
        and port.identity.kind not in NEVER_RAILS
        and (port.identity.link_layer, make_of(port)) in kinds
    )


def _find_candidates(ports: Sequence[Port]) -> list[Port]:
    counted = [port for port in ports if port.source is not None and port.identity.kind not in NEVER_RAILS]
    infiniband = [port for port in counted if port.identity.link_layer == INFINIBAND]
    return infiniband or counted


def make_of(port: Port) -> tuple[str, str, str]:
    """What tells one make of adapters from another: driver, type and board."""
    return port.identity.driver, port.identity.hca_type, port.identity.board


def _flag(port: Port, rail: bool) -> Port:
    return port if port.rail == rail else replace(port, rail=rail)
