"""Routes of the node's present state, `/metrics` and `/api/v1/{clock,ports,topology}`, and of `/api/v1/summary`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import numpy as np
import orjson
from fastapi import APIRouter, Header, Query, Request
from pydantic import Field
from starlette.responses import Response

from ibpulse.agent.metrics.page import render
from ibpulse.agent.web.jobs import JOB_HELP, OptionalJob, choose_job, describe_job_ports
from ibpulse.agent.web.parts import WebParts
from ibpulse.base.instants import format_rfc3339
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS, format_duration
from ibpulse.base.values import SOME_SECONDS
from ibpulse.core.answers.node import ClockAnswer, Identity, PortAnswer, PortsAnswer, Source, TopologyAnswer
from ibpulse.core.answers.summary import SummaryAnswer
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.http.problems import bad_parameter, operation, problems, text
from ibpulse.core.http.requests import OptionalDuration, SpanQuery, TimeSpan, read_parameter, refuse_repeated
from ibpulse.core.jobs import ChosenJob
from ibpulse.core.metrics.text import accepts_gzip, compress
from ibpulse.core.model import Port
from ibpulse.core.ring.spans import place_ports, settled_tick, widest_stride


def add_clock(router: APIRouter, parts: WebParts) -> None:
    """The clock route."""

    @router.get(
        "/api/v1/clock",
        **operation("get_clock"),
        responses={200: {"model": ClockAnswer, "description": "The clock of the node."}},
    )
    async def clock() -> Response:
        """The time of this moment by the clock that the samples follow, and whether the clock is synchronised."""
        state, node = parts.clock_state(), parts.node
        synchronised = None if state is None else state.synchronised
        # the clock is read last
        answer = ClockAnswer.model_construct(node=node.name, synchronised=synchronised, time_ns=node.clock.time_ns())
        return Response(answer.encode(), media_type="application/json")


def add_metrics(router: APIRouter, parts: WebParts) -> None:
    """The metrics route, with and without a trailing slash; a redirect would double the cost of every scrape."""
    answer = text("All metrics, or the named ones.", "text/plain; version=0.0.4; charset=utf-8")
    answer["content"]["application/openmetrics-text; version=1.0.0; charset=utf-8"] = {"schema": {"type": "string"}}

    @router.get("/metrics/", include_in_schema=False)
    @router.get(
        "/metrics", **operation("get_metrics"), responses={200: answer, **problems(422)}, response_class=Response
    )
    async def metrics(
        name: Annotated[
            list[str], Query(alias="name[]", description="Only metrics with these names.", default_factory=list)
        ],
        accept: Annotated[str | None, Header(include_in_schema=False)] = None,
        accept_encoding: Annotated[str, Header(include_in_schema=False)] = "",
    ) -> Response:
        """The metrics as Prometheus text or OpenMetrics, depending on the Accept header."""
        body, media_type = render(parts.current.get_now(), parts.registry, accept, name, parts.counts)
        headers = {"Vary": "Accept, Accept-Encoding"}
        if accepts_gzip(accept_encoding):
            body = compress(body)
            headers["Content-Encoding"] = "gzip"
        headers["Content-Type"] = media_type
        return Response(body, headers=headers)


def add_ports(router: APIRouter, parts: WebParts) -> None:
    """The routes of ports and topology."""

    @router.get(
        "/api/v1/ports",
        **operation("list_ports"),
        responses={200: {"model": PortsAnswer, "description": "All ports of the node."}},
    )
    async def ports() -> Response:
        """Every port of the node: identity, state, and files of its byte counters."""
        fabric = parts.node.fabric()
        answer = PortsAnswer.model_construct(
            interval_seconds=parts.node.reader.interval_ns / SECOND_NS,
            ports=[_describe(port, parts) for port in parts.node.supervisor.known_ports()],
            notices=list(fabric.notices),
            stuck_devices=list(fabric.stuck_devices),
            simulated=fabric.simulated,
        )
        return Response(answer.encode(), media_type="application/json")

    @router.get(
        "/api/v1/topology",
        **operation("get_topology"),
        responses={200: {"model": TopologyAnswer, "description": "The node's topology."}},
    )
    async def topology() -> Response:
        """Every RDMA device with its PCIe links, every GPU, and the distances between them."""
        found = parts.node.fabric().topology
        addresses = [gpu.address for gpu in found.gpus]
        distances = {
            place.device: dict(zip(addresses, row, strict=True))
            for place, row in zip(found.devices, found.distances, strict=True)
        }
        # the values of a scan have the members of the answer
        answer = {"devices": found.devices, "gpus": found.gpus, "distances": distances}
        return Response(orjson.dumps(answer), media_type="application/json")


def _describe(known: KnownPort, parts: WebParts) -> PortAnswer:
    port = known.port
    return PortAnswer.model_construct(
        name=str(port.id),
        device=port.id.device,
        port=port.id.port,
        state=known.word,
        since=None if known.since_ns is None else format_rfc3339(known.since_ns),
        active=known.state is not None and port.active,
        rate_bytes_per_second=port.rate_bytes_per_second,
        rail=port.rail,
        role=port.role,
        source=_source(port, parts),
        problem=known.problem,
        identity=Identity.model_construct(**asdict(port.identity)),
    )


def _source(port: Port, parts: WebParts) -> Source | None:
    if port.source is None:
        return None
    slot = parts.node.supervisor.slots.get(str(port.id))
    stride = 1 if slot is None else parts.node.reader.stride(slot)
    return Source.model_construct(
        name=port.source.name,
        resolution_seconds=stride * parts.node.reader.interval_ns / SECOND_NS,
        note=port.source.note,
    )


DEFAULT_LAST = "1m"


class SummaryQuery(SpanQuery):
    """The query parameters of `/api/v1/summary`, unparsed."""

    last: OptionalDuration = Field(
        None,
        description=f"Length of the newest span in whole seconds, like 30s or 5m (default: {DEFAULT_LAST}).",
    )
    job: OptionalJob = Field(None, description=JOB_HELP)


def add_summary(router: APIRouter, parts: WebParts) -> None:
    """The summary route."""
    wide = parts.limits.wide_requests("summaries are already being computed", "a raw window instead")

    @router.get(
        "/api/v1/summary",
        **operation("get_summary"),
        responses={200: {"model": SummaryAnswer, "description": "The summary."}, **problems(404, 422, 503)},
        response_class=Response,
        dependencies=[refuse_repeated()],
    )
    async def summary(request: Request, query: Annotated[SummaryQuery, Query()]) -> Response:
        """Peak, mean, duty cycle, burstiness, bursts, rails, step period and signature of a span."""
        job = choose_job(parts, query.job)
        return await wide.run(request, answer_summary, parts, *choose_seconds(query, parts), job)


def answer_summary(parts: WebParts, seconds: int, end_ns: int | None, job: ChosenJob | None = None) -> Response:
    """The response for `seconds` that end at a wall time, None for now, of a job if one is given."""
    found = parts.node.summarize(seconds, end_ns, None if job is None else job.ports)
    if job is None:
        return Response(found.encode(), media_type="application/json")
    described = describe_job_ports(job, found.start_ms * MILLISECOND_NS, found.end_ms * MILLISECOND_NS)
    answer = SummaryAnswer.model_construct(**vars(found), job=described)
    return Response(answer.encode(), media_type="application/json")


def choose_seconds(query: SummaryQuery, parts: WebParts) -> tuple[int, int | None]:
    """The number of whole seconds of a query, and the wall time in ns at which they end; None for the newest."""
    span = query.span(parts.node.clock.time_ns(), DEFAULT_LAST)
    if span.newest:
        return _whole_seconds(DEFAULT_LAST if query.last is None else query.last, parts), None
    return _widen(span, parts)


def _whole_seconds(text: str, parts: WebParts) -> int:
    return _refuse_long("last", text, read_parameter("last", text, SOME_SECONDS) // SECOND_NS, parts)


def _widen(span: TimeSpan, parts: WebParts) -> tuple[int, int]:
    """The complete seconds that overlap a span, as the bins of a window do."""
    reader = parts.node.reader
    ticks = SECOND_NS // reader.interval_ns
    ports = place_ports(reader, [known.port for known in parts.node.supervisor.known_ports()], reader.ring.slots())
    settled = settled_tick(reader, widest_stride(port.stride for port in ports), parts.node.clock.time_ns())
    first, wanted = reader.tick_at(span.from_ns) // ticks, reader.tick_at(span.to_ns - 1) // ticks + 1
    end = min(wanted, settled // ticks)
    if first >= end:
        empty = "the span is empty; use an earlier from or a later to"
        raise bad_parameter(
            "from", empty if first >= wanted else "no second of the span is complete yet; try again in a second"
        )
    length = f"the span of {format_duration((end - first) * SECOND_NS)}"
    seconds = _refuse_long("from", length, end - first, parts)
    return seconds, int(reader.wall_ns(np.array([end * ticks]))[0])


def _refuse_long(parameter: str, text: str, seconds: int, parts: WebParts) -> int:
    history = parts.node.reader.capacity * parts.node.reader.interval_ns // SECOND_NS
    if seconds > history:
        held = format_duration(history * SECOND_NS)
        raise bad_parameter(parameter, f"{text} exceeds the history, {held}; shorten the span or raise sampler.history")
    return seconds
