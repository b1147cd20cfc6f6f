"""Models of the responses for the OpenAPI document. For speed, responses are not validated at run time."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from ibpulse.jobs.claims import BASES, SOURCES
from ibpulse.model import ROLES
from ibpulse.web.problems import MEDIA_TYPE, ProblemDocument

_REASONS = {
    401: "Authentication required.",
    404: "No such port or job.",
    414: "Query too long.",
    421: "Host name not served.",
    422: "Invalid parameter; the detail names the limit and how to fix the request.",
    429: "Rate limit exceeded.",
    502: "The node refuses, or its answer is not the expected one.",
    503: "Too many concurrent wide requests; try again.",
    504: "The node does not answer.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI descriptions of error responses with these statuses."""
    content = {MEDIA_TYPE: {"schema": ProblemDocument.model_json_schema()}}
    return {status: {"description": _REASONS[status], "content": content} for status in statuses}


def operation(name: str) -> dict[str, Any]:
    """The name of a route in the OpenAPI document, which clients are generated from; functions can be renamed."""
    return {"operation_id": name, "name": name}


def text(description: str, media_type: str = "text/plain") -> dict[str, Any]:
    """OpenAPI description of a plain-text response."""
    return {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}


ROLE_WORDS = f"{', '.join(ROLES[:-1])} or {ROLES[-1]}."


class History(BaseModel):
    """The time span of the ring."""

    oldest_ms: int
    newest_ms: int


class Series(BaseModel):
    """One direction of one port."""

    port: str
    direction: Literal["transmit", "receive"]
    values: list[float | None]
    uncertainty: list[float | None] | None = Field(
        None, description="With uncertainty=true: the part by which a rate in the bin may be wrong, at most."
    )


class Implausible(BaseModel):
    """Samples above the line rate."""

    merged: int = Field(description="How many were merged with samples before them.")
    unexplained: int = Field(description="How many nothing explains; they are as they were read.")
    places: list[list[int]] = Field(description="Merged samples: series, first bin, number of bins; the first 200.")


class HoldingAnswer(BaseModel):
    """Ports that a job had from one time to another, each noticed at most the uncertainty later."""

    ports: list[str]
    from_ms: int | None = Field(description="null if it had them since before the events go back.")
    from_uncertainty_ms: int
    to_ms: int | None = Field(description="null while it has them.")
    to_uncertainty_ms: int


class JobPortsAnswer(BaseModel):
    """A job, and the ports that it had in the span."""

    job_id: str
    scheduler: str
    running: bool
    had: list[HoldingAnswer] = Field(description="Oldest first; the newest 32, with at most 512 ports.")


def inline_parts(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with all its parts inlined, for use within a request or a response."""
    parts = schema.pop("$defs", {})

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            named = parts.get(str(value.get("$ref")).rpartition("/")[2])
            return resolve(named) if named else {name: resolve(member) for name, member in value.items()}
        return [resolve(item) for item in value] if isinstance(value, list) else value

    return dict(resolve(schema))


class WindowAnswer(BaseModel):
    """A window with format=json."""

    interval_ms: int
    resolution_ms: int
    statistic: Literal["max", "mean", "min"]
    unit: Literal["bytes_per_second", "ratio"] = Field(description="As in the query.")
    start_ms: int
    end_ms: int
    points: int
    holes: int
    implausible: Implausible
    history: History
    coverage: str
    job: JobPortsAnswer | None = Field(None, description="Only with job=.")
    series: list[Series]


GRAFANA_SCHEMA: dict[str, Any] = {
    "title": "A Grafana data frame, with format=grafana",
    "type": "object",
    "required": ["schema", "data"],
    "properties": {
        "schema": {"type": "object"},
        "data": {"type": "object", "properties": {"values": {"type": "array", "items": {"type": "array"}}}},
    },
}


class Identity(BaseModel):
    """Identity of a port; empty strings where the kernel gives no information."""

    link_layer: str
    rate: str
    guid: str
    board: str
    hca_type: str
    firmware: str
    driver: str
    pci_address: str
    numa_node: str
    netdev: str
    kind: str = Field(description="Kind of function: pf, vf, sf, bond and others; see docs/topology.md.")
    gpu: str = Field(description="PCI addresses of the nearest GPUs, comma separated.")
    gpu_distance: str = Field(description="Distance of these GPUs: PIX, PXB, PHB, NODE, SYS.")


class Source(BaseModel):
    """The files of a port's byte counters, and their sampling interval and resolution."""

    name: str
    resolution_seconds: float
    note: str


class PortAnswer(BaseModel):
    """One port, as of the last scan."""

    name: str
    device: str
    port: int
    state: str = Field(description="The kernel's word, or disappeared, unreadable or hung.")
    since: str | None = Field(
        description="When this state began, in RFC 3339; null if it did not change as far as the events go back.",
    )
    active: bool
    rate_bytes_per_second: float | None = Field(
        description="Data rate in one direction; null unless the port is ACTIVE and the rate is known."
    )
    rail: bool = Field(description="Whether the role is compute.")
    role: str = Field(description=ROLE_WORDS)
    source: Source | None
    problem: str
    identity: Identity


class PortsAnswer(BaseModel):
    """All ports of the node."""

    interval_seconds: float
    ports: list[PortAnswer]
    notices: list[str]
    stuck_devices: list[str]
    simulated: bool = Field(description="Whether the ports are those of a simulator or a replay.")


class ClockAnswer(BaseModel):
    """The wall clock of the node, and whose it is."""

    node: str = Field(description="Name of the node: the first of capture.node, or its host name.")
    time_ns: int = Field(description="Time while this was answered, in nanoseconds since the epoch.")
    synchronised: bool | None = Field(
        description="Whether the kernel says that its clock is synchronised; null if it does not say."
    )


class LinkAnswer(BaseModel):
    """One PCIe link; null where the kernel gives no information."""

    address: str = Field(description="Lower end: a card, or the upstream port of a switch.")
    upper: str = Field(description="Upper end: the port it is plugged into; empty if unknown.")
    speed_gts: float | None
    width: int | None
    max_speed_gts: float | None = Field(description="Maximum that both ends support.")
    max_width: int | None
    bytes_per_second: float | None = Field(description="One direction, after line coding.")
    max_bytes_per_second: float | None


class VerdictAnswer(BaseModel):
    """A problem with the placement of a device."""

    word: Literal["downtrained", "slow_slot", "unknown"]
    sentence: str


class PlaceAnswer(BaseModel):
    """Placement of one RDMA device."""

    device: str
    kind: str
    pci_address: str
    numa_node: int | None
    local_cpus: str
    chain: list[str] = Field(description="Host bridge and PCI functions, from the root down to the device.")
    links: list[LinkAnswer] = Field(description="PCIe links from the root down.")
    pcie_bytes_per_second: float | None = Field(description="Bandwidth of the narrowest link.")
    pcie_max_bytes_per_second: float | None = Field(
        description="Bandwidth of the narrowest link if every link ran at its maximum."
    )
    gpus: list[str] = Field(description="The nearest GPUs.")
    gpu_distance: str
    verdicts: list[VerdictAnswer]
    source: Literal["sysfs", "topology.file"]


class GpuAnswer(BaseModel):
    """A GPU of the node; name and form factor are empty for unknown ids."""

    address: str
    vendor: str
    device: str
    name: str
    form_factor: str
    numa_node: int | None
    chain: list[str]


class TopologyAnswer(BaseModel):
    """Placement of devices and GPUs, and the distances between them."""

    devices: list[PlaceAnswer]
    gpus: list[GpuAnswer]
    distances: dict[str, dict[str, str]] = Field(
        description="Distance by device and GPU address: PIX, PXB, PHB, NODE, SYS, or empty if unknown."
    )


class StateAnswer(BaseModel):
    """The properties of a port that belong to a moment."""

    state: str = Field(description="State of the link, in the kernel's word.")
    physical: str = Field(description="State of the physical layer, in the kernel's word.")
    active: bool
    rate_bytes_per_second: float | None = Field(
        description="Data rate of one direction while active, otherwise the last one while it was; null if unknown."
    )
    rail: bool = Field(description="Whether the role is compute.")
    role: str = Field(description=ROLE_WORDS)
    stride: int = Field(description="Number of sampling intervals between two samples.")
    problem: str = Field(description="no-counters, unreadable, hung, disappeared, or empty.")


class EventAnswer(BaseModel):
    """Something that happened at most `uncertainty_ms` before `time_ms`, when it was noticed."""

    time_ms: int
    time: str = Field(description="The same in RFC 3339, UTC.")
    uncertainty_ms: int
    kind: str
    subject: str = Field(description="A port, a device, or empty for the node.")
    device: str
    port: int | None
    text: str = Field(description="A sentence.")
    before: StateAnswer | None = Field(description="State of the port before; null if it did not change or exist.")
    after: StateAnswer | None
    details: dict[str, Any]


class EventsAnswer(BaseModel):
    """The newest events of a span, by time."""

    from_ms: int | None = Field(description="Begin of the span; null for all events.")
    to_ms: int
    kinds: dict[str, int] = Field(description="Number of these events by kind.")
    left_out: int = Field(description="Number of older events of the span that the limit left out.")
    events: list[EventAnswer]


class JobTrafficAnswer(BaseModel):
    """Until when a job moved bytes on this node. Traffic ended at most the uncertainty before each time, if at all."""

    since_ms: int = Field(description="Since when its traffic has been followed.")
    known_until_ms: int | None = Field(description="Time of the newest sample; null before the first.")
    step_period_seconds: float | None = Field(description="While the job is silent, that of its last steps.")
    last_ms: int | None = Field(description="Last traffic in either direction; null if there was none.")
    last_uncertainty_ms: int
    last_transmit_ms: int | None
    last_transmit_uncertainty_ms: int
    last_receive_ms: int | None
    last_receive_uncertainty_ms: int


class JobAnswer(BaseModel):
    """One job; it began or ended at most the uncertainty before the time, when that was noticed."""

    job_id: str
    scheduler: str
    source: str = Field(description=f"{', '.join(SOURCES[:-1])} or {SOURCES[-1]}.")
    name: str = Field(description="Empty unless jobs.names is set, and the source gives it.")
    namespace: str
    ports: list[str] = Field(description="Ports whose traffic is the job's; the last ones of a job that ended.")
    basis: str = Field(description=f"How the ports are known: {', '.join(BASES)}; empty if they are not.")
    gpus: list[str] = Field(description="PCI addresses or indexes, as the source gives them; empty for a past job.")
    devices: list[str] = Field(description="RDMA devices, as the source gives them; empty for a past job.")
    running: bool
    began: str | None = Field(description="In RFC 3339; null if it was running when it was first seen.")
    began_ms: int | None
    began_uncertainty_ms: int
    ended: str | None = Field(description="In RFC 3339; null while it is running.")
    ended_ms: int | None
    ended_uncertainty_ms: int
    traffic: JobTrafficAnswer | None = Field(
        description="Null for a job that ended, shares a port, or is beyond the first 8."
    )


class JobsAnswer(BaseModel):
    """The jobs that run, then those that ended within the history, the last one first."""

    known: bool = Field(description="Whether `jobs` has all jobs that run: the sources can list them.")
    sources: list[str] = Field(description="The sources that exist on this node.")
    jobs: list[JobAnswer]
    pods: list[str] = Field(description="UIDs of the pods on this node; jobs are those that hold an RDMA device.")
    notices: list[str]
