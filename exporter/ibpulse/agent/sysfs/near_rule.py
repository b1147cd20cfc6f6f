"""The rule by which the ports near the GPUs are the rails, whatever their link layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ibpulse.agent.sysfs.gpus import WORDS
from ibpulse.agent.sysfs.kinds import SF, VF
from ibpulse.agent.sysfs.speed import INFINIBAND
from ibpulse.core.model import COMPUTE, STORAGE, Port, PortId

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


@dataclass(frozen=True, slots=True)
class RoleChoice:
    """The roles that a rule gives to ports, and remarks as pairs of subject and text."""

    roles: dict[PortId, str]
    remarks: tuple[tuple[str, str], ...] = ()


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
    return RoleChoice(roles, tuple(remarks))


def _rank(ports: Sequence[Port], make: Make) -> tuple[int, float, bool, Make]:
    """What decides between makes that are nearest to equally many GPUs: ports, rate, InfiniBand, name."""
    return len(ports), max(port.rate_bytes_per_second or 0.0 for port in ports), make[2] == INFINIBAND, make


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
    best = max((port.rate_bytes_per_second or 0.0 for port in ports), default=0.0)
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
    best = max((port.rate_bytes_per_second or 0.0 for port in rails), default=0.0)
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
