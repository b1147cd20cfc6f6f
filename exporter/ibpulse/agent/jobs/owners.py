"""Leads from the GPUs and devices that jobs hold to the ports that carry their traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ibpulse.agent.sysfs.gpus import NEAR, WORDS
from ibpulse.base.text import NAMED_SUBJECTS, first_names, group_remarks
from ibpulse.core.jobs import ALL_GPUS, ALONE, DEVICES, FILE, KUBERNETES_CGROUP, SOME_GPUS, Claim, Key, PlacedJob
from ibpulse.core.model import Port, PortId, Topology

NO_GPU = "it holds GPU {names}, which this node does not have."
NO_DEVICE = "it holds {names}, which this node does not have."


@dataclass(frozen=True, slots=True)
class Placement:
    """The jobs in the order of their claims, each with its ports, and remarks as sentences."""

    jobs: tuple[PlacedJob, ...] = ()
    remarks: tuple[str, ...] = ()


def place_jobs(claims: Sequence[Claim], ports: Sequence[Port], topology: Topology, *, whole: bool = True) -> Placement:
    """The ports of each job; the claims are not `whole` if the node may have further jobs.

    A job that holds all GPUs owns all rails. One that holds some owns the rails that are nearest to them, of those that
    are near (PIX or PXB). It also owns the ports of the devices that its source names. All this holds whether it is
    alone or not: the end of another job must not change its numbers.
    A job for which nothing leads to a port owns all rails if it is the only one of the node, unless it is a pod.
    """
    rails = [port.id for port in ports if port.rail]
    nearest = find_nearest_rails(rails, topology)
    placed, remarks = [], []
    for claim in claims:
        gpus, unknown = find_gpus(claim, topology)
        own = {rail for gpu in gpus for rail in nearest.get(gpu, ())}
        # a program may open every device of a node, so a pod's devices count only as far as they are rails
        named = {port.id for port in ports if port.id.device in claim.devices and (port.rail or claim.source == FILE)}
        if topology.gpus and len(gpus) == len(topology.gpus):
            basis, found = ALL_GPUS, {*rails, *named}
        elif own:
            basis, found = SOME_GPUS, own | named
        # the kernel lists every device that a pod has open, so the traffic of other rails is not its own
        elif not named and whole and len(claims) == 1 and claim.source != KUBERNETES_CGROUP:
            basis, found = ALONE, {*rails}
        else:
            basis, found = DEVICES, named
        there = {port.id.device for port in ports}
        absent = [name for name in claim.devices if name not in there]
        for text, names in ((NO_GPU, unknown), (NO_DEVICE, absent)):
            if names:
                remarks.append((f"job {claim.id}", text.format(names=first_names(names, NAMED_SUBJECTS))))
        chosen = tuple(port.id for port in ports if port.id in found)
        placed.append(PlacedJob(claim, chosen, basis if chosen else ""))
    return Placement(tuple(placed), tuple(group_remarks(remarks)))


def find_nearest_rails(rails: Iterable[PortId], topology: Topology) -> Mapping[str, set[PortId]]:
    """The rails that are nearest to each GPU by its address; none for a GPU without a near one."""
    distances = {place.device: row for place, row in zip(topology.devices, topology.distances, strict=True)}
    found: dict[str, set[PortId]] = {}
    for column, gpu in enumerate(topology.gpus):
        near = {rail: row[column] for rail in rails if (row := distances.get(rail.device)) and row[column] in NEAR}
        best = min(near.values(), key=WORDS.index, default="")
        found[gpu.address] = {rail for rail, word in near.items() if word == best}
    return found


def find_gpus(claim: Claim, topology: Topology) -> tuple[set[str], list[str]]:
    """The addresses of the GPUs that a job holds, and those that the node does not have, as its source names them.

    On a node whose GPUs are hidden, nothing is known of either.
    """
    addresses = [gpu.address for gpu in topology.gpus]
    if not addresses:
        return set(), []
    # tools number the GPUs of one vendor
    vendor = Counter(gpu.vendor for gpu in topology.gpus).most_common(1)[0][0]
    numbered = [gpu.address for gpu in topology.gpus if gpu.vendor == vendor]
    found = {address for address in claim.gpus if address in addresses}
    found |= {numbered[index] for index in claim.gpu_indexes if index < len(numbered)}
    unknown = [address for address in claim.gpus if address not in addresses]
    return found, unknown + [str(index) for index in claim.gpu_indexes if index >= len(numbered)]


def count_owners(jobs: Iterable[PlacedJob]) -> Mapping[PortId, int]:
    """The number of jobs on each port that has any."""
    return Counter(port for job in jobs for port in job.ports)


def find_owners(jobs: Iterable[PlacedJob]) -> Mapping[PortId, frozenset[Key]]:
    """The jobs of each port that has any."""
    found: dict[PortId, frozenset[Key]] = {}
    for job in jobs:
        for port in job.ports:
            found[port] = found.get(port, frozenset()) | {job.claim.key}
    return found
