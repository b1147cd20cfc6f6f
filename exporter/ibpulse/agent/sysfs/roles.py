"""Decides the role of every port: compute (a rail), storage, management or unknown.

Three rules, in this order: the patterns of `ports.roles`; the distance to GPUs, whatever the link layer; and where no
GPU is near any port, the highest rate, InfiniBand before Ethernet. On a node with EFA, the last two choose among its
EFA devices alone: the others manage NVLink switches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ibpulse.agent.sysfs.device import match_port
from ibpulse.agent.sysfs.gpus import NEAR
from ibpulse.agent.sysfs.kinds import NEVER_RAILS, PF, SF, VF
from ibpulse.agent.sysfs.near_rule import Candidates, Make, RoleChoice, choose_near, find_make
from ibpulse.agent.sysfs.speed import ETHERNET, INFINIBAND
from ibpulse.core.model import COMPUTE, MANAGEMENT, ROLES, UNKNOWN_ROLE, Port, PortId, Topology

__all__ = ["RoleRule", "Roles", "find_slow_twins", "is_candidate"]

NO_TOPOLOGY = Topology()
EFA = "efa"
HUAWEI = ("hns", "hclge")
# a network for management is far slower than the rails
MANAGEMENT_BYTES_PER_SECOND = 25e9 / 8
MANAGEMENT_PART = 1 / 4

SAID_TWICE = "it matches ports.roles for {roles}; it counts as {first}. Change the patterns."
TRAINED_DOWN = (
    "it is a rail that trained down: its rate is below that of the other rails of its make. Check the cable and the "
    "switch port."
)
SLOW_TWIN = "it is of the rails' model but slower, so it is not a rail: check the link, or set ports.roles."
FAR = "it is as fast as the rails but near no GPU, so it is not a rail: if it is one, set ports.roles or topology.file."
SAME_RATE = (
    "adapters of {count} makes have the highest rate, and no GPU is near any of them, so all of them are rails: if "
    "some are for storage, set ports.roles."
)
BOTH_FUNCTIONS = (
    "physical functions and their virtual functions are both rails, so the line rate of the node counts a wire more "
    "than once: name the rails in ports.roles."
)
ASCEND = (
    "its driver {driver} is Huawei's, as on Ascend nodes: ibpulse does not know where their processors are. Check its "
    "role, or set ports.roles."
)


@dataclass(frozen=True, slots=True)
class Roles:
    """The ports in the same order with their roles, and remarks on the choice as pairs of subject and text."""

    ports: tuple[Port, ...]
    remarks: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class RoleRule:
    """Decides roles; `patterns` lists patterns as in `device` by role.

    It remembers which GPUs were near a device, so that a GPU that falls off the bus does not change a role.
    """

    patterns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    _near: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def assign(self, ports: Sequence[Port], topology: Topology = NO_TOPOLOGY) -> Roles:
        """The roles of all ports of a node."""
        named, remarks = self._match(ports)
        free = [port for port in ports if port.id not in named and is_candidate(port)]
        free = [port for port in free if port.identity.driver == EFA] or free
        near = self._find_near(topology)
        if self.patterns.get(COMPUTE):
            choice = RoleChoice({})
        else:
            choice = choose_near(Candidates(free, near)) or choose_by_rate(free)
            remarks += [*choice.remarks, *_remark_on_far(free, choice.roles), *_remark_on_functions(free, choice.roles)]
        roles = choice.roles | named
        rails = [port for port in ports if roles.get(port.id) == COMPUTE]
        for port in ports:
            if port.id not in roles and not near.get(port.id.device) and _is_management(port, rails):
                roles[port.id] = MANAGEMENT
        slow = _find_trained_down(rails)
        remarks += [(str(port.id), TRAINED_DOWN) for port in rails if port.id in slow]
        remarks += [(str(port.id), ASCEND.format(driver=port.identity.driver)) for port in ports if _is_huawei(port)]
        return Roles(
            tuple(_give(port, roles.get(port.id, UNKNOWN_ROLE), port.id in slow) for port in ports), tuple(remarks)
        )

    def _match(self, ports: Sequence[Port]) -> tuple[dict[PortId, str], list[tuple[str, str]]]:
        """The roles of the ports that a pattern matches, and remarks on ports that match several roles."""
        named, remarks = {}, []
        for port in ports:
            roles = [role for role in ROLES if any(match_port(each, port.id) for each in self.patterns.get(role, ()))]
            if roles:
                named[port.id] = roles[0]
            if len(roles) > 1:
                remarks.append((str(port.id), SAID_TWICE.format(roles=" and ".join(roles), first=roles[0])))
        return named, remarks

    def _find_near(self, topology: Topology) -> dict[str, dict[str, str]]:
        """The near GPUs of each device, with their distances."""
        addresses = [gpu.address for gpu in topology.gpus]
        found = {}
        for place, row in zip(topology.devices, topology.distances, strict=True):
            now = {gpu: word for gpu, word in zip(addresses, row, strict=True) if word in NEAR}
            known = self._near.setdefault((place.device, place.pci_address), {})
            known.update(now)
            found[place.device] = {gpu: word for gpu, word in known.items() if gpu in now or gpu not in addresses}
        return found


def is_candidate(port: Port) -> bool:
    """Whether the port may be a rail: it counts bytes, and does not count traffic of another port."""
    return port.source is not None and port.identity.kind not in NEVER_RAILS


def choose_by_rate(ports: Sequence[Port]) -> RoleChoice:
    """The ports of the highest rate, of InfiniBand if there is any, and those of the same make that are down.

    A port of the same make with fewer lanes than the others has trained down. If it only has another speed, it may be
    meant to, and is not a rail.
    """
    candidates = [port for port in ports if port.identity.link_layer == INFINIBAND] or list(ports)
    rates = [rate for port in candidates if (rate := port.rate_bytes_per_second) is not None]
    if not rates:
        return RoleChoice({port.id: COMPUTE for port in candidates})
    fastest = [port for port in candidates if port.rate_bytes_per_second == max(rates)]
    places = {(find_make(port), port.id.port) for port in fastest}
    lanes = max(_count_lanes(port) for port in fastest)
    stay = [
        port
        for port in candidates
        if (find_make(port), port.id.port) in places and (not port.active or 0 < _count_lanes(port) < lanes)
    ]
    makes = len({find_make(port) for port in fastest})
    remarks = (("ports.roles", SAME_RATE.format(count=makes)),) if makes > 1 else ()
    return RoleChoice({port.id: COMPUTE for port in (*fastest, *stay)}, remarks)


def find_slow_twins(ports: Sequence[Port]) -> tuple[Port, ...]:
    """ACTIVE ports of unknown role with the hardware and link layer of a rail, but slower: perhaps trained down."""
    rates: dict[Make, float] = {}
    for port in ports:
        if port.rail and port.identity.hca_type:
            rates[find_make(port)] = max(rates.get(find_make(port), 0.0), port.rate_bytes_per_second or 0.0)
    return tuple(
        port
        for port in ports
        if port.active and is_candidate(port) and port.role == UNKNOWN_ROLE and _is_slower(port, rates)
    )


def _is_slower(port: Port, rates: Mapping[Make, float]) -> bool:
    return (port.rate_bytes_per_second or 0.0) < rates.get(find_make(port), 0.0)


def _count_lanes(port: Port) -> int:
    """The lanes in a rate such as `400 Gb/sec (4X NDR)`; 0 if unknown."""
    lanes = port.identity.rate.partition("(")[2].partition("X")[0]
    return int(lanes) if lanes.isascii() and lanes.isdigit() else 0


def _find_trained_down(rails: Sequence[Port]) -> set[PortId]:
    """The ACTIVE rails that are slower than others of their make."""
    best: dict[Make, float] = {}
    for port in rails:
        best[find_make(port)] = max(best.get(find_make(port), 0.0), port.rate_bytes_per_second or 0.0)
    return {port.id for port in rails if port.active and port.rate_bytes_per_second and _is_slower(port, best)}


def _is_management(port: Port, rails: Sequence[Port]) -> bool:
    """Whether the port is certainly for management: slow Ethernet on a node whose rails are far faster."""
    rate = port.rate_bytes_per_second
    if rate is None or port.identity.kind != PF or port.identity.link_layer != ETHERNET:
        return False
    fastest = max((rail.rate_bytes_per_second or 0.0 for rail in rails), default=0.0)
    return rate <= min(MANAGEMENT_BYTES_PER_SECOND, fastest * MANAGEMENT_PART)


def _remark_on_far(free: Sequence[Port], roles: Mapping[PortId, str]) -> Iterable[tuple[str, str]]:
    """Remarks on ports that only their distance to the GPUs keeps from being rails."""
    rails = [port for port in free if roles.get(port.id) == COMPUTE]
    fastest = max((port.rate_bytes_per_second or 0.0 for port in rails), default=0.0)
    for port in free:
        if port.id not in roles and fastest and (port.rate_bytes_per_second or 0.0) >= fastest:
            yield str(port.id), FAR


def _remark_on_functions(free: Sequence[Port], roles: Mapping[PortId, str]) -> Iterable[tuple[str, str]]:
    """A remark if physical and virtual functions of the same make are rails."""
    kinds: dict[Make, set[str]] = {}
    for port in free:
        if roles.get(port.id) == COMPUTE:
            kinds.setdefault(find_make(port), set()).add(port.identity.kind)
    if any(PF in found and found & {VF, SF} for found in kinds.values()):
        yield "ports.roles", BOTH_FUNCTIONS


def _is_huawei(port: Port) -> bool:
    return port.identity.driver.startswith(HUAWEI)


def _give(port: Port, role: str, trained_down: bool) -> Port:
    if (port.role, port.trained_down) == (role, trained_down):
        return port
    return replace(port, rail=role == COMPUTE, role=role, trained_down=trained_down)
