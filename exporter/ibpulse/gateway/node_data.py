"""The data of one node below `/node/NAME/api/v1/`: asked of the node and checked; all but frames encoded anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from ibpulse.base.errors import DaemonError
from ibpulse.core.answers.events import EventsAnswer
from ibpulse.core.answers.jobs import CapturesAnswer, JobsAnswer
from ibpulse.core.answers.members import AnswerPart
from ibpulse.core.answers.node import ClockAnswer, PortsAnswer, TopologyAnswer
from ibpulse.core.answers.samples import NPY_TYPE
from ibpulse.core.answers.summary import SummaryAnswer
from ibpulse.core.capture_names import parse_name
from ibpulse.core.client.transport import (
    JSON_TYPE,
    MAX_BYTES,
    WINDOW_HEADER,
    PeerAnswer,
    read_answer,
    read_array,
    read_json,
    read_window,
)
from ibpulse.core.http.admission import ParallelRequests
from ibpulse.core.http.problems import ProblemError, bad_parameter, operation, problems
from ibpulse.core.http.requests import refuse_repeated
from ibpulse.gateway.nodes.nodes import PAGE_SECONDS, Node
from ibpulse.gateway.parts import GatewayParts

API = "/node/{name}/api/v1/"
PARQUET_TYPE, PARQUET_MARK = "application/vnd.apache.parquet", b"PAR1"
MAX_WINDOW_BYTES, MAX_CAPTURE_BYTES = 16_000_000, 32_000_000
CAPTURE_SECONDS = 10.0
# answers of this size are in memory twice
MAX_LARGE = 4


@dataclass(frozen=True, slots=True)
class NodeResource:
    """A path of the API of a node, its operation, what is there as a sentence, and how its answer is read."""

    path: str
    operation: str
    sentence: str
    read: Callable[[PeerAnswer, str], Response]
    repeatable: tuple[str, ...] = ()
    max_bytes: int = MAX_BYTES


def find_node(parts: GatewayParts, name: str) -> Node:
    """The node of a path.

    Raises:
        ProblemError: no source lists it.
    """
    node = parts.nodes.get(name)
    if node is None:
        raise ProblemError("unknown-node", 404, f"No such node: {name[:64]!r}. See /api/v1/nodes for those that exist.")
    return node


def node_problem(node: Node, error: DaemonError) -> ProblemError:
    """The error for a node that does not give what was asked for."""
    if error.status in (404, 422, 503):
        # the node serves, but not this request
        return ProblemError("node-refused", error.status, f"{node.name}: {error}", node=node.name)
    kinds = {"no-answer": ("no-answer", 504), "refused": ("node-refused", 502), "bad-answer": ("bad-answer", 502)}
    kind, status = kinds[error.kind]
    return ProblemError(kind, status, f"{node.name}: {error}", node=node.name)


def _json(model: type[AnswerPart]) -> Callable[[PeerAnswer, str], Response]:
    def read(answer: PeerAnswer, _: str) -> Response:
        return Response(read_answer(model, answer).encode(), media_type=JSON_TYPE)

    return read


def _window(answer: PeerAnswer, wanted: str) -> Response:
    if wanted == "npy":
        body, about = read_array(answer).encode()
        return Response(body, media_type=NPY_TYPE, headers={WINDOW_HEADER: about})
    if wanted == "grafana":
        # only Grafana's server reads it, and takes it as data
        return Response(read_json(answer), media_type=JSON_TYPE)
    # what this node did not send, such as the uncertainty, is not in the answer either
    return Response(read_window(answer).model_dump_json(exclude_unset=True), media_type=JSON_TYPE)


def _summary(answer: PeerAnswer, _: str) -> Response:
    found = read_answer(SummaryAnswer, answer)
    # only a query that names a job has one in its answer
    return Response(found.model_dump_json(exclude=None if found.job else {"job"}), media_type=JSON_TYPE)


def _captures(answer: PeerAnswer, _: str) -> Response:
    found = read_answer(CapturesAnswer, answer)
    # the addresses are those on the node itself
    without_url = {"__all__": {"url"}}
    return Response(
        found.model_dump_json(exclude={"captures": without_url, "pending": without_url}), media_type=JSON_TYPE
    )


RESOURCES = (
    NodeResource(
        "ports",
        "list_node_ports",
        "Every port of the node: identity, state, and files of its byte counters.",
        _json(PortsAnswer),
    ),
    NodeResource(
        "topology",
        "get_node_topology",
        "The devices of the node with their PCIe links, and its GPUs.",
        _json(TopologyAnswer),
    ),
    NodeResource(
        "jobs", "list_node_jobs", "The jobs of the node and the ports that carry their traffic.", _json(JobsAnswer)
    ),
    NodeResource(
        "events", "list_node_events", "What happened on the node and when.", _json(EventsAnswer), ("kind", "port")
    ),
    NodeResource("summary", "get_node_summary", "All statistics of one span of whole seconds.", _summary),
    NodeResource("captures", "list_node_captures", "The captures of the node.", _captures),
    NodeResource("clock", "get_node_clock", "The wall clock of the node.", _json(ClockAnswer)),
    NodeResource(
        "window",
        "get_node_window",
        "Rates of single samples, or of bins of samples.",
        _window,
        ("port",),
        MAX_WINDOW_BYTES,
    ),
)


def node_router(parts: GatewayParts) -> APIRouter:
    """The routes of the data of a node. Parameters are those of the daemon, which judges them."""
    router = APIRouter()
    large = ParallelRequests(MAX_LARGE, "windows or captures of nodes are already being read")
    for resource in RESOURCES:
        router.add_api_route(
            API + resource.path,
            _answer_with(parts, resource, large),
            **operation(resource.operation),
            description=resource.sentence,
            response_class=Response,
            responses=problems(404, 422, 502, 503, 504),
            dependencies=[refuse_repeated(*resource.repeatable)],
        )

    @router.get(
        API + "captures/{file}",
        **operation("download_node_capture"),
        responses=problems(404, 502, 503, 504),
        response_class=Response,
    )
    async def download(request: Request, name: str, file: str) -> Response:
        """A finished capture, as Parquet."""
        node = find_node(parts, name)
        if parse_name(file) is None:
            raise ProblemError("unknown-capture", 404, f"No such capture: {file[:64]!r}.")
        async with large.place(request):
            try:
                path = f"/api/v1/captures/{file}"
                body = (await node.get(path, max_bytes=MAX_CAPTURE_BYTES, seconds=CAPTURE_SECONDS)).body
            except DaemonError as error:
                raise node_problem(node, error) from error
            if not (body.startswith(PARQUET_MARK) and body.endswith(PARQUET_MARK)):
                raise node_problem(node, DaemonError("its answer is not a capture", kind="bad-answer"))
            headers = {"Content-Disposition": f'attachment; filename="{file}"'}
            return Response(body, media_type=PARQUET_TYPE, headers=headers)

    return router


def _answer_with(
    parts: GatewayParts, resource: NodeResource, large: ParallelRequests
) -> Callable[[str, Request], Awaitable[Response]]:
    async def answer(name: str, request: Request) -> Response:
        node = find_node(parts, name)
        if resource.path == "window" and request.query_params.get("format") == "csv":
            raise bad_parameter("format", "only the node itself answers with csv; choose json, npy or grafana")
        if resource.max_bytes <= MAX_BYTES:
            return await ask(node, request)
        async with large.place(request):
            return await ask(node, request)

    async def ask(node: Node, request: Request) -> Response:
        query = request.query_params.multi_items()
        wanted = request.query_params.get("format", "json")
        path = f"/api/v1/{resource.path}"
        try:
            found = await node.get(path, query, max_bytes=resource.max_bytes, seconds=PAGE_SECONDS)
            return resource.read(found, wanted)
        except DaemonError as error:
            raise node_problem(node, error) from error

    return answer
