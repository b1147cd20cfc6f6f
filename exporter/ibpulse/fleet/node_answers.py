"""The known answers of a daemon, checked member by member; nothing else of an answer is passed on.

Names with control characters are refused, sentences with them are escaped. Unknown members are dropped. An answer is
encoded anew from its model. `web.schemas` describes the same members to clients.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ibpulse.errors import DaemonError
from ibpulse.events.event import MAX_INTEGER
from ibpulse.fleet.http_peer import JSON_TYPE, MAX_BYTES, PeerAnswer
from ibpulse.fleet.nodes import Node
from ibpulse.fleet.targets import is_node_name
from ibpulse.instants import parse_rfc3339
from ibpulse.model import MAX_PORT_NUMBER, ROLES, UNKNOWN_ROLE
from ibpulse.text import escape_controls, show
from ibpulse.units import MILLISECOND_NS
from ibpulse.validation import explain

MAX_NAME, MAX_SENTENCE = 256, 2000
MAX_PORTS, MAX_JOBS, MAX_WORDS, MAX_MEMBERS = 1024, 1000, 5000, 1000
# more than the numbers of the longest window and of its uncertainty; one takes 50 bytes of memory
MAX_ITEMS = 2_100_000
NOT_OURS = "is this an ibpulse daemon of a compatible version?"
_SERIES = re.compile(r"[^ ]+:[0-9]{1,3} (transmit|receive)( uncertainty)?")


def _name(text: str) -> str:
    if escape_controls(text) != text:
        raise ValueError("has control characters")
    return text


def _sentence(text: str) -> str:
    return escape_controls(text[:MAX_SENTENCE])


def _host(text: str) -> str:
    return text if is_node_name(text) else ""


def check_series(text: str) -> str:
    """The text, if it names one direction of a port.

    Raises:
        ValueError: it does not.
    """
    if not _SERIES.fullmatch(text):
        raise ValueError("is not the name of a series")
    return text


def _role(text: str) -> str:
    return text if text in ROLES else UNKNOWN_ROLE


def _whole_ms(seconds: float) -> float:
    if round(seconds * 1e9) % 1_000_000:
        raise ValueError("is not a number of whole milliseconds")
    return seconds


Name = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_name)]
Sentence = Annotated[str, AfterValidator(_sentence)]
HostName = Annotated[str, AfterValidator(_host)]
Role = Annotated[str, AfterValidator(_role)]
Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Score = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
SeriesName = Annotated[Name, AfterValidator(check_series)]


def at_most(items: int) -> Any:
    """The bound of a list. Its first wrong item ends the check, because every fault takes a kilobyte of memory."""
    return Field(max_length=items, fail_fast=True)


def _few(members: Any) -> Any:
    if isinstance(members, dict) and len(members) > MAX_MEMBERS:
        raise ValueError(f"has too many members; use at most {MAX_MEMBERS}")
    return members


Names = Annotated[list[Name], at_most(MAX_WORDS)]
Few = BeforeValidator(_few)
"""The bound of an object whose members have any names."""


class NodeMember(BaseModel):
    """A part of an answer: types as in JSON, without conversions."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    def encode(self) -> bytes:
        """The part as JSON, with its known members only."""
        return self.model_dump_json().encode()


class NodeClock(NodeMember):
    """`/api/v1/clock`; `node` is empty if it is not usable as a name."""

    node: HostName = ""
    synchronised: bool | None = None
    time_ns: Count


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
    """One port."""

    name: Name
    device: Name
    port: Annotated[int, Field(ge=0, le=MAX_PORT_NUMBER)]
    state: Name
    since: Name | None
    active: bool
    rate_bytes_per_second: Amount | None
    rail: bool
    role: Role
    source: NodePortSource | None
    problem: Sentence = ""
    identity: NodePortIdentity = NodePortIdentity()

    @property
    def since_ms(self) -> int | None:
        """Since when it has been in its state; None if that is not known."""
        try:
            return None if self.since is None else parse_rfc3339(self.since) // MILLISECOND_NS
        except ValueError:
            return None


class NodePorts(NodeMember):
    """`/api/v1/ports`."""

    interval_seconds: Annotated[float, Field(ge=0.001, le=1, allow_inf_nan=False), AfterValidator(_whole_ms)]
    ports: Annotated[list[NodePort], at_most(MAX_PORTS)]
    notices: Annotated[list[Sentence], at_most(MAX_WORDS)] = []
    stuck_devices: Names = []
    simulated: bool


class NodeJobTraffic(NodeMember):
    """Until when a job moved bytes on a node: at most the uncertainty before each time, if it ended at all."""

    since_ms: Count
    known_until_ms: Count | None
    step_period_seconds: Amount | None
    last_ms: Count | None
    last_uncertainty_ms: Count
    last_transmit_ms: Count | None
    last_transmit_uncertainty_ms: Count
    last_receive_ms: Count | None
    last_receive_uncertainty_ms: Count

    @property
    def instants(self) -> tuple[int | None, ...]:
        """The last traffic of either direction, of transmit and of receive."""
        return self.last_ms, self.last_transmit_ms, self.last_receive_ms

    @property
    def silent_seconds(self) -> float:
        """For how long it has certainly been silent, 0 if it is not."""
        if self.last_ms is None or self.known_until_ms is None:
            return 0.0
        return max(0, self.known_until_ms - self.last_ms) / 1000


class NodeJob(NodeMember):
    """One job of `/api/v1/jobs`."""

    job_id: Name
    scheduler: Name
    source: Name
    name: Name = ""
    namespace: Name = ""
    ports: Annotated[list[Name], at_most(MAX_PORTS)]
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
    traffic: NodeJobTraffic | None = None


class NodeJobs(NodeMember):
    """`/api/v1/jobs`."""

    known: bool
    sources: Names = []
    jobs: Annotated[list[NodeJob], at_most(MAX_JOBS)]
    pods: Names = []
    notices: Annotated[list[Sentence], at_most(MAX_WORDS)] = []


Answer = TypeVar("Answer", bound=NodeMember)


def read_answer(model: type[Answer], answer: PeerAnswer) -> Answer:
    """The checked answer.

    Raises:
        DaemonError: it is not JSON, or a member is missing or wrong.
    """
    return read_members(model, read_json(answer))


def read_json(answer: PeerAnswer) -> bytes:
    """The body of an answer whose media type is JSON.

    Raises:
        DaemonError: it has another type.
    """
    if answer.media_type != JSON_TYPE:
        sent = show(escape_controls(answer.media_type))
        raise DaemonError(f"its answer is {sent}, not JSON; {NOT_OURS}", kind="bad-answer")
    return answer.body


def read_members(model: type[Answer], content: bytes | str) -> Answer:
    """The checked members of a text in JSON.

    Raises:
        DaemonError: it is not JSON, has too many items, or a member is missing or wrong.
    """
    items = content.count(b",") if isinstance(content, bytes) else content.count(",")
    if items > MAX_ITEMS:
        raise DaemonError(f"its answer has more than {MAX_ITEMS} items; {NOT_OURS}", kind="bad-answer")
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
