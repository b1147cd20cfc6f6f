"""Requests to one daemon, or to a gateway about the nodes of a job, with validated answers."""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import orjson
from pydantic import Field

from ibpulse.base.errors import DaemonError
from ibpulse.base.text import first_names, split_lines
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.members import MAX_JOBS, MAX_PORTS, NOT_OURS, AnswerPart, Name, Part, at_most
from ibpulse.core.answers.node import MAX_EVENTS, EventsAnswer, PortsAnswer
from ibpulse.core.client import TIMEOUT_SECONDS, DaemonAddress, transport
from ibpulse.core.events.event import MAX_INTEGER
from ibpulse.core.statistics.lateness import ClockOffset

MAX_ANSWER_BYTES = 64_000_000
MAX_NAMED = 8
WINDOW = "/api/v1/window"
MAX_NODES, NAMED_JOBS = 5000, 8
MAX_MS = MAX_INTEGER // MILLISECOND_NS


class DaemonConnection(transport.Requests):
    """A connection to the daemon at a URL such as `http://node7:10055` or `https://user:password@node7`.

    Its calls block, also where an event loop runs, as in a notebook.
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float = TIMEOUT_SECONDS,
        make_transport: Callable[..., httpx.BaseTransport] = httpx.HTTPTransport,
    ) -> None:
        """Parse the URL; nothing is sent yet. `timeout_seconds` limits connecting, and the wait for each part."""
        address = DaemonAddress(url)
        self.place = address.place
        """The URL without a password and a path."""
        example = self.place.replace("://", "://NAME:PASSWORD@")
        advice = transport.Advice(
            f"pass the user name and password in the URL, such as {example}",
            "name the file of its authority in the environment variable SSL_CERT_FILE",
        )
        # the authorities of the system take a while to read
        tls = ssl.create_default_context() if address.encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        access = transport.NodeAccess(tls, authorization=address.authorization, advice=advice)
        super().__init__(address.url, access)
        self._seconds = timeout_seconds
        self._transport = make_transport(verify=access.tls, trust_env=False, retries=0)

    def get(self, path: str, query: transport.Query = ()) -> transport.PeerAnswer:
        """Send a GET request and return the answer.

        Raises:
            DaemonError: there is no answer (`status` 0), or the daemon refuses the request, with its own reason.
        """
        with self.named(path):
            request = self._request("GET", path, query, self._seconds)
            with self._explained(f"no answer within {self._seconds:g} s"):
                try:
                    return self._exchange(request)
                except transport.BROKEN_OFF:
                    return self._exchange(request)

    def ask(self, model: type[Part], path: str, query: transport.Query = ()) -> Part:
        """The checked answer to a GET request.

        Raises:
            DaemonError: as `get`, or it is not one of an ibpulse daemon.
        """
        answer = self.get(path, query)
        with self.named(path):
            return transport.read_answer(model, answer)

    def ask_window(self, query: transport.Query) -> transport.NodeArray:
        """The window for a query with the parameters of `/api/v1/window`.

        Raises:
            DaemonError: as `ask`.
        """
        answer = self.get(WINDOW, [*query, ("format", "npy")])
        with self.named(WINDOW):
            return transport.read_array(answer)

    def post(self, model: type[Part], path: str, document: Mapping[str, Any]) -> Part:
        """The checked answer to a POST request with a JSON document, which is sent once only.

        Raises:
            DaemonError: as `ask`.
        """
        # a new connection, because a request that is not repeated must not meet one that the server has closed
        self.close()
        with self.named(path):
            content = orjson.dumps(document)
            request = self._request("POST", path, (), self._seconds, {"Content-Type": transport.JSON_TYPE}, content)
            with self._explained(f"no answer within {self._seconds:g} s"):
                return transport.read_answer(model, self._exchange(request))

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        self._transport.close()

    @contextmanager
    def named(self, path: str) -> Iterator[None]:
        """Name the daemon and the path in errors."""
        try:
            yield
        except DaemonError as error:
            is_silent = not error.status and error.kind != "bad-answer"
            what = f"{self.place} does not answer" if is_silent else f"{self.url}{path}"
            raise DaemonError(f"{what}: {error}", error.status, error.kind) from error

    def _exchange(self, request: httpx.Request) -> transport.PeerAnswer:
        sent_ns = time.monotonic_ns()
        response = self._transport.handle_request(request)
        received_ns = time.monotonic_ns()
        try:
            if response.status_code not in transport.ANSWERS:
                raise self._read_refusal(response)
            body = _read_body(response, MAX_ANSWER_BYTES)
        finally:
            response.close()
        return transport.PeerAnswer(dict(response.headers), body, sent_ns, received_ns)

    def _read_refusal(self, response: httpx.Response) -> DaemonError:
        try:
            body = _read_body(response, transport.MAX_REFUSAL_BYTES)
        except DaemonError:
            body = b""
        return self._refusal(response, body)


def _read_body(response: httpx.Response, max_bytes: int) -> bytes:
    body = bytearray()
    transport.check_body(response, body, max_bytes)
    for part in response.iter_raw():
        body += part
        transport.check_body(response, body, max_bytes)
    return bytes(body)


def ask_ports(connection: DaemonConnection) -> PortsAnswer:
    """The ports of the node.

    Raises:
        DaemonError: there is no answer, or it is not one of an ibpulse daemon.
    """
    try:
        return connection.ask(PortsAnswer, "/api/v1/ports")
    except DaemonError as error:
        nodes = gateway_nodes(connection) if error.status == HTTPStatus.NOT_FOUND else None
        if nodes is None:
            raise
        raise DaemonError(_say_gateway(connection.url, nodes), error.status) from error


def gateway_nodes(connection: DaemonConnection) -> list[str] | None:
    """The names of the nodes of a gateway; None if it is none."""
    try:
        return [str(node["node"]) for node in orjson.loads(connection.get("/api/v1/nodes").body)["nodes"]]
    except (DaemonError, ValueError, TypeError, KeyError):
        return None


def _say_gateway(address: str, nodes: Sequence[str]) -> str:
    """Advice to reach a node or a job of a gateway."""
    if not nodes:
        return f"{address} is a gateway, not a daemon, and it knows no node yet"
    return (
        f"{address} is a gateway, not a daemon; for a node use {address}/node/{nodes[0]} "
        f"(it has {first_names(nodes, MAX_NAMED)}), for a job `ibpulse fleet collect --url={address} --job=ID`"
    )


def ask_events(connection: DaemonConnection, from_ns: int | None = None, to_ns: int | None = None) -> EventsAnswer:
    """The events noticed between two wall times, widened to milliseconds.

    Raises:
        DaemonError: there is no answer, or it is not one of an ibpulse daemon.
    """
    return connection.ask(EventsAnswer, "/api/v1/events", events_query(from_ns, to_ns))


def events_query(from_ns: int | None = None, to_ns: int | None = None) -> transport.Query:
    """The parameters of `/api/v1/events` for all events between two wall times."""
    query: list[tuple[str, str | int]] = [("limit", MAX_EVENTS)]
    if from_ns is not None:
        query.append(("from", from_ns // MILLISECOND_NS))
    if to_ns is not None:
        query.append(("to", -(-to_ns // MILLISECOND_NS)))
    return query


def ask_metrics(connection: DaemonConnection, names: Sequence[str]) -> dict[str, float]:
    """Sums over all labels of those of these metrics that the daemon exports, by name.

    Raises:
        DaemonError: there is no answer, or it is not one of an ibpulse daemon.
    """
    text = connection.get("/metrics", [("name[]", name) for name in names]).body.decode(errors="replace")
    found: dict[str, float] = {}
    for line in split_lines(text):
        if line and not line.startswith("#"):
            sample, _, number = line.rpartition(" ")
            name = sample.partition("{")[0]
            try:
                value = float(number)
            except ValueError as error:
                raise DaemonError(f"{connection.url}/metrics: its answer is not metrics; {NOT_OURS}") from error
            if name in names and math.isfinite(value):
                found[name] = found.get(name, 0.0) + value
    return found


class _Clock(AnswerPart):
    offset_ms: Annotated[float, Field(ge=-MAX_MS, le=MAX_MS, allow_inf_nan=False)]
    uncertainty_ms: Annotated[float, Field(ge=0, le=MAX_MS, allow_inf_nan=False)]


class _Node(AnswerPart):
    node: Name
    labels: dict[Name, Name] = Field(default_factory=dict)
    clock: _Clock | None = None


class GatewayNodes(AnswerPart):
    """`/api/v1/nodes` of a gateway."""

    nodes: Annotated[list[_Node], at_most(MAX_NODES)]


class _NodeOfJob(AnswerPart):
    node: Name
    ports: Annotated[list[Name], at_most(MAX_PORTS)]


class _Job(AnswerPart):
    job_id: Name
    scheduler: Name
    # a daemon has jobs without nodes
    nodes: Annotated[list[_NodeOfJob], at_most(MAX_NODES)] = Field(default_factory=list)


class _Jobs(AnswerPart):
    jobs: Annotated[list[_Job], at_most(MAX_JOBS * 100)] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JobPlace:
    """A node of a job: its name, the path of its daemon at the gateway, its ports, and its clock; None if unknown."""

    node: str
    path: str
    ports: tuple[str, ...]
    clock: ClockOffset | None


def ask_job(connection: DaemonConnection, text: str) -> list[JobPlace]:
    """The nodes of a job with an id, or with a scheduler and an id (`slurm:42`)."""
    jobs = connection.ask(_Jobs, "/api/v1/jobs").jobs
    found = [job for job in jobs if text in (job.job_id, f"{job.scheduler}:{job.job_id}")]
    if any(not job.nodes for job in found):
        raise DaemonError(
            f"{connection.place} is a daemon, not a gateway; omit the job, or give the address of a gateway"
        )
    if len(found) != 1:
        several = " or ".join(f"{job.scheduler}:{job.job_id}" for job in found)
        known = first_names([job.job_id for job in jobs], NAMED_JOBS) or "none"
        raise DaemonError(
            f"job {text!r} of {connection.place}: {f'use {several}' if found else f'not known; it has {known}'}"
        )
    clocks = {each.node: each.clock for each in connection.ask(GatewayNodes, "/api/v1/nodes").nodes}
    return [
        JobPlace(each.node, f"/node/{quote(each.node, safe='')}", tuple(each.ports), _offset(clocks.get(each.node)))
        for each in found[0].nodes
    ]


def _offset(clock: _Clock | None) -> ClockOffset | None:
    if clock is None:
        return None
    return ClockOffset(round(clock.offset_ms * MILLISECOND_NS), round(clock.uncertainty_ms * MILLISECOND_NS))
