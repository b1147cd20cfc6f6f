"""The topology of a daemon, checked like the answers of `node_answers`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ibpulse.answers.members import MAX_PORTS, Amount, AnswerPart, Count, Few, Name, Names, Sentence, at_most
from ibpulse.events.event import MAX_INTEGER

MAX_LINKS = 100
# -1 is what the kernel says where there is none
NumaNode = Annotated[int, Field(ge=-1, le=MAX_INTEGER)] | None


class NodeLink(AnswerPart):
    """A PCIe link."""

    address: Name
    upper: Name
    speed_gts: Amount | None
    width: Count | None
    max_speed_gts: Amount | None
    max_width: Count | None
    bytes_per_second: Amount | None
    max_bytes_per_second: Amount | None


class NodeVerdict(AnswerPart):
    """A problem with the placement of a device."""

    word: Name
    sentence: Sentence


class NodePlace(AnswerPart):
    """The placement of a device."""

    device: Name
    kind: Name = ""
    pci_address: Name
    numa_node: NumaNode
    local_cpus: Name
    chain: Names
    links: Annotated[list[NodeLink], at_most(MAX_LINKS)]
    pcie_bytes_per_second: Amount | None
    pcie_max_bytes_per_second: Amount | None
    gpus: Names
    gpu_distance: Name
    verdicts: Annotated[list[NodeVerdict], at_most(MAX_LINKS)]
    source: Name


class NodeGpu(AnswerPart):
    """A GPU."""

    address: Name
    vendor: Name
    device: Name
    name: Name
    form_factor: Name
    numa_node: NumaNode
    chain: Names


class NodeTopology(AnswerPart):
    """`/api/v1/topology`."""

    devices: Annotated[list[NodePlace], at_most(MAX_PORTS)]
    gpus: Annotated[list[NodeGpu], at_most(MAX_PORTS)]
    distances: Annotated[dict[Name, Annotated[dict[Name, Name], Few]], Few]
