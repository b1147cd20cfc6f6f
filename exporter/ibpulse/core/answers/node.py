"""`/api/v1/{clock,ports,topology,limits,events}`: a node, what limited its rails, and what happened on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ibpulse.base.instants import parse_rfc3339
from ibpulse.base.text import escape_controls
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS, whole_ms
from ibpulse.core.answers.jobs import JobPortsAnswer
from ibpulse.core.answers.members import (
    MAX_PORTS,
    MAX_SENTENCE,
    Amount,
    AnswerPart,
    Count,
    Few,
    Milliseconds,
    Name,
    Names,
    Role,
    Sentence,
    Sentences,
    at_most,
)
from ibpulse.core.events.event import MAX_INTEGER, MAX_RATE, MAX_STRIDE, STARTED, Event, started_states
from ibpulse.core.model import MAX_PORT_NUMBER, PortId, PortIdentity, PortState

MAX_LINKS = 100
DISAPPEARED = "disappeared"
# -1 is what the kernel says where there is none
NumaNode = Annotated[int, Field(ge=-1, le=MAX_INTEGER)] | None
MAX_BINS = 36_000
MAX_EVENTS = 10_000
# the event `started` has eight members of each port, at most 1024 of them
MAX_DETAILS, MAX_DETAIL_DEPTH = 20_000, 4


def _whole_ms(seconds: float) -> float:
    if round(seconds * 1e9) % 1_000_000:
        raise ValueError("is not a number of whole milliseconds")
    return seconds


class Identity(AnswerPart):
    """Identity of a port; empty strings where the kernel gives no information."""

    link_layer: Name
    rate: Name
    guid: Name
    board: Name
    hca_type: Name
    firmware: Name
    driver: Name
    pci_address: Name
    numa_node: Name
    netdev: Name
    kind: Name = Field(description="Kind of function: pf, vf, sf, bond and others; see docs/topology.md.")
    gpu: Name = Field(description="PCI addresses of the nearest GPUs, comma separated.")
    gpu_distance: Name = Field(description="Distance of these GPUs: PIX, PXB, PHB, NODE, SYS.")

    @property
    def value(self) -> PortIdentity:
        """As a value of the program."""
        return PortIdentity(**vars(self))


class Source(AnswerPart):
    """The files of a port's byte counters, and their sampling interval and resolution."""

    name: Name
    resolution_seconds: Amount
    note: Sentence


class PortAnswer(AnswerPart):
    """One port, as of the last scan."""

    name: Name
    device: Name
    port: Annotated[int, Field(ge=0, le=MAX_PORT_NUMBER)]
    state: Name = Field(description="The kernel's word, or disappeared, unreadable or hung.")
    since: Name | None = Field(
        description="When this state began, in RFC 3339; null if it did not change as far as the events go back."
    )
    active: bool
    rate_bytes_per_second: Amount | None = Field(
        description="Data rate in one direction; null unless the port is ACTIVE and the rate is known."
    )
    rail: bool = Field(description="Whether the role is compute.")
    role: Role
    source: Source | None = Field(description="null if none of its files counts bytes.")
    problem: Sentence = Field(description="Empty for a healthy port.")
    identity: Identity

    @property
    def id(self) -> PortId:
        """Device and number."""
        return PortId(self.device, self.port)

    @property
    def disappeared(self) -> bool:
        """Whether the port does not exist any more."""
        return self.state == DISAPPEARED

    @property
    def since_ns(self) -> int | None:
        """Since when it has been in its state; None if that is not known."""
        try:
            return None if self.since is None else parse_rfc3339(self.since)
        except ValueError:
            return None

    @property
    def since_ms(self) -> int | None:
        """`since_ns` in whole milliseconds."""
        return whole_ms(self.since_ns)


class PortsAnswer(AnswerPart):
    """All ports of the node."""

    interval_seconds: Annotated[float, Field(ge=0.001, le=1, allow_inf_nan=False), AfterValidator(_whole_ms)] = Field(
        description="Sampling interval, in whole milliseconds."
    )
    ports: Annotated[list[PortAnswer], at_most(MAX_PORTS)]
    notices: Sentences
    stuck_devices: Names
    simulated: bool = Field(description="Whether the ports are those of a simulator or a replay.")

    @property
    def interval_ns(self) -> int:
        """The sampling interval."""
        return round(self.interval_seconds * SECOND_NS)


class LinkAnswer(AnswerPart):
    """One PCIe link; null where the kernel gives no information."""

    address: Name = Field(description="Lower end: a card, or the upstream port of a switch.")
    upper: Name = Field(description="Upper end: the port it is plugged into; empty if unknown.")
    speed_gts: Amount | None
    width: Count | None
    max_speed_gts: Amount | None = Field(description="Maximum that both ends support.")
    max_width: Count | None
    bytes_per_second: Amount | None = Field(description="One direction, after line coding.")
    max_bytes_per_second: Amount | None


class VerdictAnswer(AnswerPart):
    """A problem with the placement of a device."""

    word: Literal["downtrained", "slow_slot", "unknown"]
    sentence: Sentence


class PlaceAnswer(AnswerPart):
    """Placement of one RDMA device."""

    device: Name
    kind: Name
    pci_address: Name
    numa_node: NumaNode
    local_cpus: Name
    chain: Names = Field(description="Host bridge and PCI functions, from the root down to the device.")
    links: Annotated[list[LinkAnswer], at_most(MAX_LINKS)] = Field(description="PCIe links from the root down.")
    pcie_bytes_per_second: Amount | None = Field(description="Bandwidth of the narrowest link.")
    pcie_max_bytes_per_second: Amount | None = Field(
        description="Bandwidth of the narrowest link if every link ran at its maximum."
    )
    gpus: Names = Field(description="The nearest GPUs.")
    gpu_distance: Name
    verdicts: Annotated[list[VerdictAnswer], at_most(MAX_LINKS)]
    source: Literal["sysfs", "topology.file"]


class GpuAnswer(AnswerPart):
    """A GPU of the node; name and form factor are empty for unknown ids."""

    address: Name
    vendor: Name
    device: Name
    name: Name
    form_factor: Name
    numa_node: NumaNode
    chain: Names


class TopologyAnswer(AnswerPart):
    """Placement of devices and GPUs, and the distances between them."""

    devices: Annotated[list[PlaceAnswer], at_most(MAX_PORTS)]
    gpus: Annotated[list[GpuAnswer], at_most(MAX_PORTS)]
    distances: Annotated[dict[Name, Annotated[dict[Name, Name], Few]], Few] = Field(
        description="Distance by device and GPU address: PIX, PXB, PHB, NODE, SYS, or empty if unknown."
    )


# names are a part of paths, so no dots alone and no slashes; colons for addresses of IPv6
_NODE_NAME = re.compile(r"[A-Za-z0-9:][A-Za-z0-9._:-]{0,252}", re.ASCII)


def is_node_name(text: str) -> bool:
    """Whether a text may be the name of a node."""
    return _NODE_NAME.fullmatch(text) is not None


def _host(text: str) -> str:
    return text if is_node_name(text) else ""


class ClockAnswer(AnswerPart):
    """The wall clock of the node, and whose it is."""

    node: Annotated[str, AfterValidator(_host)] = Field(
        description="Name of the node: the first of capture.node, or its host name."
    )
    synchronised: bool | None = Field(
        description="Whether the kernel says that its clock is synchronised; null if it does not say."
    )
    time_ns: Count = Field(description="Time while this was answered, in nanoseconds since the epoch.")


class LimitAnswer(AnswerPart):
    """A sign that the rails show."""

    sign: Name = Field(description="source, path, receiver, loss, link or unknown.")
    share: Amount = Field(description="Of the time in which the rails transmit, 0 to 1.")
    seconds: Amount = Field(description="Of all rails together.")
    text: Sentence = Field(description="The same as a sentence, with the evidence.")


class PortLimitsAnswer(AnswerPart):
    """A rail."""

    port: Name
    usual_peak_bytes_per_second: Amount | None = Field(description="Of transmit; null if it is unknown.")
    strip: Annotated[str, Field(max_length=MAX_BINS)] = Field(description="A letter per bin, explained in the legend.")
    remarks: Sentences = Field(description="Why most of its bins may be unknown.")


class LimitsAnswer(AnswerPart):
    """The signs of `bins` bins of `bin_ms` from `start_ms` on, in milliseconds since the epoch."""

    start_ms: Milliseconds
    bin_ms: Count
    bins: Count
    limits: Annotated[list[LimitAnswer], at_most(MAX_PORTS)] = Field(description="Of all rails, unknown last.")
    ports: Annotated[list[PortLimitsAnswer], at_most(MAX_PORTS)]
    legend: Annotated[dict[Name, Sentence], Few] = Field(description="What each letter of a strip means.")
    cannot_know: Sentence
    job: JobPortsAnswer | None = Field(None, description="Only there if the query names a job.")


def plain_value(value: Any, depth: int = MAX_DETAIL_DEPTH, left: list[int] | None = None) -> Any:
    """Free values of JSON, in bounds, with escaped texts; `left` counts how many more there may be."""
    left = [MAX_DETAILS] if left is None else left
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        raise ValueError("has too many details")
    if isinstance(value, str):
        return escape_controls(value[:MAX_SENTENCE])
    if isinstance(value, Mapping):
        return {plain_value(name, 0, left): plain_value(each, depth - 1, left) for name, each in value.items()}
    if isinstance(value, list):
        return [plain_value(each, depth - 1, left) for each in value]
    if value is None or isinstance(value, bool):
        return value
    # false for NaN, and unlike math.isfinite without an error of its own for whole numbers of any length
    if not abs(value) <= MAX_INTEGER:
        raise ValueError("has a number that is too large or not finite")
    return value


Plain = Annotated[dict[str, Any], BeforeValidator(plain_value)]
Rate = Annotated[float, Field(ge=0, le=MAX_RATE, allow_inf_nan=False)]


class StateAnswer(AnswerPart):
    """The properties of a port that belong to a moment."""

    state: Name = Field(description="State of the link, in the kernel's word.")
    physical: Name = Field(description="State of the physical layer, in the kernel's word.")
    active: bool
    rate_bytes_per_second: Rate | None = Field(
        description="Data rate of one direction while active, otherwise the last one while it was; null if unknown."
    )
    rail: bool = Field(description="Whether the role is compute.")
    stride: Annotated[int, Field(ge=1, le=MAX_STRIDE)] = Field(
        description="Number of sampling intervals between two samples."
    )
    problem: Name = Field(description="no-counters, unreadable, hung, disappeared, or empty.")
    role: Role

    @property
    def value(self) -> PortState:
        """As a value of the program."""
        return PortState(**vars(self))


class EventAnswer(AnswerPart):
    """Something that happened at most `uncertainty_ms` before `time_ms`, when it was noticed."""

    time_ms: Milliseconds
    time: Name = Field(description="The same in RFC 3339, UTC.")
    uncertainty_ms: Milliseconds
    kind: Name
    subject: Name = Field(description="A port, a device, or empty for the node.")
    device: Name
    port: Annotated[int, Field(ge=0, le=MAX_INTEGER)] | None
    text: Sentence = Field(description="A sentence.")
    before: StateAnswer | None = Field(description="State of the port before; null if it did not change or exist.")
    after: StateAnswer | None
    details: Plain

    @model_validator(mode="after")
    def _check_states(self) -> EventAnswer:
        if self.kind == STARTED:
            started_states(self.value)
        return self

    @property
    def value(self) -> Event:
        """As a value of the program."""
        return Event(
            time_ns=self.time_ms * MILLISECOND_NS,
            kind=self.kind,
            subject=self.subject,
            text=self.text,
            uncertainty_ns=self.uncertainty_ms * MILLISECOND_NS,
            before=None if self.before is None else self.before.value,
            after=None if self.after is None else self.after.value,
            details=self.details,
        )


class EventsAnswer(AnswerPart):
    """The newest events of a span, by time."""

    from_ms: Milliseconds | None = Field(description="Begin of the span; null for all events.")
    to_ms: Milliseconds
    kinds: Annotated[dict[Name, Count], Few] = Field(description="Number of these events by kind.")
    left_out: Count = Field(description="Number of older events of the span that the limit left out.")
    events: Annotated[list[EventAnswer], at_most(MAX_EVENTS)]

    @property
    def values(self) -> tuple[Event, ...]:
        """The events as values of the program."""
        return tuple(event.value for event in self.events)
