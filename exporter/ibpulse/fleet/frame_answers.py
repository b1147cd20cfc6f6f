"""Windows of a daemon as a Grafana data frame and as CSV, and its topology; checked like those of `node_answers`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from ibpulse.errors import DaemonError
from ibpulse.events.event import MAX_INTEGER
from ibpulse.fleet.http_peer import PeerAnswer
from ibpulse.fleet.node_answers import (
    MAX_PORTS,
    NOT_OURS,
    Amount,
    Count,
    Few,
    Name,
    Names,
    NodeMember,
    Sentence,
    at_most,
    check_series,
    read_answer,
)
from ibpulse.fleet.window_answers import MAX_VALUES, NodeWindowGrid

CSV_TYPE = "text/csv"
MAX_LINKS = 100
# possessive, because a text that matches in several ways is tried in all of them, 2^columns
_CSV_HEAD = re.compile(
    rb"time_ms(,[A-Za-z0-9_.-]{1,256}:[0-9]{1,3} (transmit|receive)( uncertainty)?+( [a-z_]{1,20})?+){0,4096}+"
)
_CSV_LINES = re.compile(rb"(?:[0-9]{1,18}(?:,[0-9.eE+-]{0,30}){1,4096}+\n)*+")

# -1 is what the kernel says where there is none
NumaNode = Annotated[int, Field(ge=-1, le=MAX_INTEGER)] | None


def _field_name(text: str) -> str:
    return text if text == "time" else check_series(text)


class FrameUnit(NodeMember):
    """The unit of a field."""

    unit: Literal["percentunit", "Bps"]


class FrameField(NodeMember):
    """The time, or a series."""

    name: Annotated[Name, AfterValidator(_field_name)]
    type: Literal["time", "number"]
    config: FrameUnit | None = None


class FrameMeta(NodeMember):
    """How Grafana shows the frame, and what its values are."""

    type: Literal["heatmap-rows"]
    custom: NodeWindowGrid


class FrameSchema(NodeMember):
    """The fields of a frame."""

    name: Literal["ibpulse"]
    meta: FrameMeta
    fields: Annotated[list[FrameField], Field(min_length=1), at_most(4 * MAX_PORTS + 1)]


class FrameData(NodeMember):
    """The columns of a frame, times first."""

    values: Annotated[list[Annotated[list[Amount | None], at_most(MAX_VALUES)]], at_most(4 * MAX_PORTS + 1)]


class NodeFrame(NodeMember):
    """`/api/v1/window` for Grafana."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", serialize_by_alias=True)

    layout: FrameSchema = Field(alias="schema")
    data: FrameData


def read_frame(answer: PeerAnswer) -> NodeFrame:
    """The checked frame of an answer.

    Raises:
        DaemonError: it is not such an answer.
    """
    frame = read_answer(NodeFrame, answer)
    columns = frame.data.values
    if len(columns) != len(frame.layout.fields) or len({len(column) for column in columns}) > 1:
        raise DaemonError(f"its answer is not as expected: columns of different lengths; {NOT_OURS}", kind="bad-answer")
    return frame


def read_csv(answer: PeerAnswer) -> bytes:
    """The checked CSV of an answer: a head of series, and lines of numbers.

    Raises:
        DaemonError: it is not such an answer.
    """
    head, _, lines = answer.body.partition(b"\n")
    if answer.media_type != CSV_TYPE or not _CSV_HEAD.fullmatch(head) or not _CSV_LINES.fullmatch(lines):
        raise DaemonError(f"its answer is not a table of numbers; {NOT_OURS}", kind="bad-answer")
    return answer.body


class NodeLink(NodeMember):
    """A PCIe link."""

    address: Name
    upper: Name
    speed_gts: Amount | None
    width: Count | None
    max_speed_gts: Amount | None
    max_width: Count | None
    bytes_per_second: Amount | None
    max_bytes_per_second: Amount | None


class NodeVerdict(NodeMember):
    """A problem with the placement of a device."""

    word: Name
    sentence: Sentence


class NodePlace(NodeMember):
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


class NodeGpu(NodeMember):
    """A GPU."""

    address: Name
    vendor: Name
    device: Name
    name: Name
    form_factor: Name
    numa_node: NumaNode
    chain: Names


class NodeTopology(NodeMember):
    """`/api/v1/topology`."""

    devices: Annotated[list[NodePlace], at_most(MAX_PORTS)]
    gpus: Annotated[list[NodeGpu], at_most(MAX_PORTS)]
    distances: Annotated[dict[Name, Annotated[dict[Name, Name], Few]], Few]
