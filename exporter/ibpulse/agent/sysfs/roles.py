"""Decides the role of every port, compute (a rail), storage, management or unknown, and counts the expected rails.

Three rules, in this order: the patterns of `ports.roles`; the distance to GPUs, whatever the link layer; and where no
GPU is near any port, the highest rate, InfiniBand before Ethernet. On a node with EFA, the last two choose among its
EFA devices alone: the others manage NVLink switches.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ibpulse.agent.sysfs.byte_counters import EFA
from ibpulse.agent.sysfs.device import match_port
from ibpulse.agent.sysfs.files import list_names, read_link, read_value
from ibpulse.agent.sysfs.gpus import NEAR, WORDS, find_nearest, measure
from ibpulse.agent.sysfs.kinds import BOND, NEVER_RAILS, PF, SF, VF
from ibpulse.agent.sysfs.pcie import find_chain
from ibpulse.agent.sysfs.speed import ETHERNET, INFINIBAND
from ibpulse.core.events.event import Event, is_port_name, started_states
from ibpulse.core.events.log import EventLog
from ibpulse.core.model import COMPUTE, MANAGEMENT, ROLES, STORAGE, UNKNOWN_ROLE, Fabric, Port, PortId, Topology

RoleChoice = tuple[dict[PortId, str], list[tuple[str, str]]]
"""The roles that a rule gives to ports, and remarks as pairs of subject and text."""
Make = tuple[str, str, str]
"""Driver, board (the type where the board is unknown) and link layer: what the functions of one card share."""

NEAR_BUT_OTHER = (
    "it is below the same PCIe switch as a GPU, but of another make than the rails, so it counts as storage: if that "
    "is wrong, set ports.roles."
)
ALONE_NEAR = (
    "it is of another board than the other rails, but no other port is near its GPUs, so it is a rail: if that is "
    "wrong, set ports.roles."
)
TIE = (
    "adapters of {count} makes are nearest to {gpus} GPUs each; the rails are those of {make}, because they {reason}: "
    "if that is wrong, set ports.roles."
)
NO_TOPOLOGY = Topology()
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
NETWORK_CLASS = "0x02"
Ids = tuple[str, str]


@dataclass(slots=True)
class RoleRule:
    """Decides roles; `patterns` lists patterns as in `device` by role.

    It remembers which GPUs were near a device, so that a GPU that falls off the bus does not change a role.
    """

    patterns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    _near: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def assign(
        self, ports: Sequence[Port], topology: Topology = NO_TOPOLOGY
    ) -> tuple[tuple[Port, ...], list[tuple[str, str]]]:
        """All ports of a node in the same order with their roles, and remarks as pairs of subject and text."""
        named, remarks = self._match(ports)
        free = [port for port in ports if port.id not in named and is_candidate(port)]
        free = [port for port in free if port.identity.driver == EFA] or free
        near = self._find_near(topology)
        roles: dict[PortId, str] = {}
        if not self.patterns.get(COMPUTE):
            roles, why = choose_near(Candidates(free, near)) or choose_by_rate(free)
            remarks += [*why, *_remark_on_far(free, roles), *_remark_on_functions(free, roles)]
        roles |= named
        rails = [port for port in ports if roles.get(port.id) == COMPUTE]
        for port in ports:
            if port.id not in roles and not near.get(port.id.device) and _is_management(port, rails):
                roles[port.id] = MANAGEMENT
        slow = _find_trained_down(rails)
        remarks += [(str(port.id), TRAINED_DOWN) for port in rails if port.id in slow]
        for port in ports:
            if port.identity.driver.startswith(HUAWEI):
                remarks.append((str(port.id), ASCEND.format(driver=port.identity.driver)))
        return tuple(_give(port, roles.get(port.id, UNKNOWN_ROLE), port.id in slow) for port in ports), remarks

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


def find_make(port: Port) -> Make:
    """The make of a port's adapter, the same for its physical and virtual functions."""
    identity = port.identity
    return identity.driver, identity.board or identity.hca_type, identity.link_layer


def find_position(port: Port) -> tuple[Make, int, str]:
    """What a port has in common with the same port of another card: make, number and PCI function.

    The numbers of virtual functions mean nothing.
    """
    function = "" if port.identity.kind in (VF, SF) else port.identity.pci_address.rpartition(".")[2]
    return find_make(port), port.id.port, function


@dataclass(frozen=True, slots=True)
class Candidates:
    """Ports that may be rails; `near` has the distance of each near GPU (PIX or PXB) by device."""

    ports: Sequence[Port]
    near: Mapping[str, Mapping[str, str]]
    by_make: dict[Make, list[Port]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for port in self.ports:
            self.by_make.setdefault(find_make(port), []).append(port)

    def near_gpus(self, ports: Sequence[Port]) -> set[str]:
        """The GPUs that are near any of these ports."""
        return {gpu for port in ports for gpu in self.near.get(port.id.device, {})}

    def nearest(self, ports: Sequence[Port], gpu: str) -> list[Port]:
        """Those of the ports that are nearest to a GPU; empty if none is near."""
        words = [self.near.get(port.id.device, {}).get(gpu, "") for port in ports]
        nearest = min(filter(None, words), key=WORDS.index, default=None)
        return [port for port, word in zip(ports, words, strict=True) if word == nearest]


def choose_near(candidates: Candidates) -> RoleChoice | None:
    """The roles of the ports near GPUs: compute for the make that is nearest to most GPUs, storage for others.

    None if no GPU is near any port.
    """
    gpus = sorted(candidates.near_gpus(candidates.ports))
    if not gpus:
        return None
    leaders = {gpu: {find_make(port) for port in candidates.nearest(candidates.ports, gpu)} for gpu in gpus}
    covered = Counter(make for makes in leaders.values() for make in makes)
    order = sorted(covered, key=lambda make: (covered[make], *_rank(candidates.by_make[make], make)), reverse=True)
    rails = _keep_positions(_nearest_of(candidates, candidates.by_make[order[0]], gpus))
    spare = _find_alone(candidates, rails)
    roles = dict.fromkeys((port.id for port in (*rails, *spare)), COMPUTE)
    others = [
        port
        for port in candidates.ports
        if port.id not in roles and find_make(port) != order[0] and candidates.near.get(port.id.device)
    ]
    roles |= dict.fromkeys((port.id for port in others), STORAGE)
    remarks = [(str(port.id), ALONE_NEAR) for port in spare] + [(str(port.id), NEAR_BUT_OTHER) for port in others]
    equal = [make for make in order if covered[make] == covered[order[0]]]
    if len(equal) > 1:
        remarks.append(("ports.roles", _say_tie(candidates, equal, covered[order[0]])))
    return roles, remarks


def _rank(ports: Sequence[Port], make: Make) -> tuple[int, float, bool, Make]:
    """What decides between makes that are nearest to equally many GPUs: ports, rate, InfiniBand, name."""
    return len(ports), _best(ports), make[2] == INFINIBAND, make


def _say_tie(candidates: Candidates, equal: Sequence[Make], gpus: int) -> str:
    first, second = (_rank(candidates.by_make[make], make) for make in equal[:2])
    words = ("have more ports", "are faster", "are InfiniBand", "come last by name")
    reason = next(word for word, one, other in zip(words, first, second, strict=True) if one != other)
    return TIE.format(count=len(equal), gpus=gpus, make=" ".join(filter(None, equal[0])), reason=reason)


def _nearest_of(candidates: Candidates, ports: Sequence[Port], gpus: Sequence[str]) -> list[Port]:
    """The ports of one make that are nearest to any GPU, and those whose place could not be read yet."""
    chosen = {port.id for gpu in gpus for port in candidates.nearest(ports, gpu)}
    return [port for port in ports if port.id in chosen or not port.identity.kind]


def _keep_positions(ports: Sequence[Port]) -> list[Port]:
    """The ports at the highest rate, and those that are down or slower in a position where others are that fast.

    Without this, the second ports of cards that use only the first ones would count as rails that are down.
    """
    best = _best(ports)
    fastest = [port for port in ports if port.rate_bytes_per_second == best]
    if not fastest:
        return list(ports)
    counted = Counter(map(find_position, fastest))
    used = {position for position, count in counted.items() if 2 * count >= max(counted.values())}
    return [port for port in ports if port in fastest or find_position(port) in used]


def _find_alone(candidates: Candidates, rails: Sequence[Port]) -> list[Port]:
    """Ports of another board but otherwise like the rails, near GPUs that have no rail: replaced cards."""
    taken = candidates.near_gpus(rails)
    alike = {(port.identity.driver, port.identity.hca_type, port.identity.link_layer) for port in rails}
    best = _best(rails)
    makes = {find_make(port) for port in rails}
    return [
        port
        for port in candidates.ports
        if find_make(port) not in makes
        and (port.identity.driver, port.identity.hca_type, port.identity.link_layer) in alike
        and port.rate_bytes_per_second == best
        and (gpus := candidates.near_gpus([port]))
        and not gpus & taken
    ]


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
        return {port.id: COMPUTE for port in candidates}, []
    fastest = [port for port in candidates if port.rate_bytes_per_second == max(rates)]
    places = {(find_make(port), port.id.port) for port in fastest}
    lanes = max(_count_lanes(port) for port in fastest)
    stay = [
        port
        for port in candidates
        if (find_make(port), port.id.port) in places and (not port.active or 0 < _count_lanes(port) < lanes)
    ]
    makes = len({find_make(port) for port in fastest})
    remarks = [("ports.roles", SAME_RATE.format(count=makes))] if makes > 1 else []
    return {port.id: COMPUTE for port in (*fastest, *stay)}, remarks


def find_slow_twins(ports: Sequence[Port]) -> tuple[Port, ...]:
    """ACTIVE ports of unknown role with the hardware and link layer of a rail, but slower: perhaps trained down."""
    rates = _best_by_make(port for port in ports if port.rail and port.identity.hca_type)
    return tuple(
        port
        for port in ports
        if port.active and is_candidate(port) and port.role == UNKNOWN_ROLE and _is_slower(port, rates)
    )


def _is_slower(port: Port, rates: Mapping[Make, float]) -> bool:
    return _rate(port) < rates.get(find_make(port), 0.0)


def _rate(port: Port) -> float:
    return port.rate_bytes_per_second or 0.0


def _best(ports: Iterable[Port]) -> float:
    return max(map(_rate, ports), default=0.0)


def _best_by_make(ports: Iterable[Port]) -> dict[Make, float]:
    best: dict[Make, float] = {}
    for port in ports:
        best[find_make(port)] = max(best.get(find_make(port), 0.0), _rate(port))
    return best


def _count_lanes(port: Port) -> int:
    """The lanes in a rate such as `400 Gb/sec (4X NDR)`; 0 if unknown."""
    lanes = port.identity.rate.partition("(")[2].partition("X")[0]
    return int(lanes) if lanes.isascii() and lanes.isdigit() else 0


def _find_trained_down(rails: Sequence[Port]) -> set[PortId]:
    """The ACTIVE rails that are slower than others of their make."""
    best = _best_by_make(rails)
    return {port.id for port in rails if port.active and _rate(port) and _is_slower(port, best)}


def _is_management(port: Port, rails: Sequence[Port]) -> bool:
    """Whether the port is certainly for management: slow Ethernet on a node whose rails are far faster."""
    rate = port.rate_bytes_per_second
    if rate is None or port.identity.kind != PF or port.identity.link_layer != ETHERNET:
        return False
    fastest = _best(rails)
    return rate <= min(MANAGEMENT_BYTES_PER_SECOND, fastest * MANAGEMENT_PART)


def _remark_on_far(free: Sequence[Port], roles: Mapping[PortId, str]) -> Iterable[tuple[str, str]]:
    """Remarks on ports that only their distance to the GPUs keeps from being rails."""
    rails = [port for port in free if roles.get(port.id) == COMPUTE]
    fastest = _best(rails)
    for port in free:
        if port.id not in roles and fastest and _rate(port) >= fastest:
            yield str(port.id), FAR


def _remark_on_functions(free: Sequence[Port], roles: Mapping[PortId, str]) -> Iterable[tuple[str, str]]:
    """A remark if physical and virtual functions of the same make are rails."""
    kinds: dict[Make, set[str]] = {}
    for port in free:
        if roles.get(port.id) == COMPUTE:
            kinds.setdefault(find_make(port), set()).add(port.identity.kind)
    if any(PF in found and found & {VF, SF} for found in kinds.values()):
        yield "ports.roles", BOTH_FUNCTIONS


def _give(port: Port, role: str, trained_down: bool) -> Port:
    if (port.role, port.trained_down) == (role, trained_down):
        return port
    return replace(port, rail=role == COMPUTE, role=role, trained_down=trained_down)


@dataclass(frozen=True, slots=True)
class NetworkFunction:
    """A PCI function of a network adapter, not a virtual one of a function of this node."""

    folder: str
    ids: Ids
    chain: tuple[str, ...]

    @property
    def address(self) -> str:
        """Its PCI address."""
        return self.chain[-1]


class RailFunctions:
    """Lists the network functions under a sysfs root repeatedly, reading only new ones."""

    def __init__(self, sysfs: str) -> None:
        self._folder = os.path.join(sysfs, "bus", "pci", "devices")
        self._seen: dict[str, NetworkFunction | None] = {}

    def count(self, ports: Sequence[Port], topology: Topology) -> int:
        """The number of rails that the node should have by its PCI functions.

        A function without an RDMA device counts if it has the PCI ids and the function number of a rail, and is as
        near to a GPU as the rails are. Where the rails are near no GPU, it counts only if all ports of these ids are
        rails; otherwise nothing shows what it was for. A bond has one device for all functions of its card.
        """
        rails = [port for port in ports if port.rail]
        functions = self._list({port.identity.pci_address for port in ports}) if rails else {}
        by_ids: dict[Ids, list[Port]] = {}
        for port in ports:
            function = functions.get(port.identity.pci_address)
            if function:
                by_ids.setdefault(function.ids, []).append(port)
        bonds = {_slot(port.identity.pci_address) for port in ports if port.identity.kind == BOND}
        lost = [each for each in functions.values() if not _has_rdma(each.folder) and _slot(each.address) not in bonds]
        return len(rails) + sum(is_lost_rail(each.chain, by_ids.get(each.ids, ()), topology) for each in lost)

    def _list(self, read: set[str]) -> Mapping[str, NetworkFunction]:
        """The network functions at these addresses, and those without an RDMA device."""
        names = [name for name in list_names(self._folder) if name in read or self._may_read(name)]
        self._seen = {
            name: self._seen[name] if name in self._seen else read_function(os.path.join(self._folder, name))
            for name in names
        }
        return {function.address: function for function in self._seen.values() if function}

    def _may_read(self, name: str) -> bool:
        """Whether a function is of no network, or has no RDMA device: one that ports.exclude names is not read."""
        return self._seen.get(name, self) is None or not _has_rdma(os.path.join(self._folder, name))


def read_function(folder: str) -> NetworkFunction | None:
    """The network function at a PCI function's folder; None for another function."""
    if not read_value(folder, "class").startswith(NETWORK_CLASS):
        return None
    real = str(Path(folder).resolve())
    chain = find_chain(real)
    if not chain or read_link(Path(folder, "physfn")):
        return None
    return NetworkFunction(real, (read_value(folder, "vendor"), read_value(folder, "device")), chain)


def _slot(address: str) -> str:
    """A PCI address without its function."""
    return address.rpartition(".")[0]


def _has_rdma(folder: str) -> bool:
    return os.path.isdir(os.path.join(folder, "infiniband"))


def is_lost_rail(chain: tuple[str, ...], alike: Sequence[Port], topology: Topology) -> bool:
    """Whether a function without an RDMA device was a rail's; `alike` are the ports of the same PCI ids.

    `chain` is the path to the function as in `find_chain`.
    """
    rails = [port for port in alike if port.rail]
    number = chain[-1].rpartition(".")[2]
    if not any(port.identity.pci_address.rpartition(".")[2] == number for port in rails):
        return False
    if not any(port.identity.gpu_distance in NEAR for port in rails):
        return len(rails) == len(alike)
    return bool(find_near_gpus(chain, topology))


def find_near_gpus(chain: tuple[str, ...], topology: Topology) -> tuple[str, ...]:
    """The addresses of the GPUs that are nearest to a function, if they are near; `chain` as in `find_chain`."""
    nearest, distance = find_nearest({gpu.address: measure(chain, None, gpu.chain, None) for gpu in topology.gpus})
    return nearest if distance in NEAR else ()


class ExpectedRails:
    """The number of rails that the node should have; `setting` takes precedence over what can be counted."""

    def __init__(self, log: EventLog, setting: int | None = None) -> None:
        self._log, self._setting = log, setting
        self._rails: set[str] = set()
        self._most = 0
        for event in log.events():
            self._follow(event)
        self._added = log.added

    def update(self, fabric: Fabric) -> int:
        """The number now: of the setting, or the most rails at one time, or their PCI functions if there are more."""
        for event in self._log.after(self._added):
            self._follow(event)
        self._added = self._log.added
        if self._setting is not None:
            return self._setting
        return max(self._most, fabric.rail_functions, sum(port.rail for port in fabric.ports))

    def _follow(self, event: Event) -> None:
        """Take an event into account. A role that was taken away was a decision, so the count begins again."""
        before, after = event.before, event.after
        states = started_states(event)
        if states is not None:
            self._rails = {name for name, state in states.items() if state.rail}
        elif is_port_name(event.subject) and before != after:
            if after is not None and after.rail:
                self._rails.add(event.subject)
            else:
                self._rails.discard(event.subject)
            if before is not None and before.rail and after is not None and not after.rail:
                self._most = 0
        self._most = max(self._most, len(self._rails))
