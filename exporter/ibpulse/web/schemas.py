"""Models of the answers for the OpenAPI document. For speed, answers are not validated at run time."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from ibpulse.web.problems import MEDIA_TYPE, ProblemDocument

_REASONS = {
    404: "No such port.",
    414: "The query is too long.",
    422: "A parameter cannot be used; the detail names the bound and the way out.",
    503: "Too many wide requests at once; try again.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses of refusals with these statuses."""
    content = {MEDIA_TYPE: {"schema": ProblemDocument.model_json_schema()}}
    return {status: {"description": _REASONS[status], "content": content} for status in statuses}


def text(description: str, media_type: str = "text/plain") -> dict[str, Any]:
    """OpenAPI response of plain text."""
    return {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}


class History(BaseModel):
    """What the ring holds at all."""

    oldest_ms: int
    newest_ms: int


class Series(BaseModel):
    """One direction of one port."""

    port: str
    direction: Literal["transmit", "receive"]
    values: list[float | None]


class WindowAnswer(BaseModel):
    """A window as format=json gives it."""

    interval_ms: int
    resolution_ms: int
    statistic: Literal["max", "mean", "min"]
    unit: Literal["bytes", "ratio"]
    start_ms: int
    end_ms: int
    points: int
    holes: int
    history: History
    coverage: str
    series: list[Series]

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        """The schema with its parts inside, so that it can stand within a response."""
        schema = super().model_json_schema()
        parts = schema.pop("$defs")
        schema["properties"]["history"] = parts["History"]
        schema["properties"]["series"]["items"] = parts["Series"]
        return schema


GRAFANA_SCHEMA: dict[str, Any] = {
    "title": "A Grafana data frame, as format=grafana gives it",
    "type": "object",
    "required": ["schema", "data"],
    "properties": {
        "schema": {"type": "object"},
        "data": {"type": "object", "properties": {"values": {"type": "array", "items": {"type": "array"}}}},
    },
}


class Identity(BaseModel):
    """What a port is; an empty string where the kernel does not say."""

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
    gpu: str = Field(description="PCI addresses of the nearest GPUs, with commas between them.")
    gpu_distance: str = Field(description="How near these are: PIX, PXB, PHB, NODE, SYS.")


class Source(BaseModel):
    """Where the bytes of a port are read, and how often a new value can be seen there."""

    name: str
    resolution_seconds: float
    note: str


class PortAnswer(BaseModel):
    """One port as the last scan saw it."""

    name: str
    device: str
    port: int
    state: str
    active: bool
    rate_bytes_per_second: float | None = Field(description="Data rate of one direction; null unless ACTIVE and known.")
    rail: bool
    source: Source | None
    problem: str
    identity: Identity


class PortsAnswer(BaseModel):
    """All ports of the node."""

    interval_seconds: float
    ports: list[PortAnswer]
    notices: list[str]
    stuck_devices: list[str]


class LinkAnswer(BaseModel):
    """One PCIe link; null where the kernel does not say."""

    address: str = Field(description="The lower end: a card, or the upstream port of a switch.")
    upper: str = Field(description="The port that it is plugged into; empty where none is shown.")
    speed_gts: float | None
    width: int | None
    max_speed_gts: float | None = Field(description="What both ends can do.")
    max_width: int | None
    bytes_per_second: float | None = Field(description="One direction, after line coding.")
    max_bytes_per_second: float | None


class VerdictAnswer(BaseModel):
    """What is wrong with the place of a device."""

    word: Literal["downtrained", "slow_slot", "unknown"]
    sentence: str


class PlaceAnswer(BaseModel):
    """Where one RDMA device is plugged in."""

    device: str
    kind: str
    pci_address: str
    numa_node: int | None
    local_cpus: str
    chain: list[str] = Field(description="Host bridge and PCI functions, from the root down to the device.")
    links: list[LinkAnswer] = Field(description="PCIe links from the root down.")
    pcie_bytes_per_second: float | None = Field(description="The narrowest link now.")
    pcie_max_bytes_per_second: float | None = Field(description="The narrowest link if each did what both ends can.")
    gpus: list[str] = Field(description="The nearest GPUs.")
    gpu_distance: str
    verdicts: list[VerdictAnswer]
    source: Literal["sysfs", "topology.file"]


class GpuAnswer(BaseModel):
    """A GPU of the node; name and form factor are empty for ids that are not known."""

    address: str
    vendor: str
    device: str
    name: str
    form_factor: str
    numa_node: int | None
    chain: list[str]


class TopologyAnswer(BaseModel):
    """Where devices and GPUs are plugged in, and how far they are from each other."""

    devices: list[PlaceAnswer]
    gpus: list[GpuAnswer]
    distances: dict[str, dict[str, str]] = Field(
        description="By device and by address of a GPU: PIX, PXB, PHB, NODE, SYS, or empty where nothing tells."
    )
