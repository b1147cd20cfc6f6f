"""The known answers of a daemon, of 0.1 and 0.2, checked member by member; nothing else of an answer is passed on.

Names with control characters are refused, sentences with them are escaped. Unknown members are dropped. An answer is
encoded anew from its model. `web.schemas` describes the same members to clients.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ibpulse.errors import DaemonError
from ibpulse.events.event import MAX_INTEGER
from ibpulse.fleet.http_peer import JSON_TYPE, MAX_BYTES, PeerAnswer
from ibpulse.fleet.nodes import Node
from ibpulse.fleet.targets import is_node_name
from ibpulse.model import MAX_PORT_NUMBER, ROLES, UNKNOWN_ROLE, settle_role
from ibpulse.text import escape_controls
from ibpulse.validation import explain, show

MAX_NAME, MAX_SENTENCE = 256, 2000
MAX_PORTS, MAX_JOBS, MAX_WORDS = 1024, 1000, 5000
NOT_OURS = "is this an ibpulse daemon of a compatible version?"


def _name(text: str) -> str:
    if escape_controls(text) != text:
        raise ValueError("has control characters")
    return text


def _sentence(text: str) -> str:
    return escape_controls(text[:MAX_SENTENCE])


def _host(text: str) -> str:
    return text if is_node_name(text) else ""


def _role(text: str) -> str:
    return text if text in ROLES else UNKNOWN_ROLE


Name = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_name)]
Sentence = Annotated[str, AfterValidator(_sentence)]
HostName = Annotated[str, AfterValidator(_host)]
Names = Annotated[list[Name], Field(max_length=MAX_WORDS)]
Role = Annotated[str, AfterValidator(_role)]
Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]


class NodeMember(BaseModel):
    """A part of an answer: types as in JSON, without conversions."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    def encode(self) -> bytes:
        """The part as JSON, with its known members only."""
        return self.model_dump_json().encode()


class NodeClock(NodeMember):
    """`/api/v1/clock`; `node` is empty if it is not usable as a name."""

    time_ns: Count
    synchronised: bool | None = None
    node: HostName = ""


class NodePortIdentity(NodeMember):
    """The identity of a port; empty texts for unknown."""

    link_layer: Name = ""
    rate: Name = ""
    guid: Name = ""
    board: Name = ""
    hca_type: Name = ""
    firmware: Name = ""
    driver: Name = ""
    pci_address: Name = ""
    numa_node: Name = ""
    netdev: Name = ""
    kind: Name = ""
    gpu: Name = ""
    gpu_distance: Name = ""


class NodePortSource(NodeMember):
    """The files of a port's byte counters."""

    name: Name
    resolution_seconds: Amount
    note: Sentence = ""


class NodePort(NodeMember):
    """One port; 0.1 gives neither `since` nor `role`."""

    name: Name
    device: Name
    port: Annotated[int, Field(ge=0, le=MAX_PORT_NUMBER)]
    state: Name
    since: Name | None = None
    active: bool
    rate_bytes_per_second: Amount | None
    rail: bool
    role: Role = UNKNOWN_ROLE
    source: NodePortSource | None
    problem: Sentence = ""
    identity: NodePortIdentity = NodePortIdentity()

    def model_post_init(self, _: object, /) -> None:
        """The role of a rail of 0.1 follows from its being one."""
        object.__setattr__(self, "role", settle_role(self.rail, self.role))


class NodePorts(NodeMember):
    """`/api/v1/ports`; 0.1 does not say whether they are simulated."""

    interval_seconds: Annotated[float, Field(gt=0, le=60, allow_inf_nan=False)]
    ports: Annotated[list[NodePort], Field(max_length=MAX_PORTS)]
    notices: Annotated[list[Sentence], Field(max_length=MAX_WORDS)] = []
    stuck_devices: Names = []
    simulated: bool | None = None


class NodeJob(NodeMember):
    """One job of `/api/v1/jobs`."""

    job_id: Name
    scheduler: Name
    source: Name
    name: Name = ""
    namespace: Name = ""
    ports: Names
    basis: Name = ""
    gpus: Names = []
    devices: Names = []
    running: bool
    began: Name | None = None
    began_ms: Count | None
    began_uncertainty_ms: Count = 0
    ended: Name | None = None
    ended_ms: Count | None
    ended_uncertainty_ms: Count = 0


class NodeJobs(NodeMember):
    """`/api/v1/jobs`."""

    known: bool
    sources: Names = []
    jobs: Annotated[list[NodeJob], Field(max_length=MAX_JOBS)]
    pods: Names = []
    notices: Annotated[list[Sentence], Field(max_length=MAX_WORDS)] = []


Answer = TypeVar("Answer", bound=NodeMember)


def read_answer(model: type[Answer], answer: PeerAnswer) -> Answer:
    """The checked answer.

    Raises:
        DaemonError: it is not JSON, or a member is missing or wrong.
    """
    if answer.media_type != JSON_TYPE:
        sent = show(escape_controls(answer.media_type))
        raise DaemonError(f"its answer is {sent}, not JSON; {NOT_OURS}", kind="bad-answer")
    return read_members(model, answer.body)


def read_members(model: type[Answer], content: bytes | str) -> Answer:
    """The checked members of a text in JSON.

    Raises:
        DaemonError: it is not JSON, or a member is missing or wrong.
    """
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(map(str, fault["loc"])) or "its answer"
        reason = escape_controls(f"{place[:100]} {explain(fault)}")
        raise DaemonError(f"its answer is not as expected: {reason[:300]}; {NOT_OURS}", kind="bad-answer") from error


async def ask_node(
    node: Node, model: type[Answer], path: str, query: Sequence[tuple[str, str]] = (), max_bytes: int = MAX_BYTES
) -> Answer:
    """The checked answer of a node at a path.

    Raises:
        DaemonError: there is no answer, the node refuses, or the answer is not the expected one.
    """
    return read_answer(model, await node.get(path, query, max_bytes=max_bytes))


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """What only metrics have; None if the daemon does not export it.

    `line_rate` is that of the node in bytes per second, transmit and receive together. `idle` and `slow` are the rails
    that are said to be so.
    """

    version: str | None
    line_rate: float | None
    idle: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()


FIGURES = tuple(
    ("name[]", name)
    for name in (
        "ibpulse_build_info",
        "ibpulse_node_line_rate_bytes_per_second",
        "ibpulse_port_rail_idle",
        "ibpulse_port_rail_slow",
    )
)
# 256 bytes for each of 1024 rails
MAX_FIGURES_BYTES = 300_000
_VERSION = re.compile(rb'^ibpulse_build_info\{[^\n]*?\bversion="([0-9A-Za-z.+-]{1,40})"', re.MULTILINE)
_LINE_RATE = re.compile(rb"^ibpulse_node_line_rate_bytes_per_second ([0-9.e+]{1,30})$", re.MULTILINE)
_RAILS = re.compile(rb"^ibpulse_port_rail_(idle|slow)\{([^}\n]{1,500})\} 1(?:\.0)?$", re.MULTILINE)
_DEVICE, _PORT = re.compile(rb'\bdevice="([A-Za-z0-9_.-]{1,64})"'), re.compile(rb'\bport="([0-9]{1,3})"')


async def ask_figures(node: Node) -> NodeFigures:
    """The figures of a node that only its metrics have.

    Raises:
        DaemonError: there is no answer, or the node refuses.
    """
    body = (await node.get("/metrics", FIGURES, max_bytes=MAX_FIGURES_BYTES)).body
    version, line_rate = _VERSION.search(body), _LINE_RATE.search(body)
    return NodeFigures(
        version[1].decode() if version else None,
        _number(line_rate[1]) if line_rate else None,
        _find_rails(body, b"idle"),
        _find_rails(body, b"slow"),
    )


def _find_rails(body: bytes, word: bytes) -> tuple[str, ...]:
    places = ((_DEVICE.search(labels), _PORT.search(labels)) for said, labels in _RAILS.findall(body) if said == word)
    return tuple(f"{device[1].decode()}:{port[1].decode()}" for device, port in places if device and port)


def _number(digits: bytes) -> float | None:
    try:
        value = float(digits)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
