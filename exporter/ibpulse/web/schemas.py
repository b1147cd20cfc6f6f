"""Models of the responses for the OpenAPI document. For speed, responses are not validated at run time."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from ibpulse.jobs.claims import BASES, SOURCES
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

    known: bool = Field(description="Whether any source on this node can list its jobs.")
    sources: list[str] = Field(description="The sources that exist on this node.")
    jobs: list[JobAnswer]
    pods: list[str] = Field(description="UIDs of the pods on this node; jobs are those that hold an RDMA device.")
    notices: list[str]
