"""The web application of a node: its pages, probes, metrics, clock, ports, topology, summary, limits and events."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from html import escape
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, FastAPI, Header, Query, Request
from pydantic import Field
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from ibpulse.agent.metrics.page import render
from ibpulse.agent.sampler.supervisor import heartbeat_bound_seconds
from ibpulse.agent.web.captures import add_capture_writing, add_captures
from ibpulse.agent.web.jobs import JOB_HELP, OptionalJob, add_jobs, choose_job, describe_job_ports
from ibpulse.agent.web.parts import WebParts
from ibpulse.agent.web.stream import add_stream
from ibpulse.agent.web.window import add_window
from ibpulse.base.instants import format_rfc3339
from ibpulse.base.text import escape_controls, natural_key
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS, format_duration
from ibpulse.base.values import SOME_SECONDS, unknown_word
from ibpulse.core.answers.node import (
    ClockAnswer,
    EventsAnswer,
    Identity,
    LimitAnswer,
    LimitsAnswer,
    PortAnswer,
    PortLimitsAnswer,
    PortsAnswer,
    Source,
    TopologyAnswer,
)
from ibpulse.core.answers.summary import SummaryAnswer
from ibpulse.core.events import KINDS, Event
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.http.application import REFUSALS, make_app
from ibpulse.core.http.pages import NODE_WORDS, PageFiles, links, live_document, page, reference_body, table
from ibpulse.core.http.problems import ProblemError, bad_parameter, model, operation, probe, text
from ibpulse.core.http.requests import (
    EventsQuery,
    OptionalDuration,
    SpanQuery,
    TimeSpan,
    read_parameter,
)
from ibpulse.core.jobs import ChosenJob
from ibpulse.core.limits import CANNOT_KNOW, LEGEND, PortSigns, describe_signs
from ibpulse.core.metrics.text import accepts_gzip, compress
from ibpulse.core.model import UNKNOWN_ROLE, Port
from ibpulse.core.ring.spans import place_ports, settled_tick, widest_stride
from ibpulse.core.statistics.moments import or_none
from ibpulse.core.statistics.signs import EVERY_NS

DESCRIPTION = "Traffic of every InfiniBand and RoCE port of this node, sample by sample."
DEFAULT_LAST = "1m"
# encoding this many takes less than 10 ms; more are encoded in a thread
MAX_IN_LOOP = 1000
_LINKS = (
    ("metrics", "metrics for Prometheus"),
    ("api/v1/window?last=5s&max_points=500", "newest raw samples"),
    ("api/v1/summary?last=10s", "traffic statistics of the last ten seconds"),
    ("api/v1/ports", "ports as JSON"),
    ("api/v1/events?last=1h", "events of the last hour: links, ports, captures"),
    ("api/v1/jobs", "jobs of this node and the ports that carry their traffic"),
    ("api/v1/topology", "devices, PCIe links and GPUs"),
    ("api/v1/clock", "wall clock of this node"),
    ("api/docs", "API reference"),
    ("-/healthy", "liveness: is it sampling?"),
    ("-/ready", "readiness: has the first sample arrived?"),
    ("api/v1/captures", "captures of the flight recorder"),
)


def add_clock(router: APIRouter, parts: WebParts) -> None:
    """The clock route."""

    @router.get("/api/v1/clock", **operation("get_clock", model(ClockAnswer, "The clock of the node.")))
    async def clock() -> Response:
        """The time of this moment by the clock that the samples follow, and whether the clock is synchronised."""
        state, node = parts.clock_state(), parts.node
        synchronised = None if state is None else state.synchronised
        # the clock is read last
        answer = ClockAnswer.model_construct(node=node.name, synchronised=synchronised, time_ns=node.clock.time_ns())
        return Response(answer.encode(), media_type="application/json")


def add_metrics(router: APIRouter, parts: WebParts) -> None:
    """The metrics route, with and without a trailing slash; a redirect would double the cost of every scrape."""
    forms = "text/plain; version=0.0.4; charset=utf-8", "application/openmetrics-text; version=1.0.0; charset=utf-8"
    answer = text("All metrics, or the named ones.", *forms)

    @router.get("/metrics/", include_in_schema=False)
    @router.get("/metrics", **operation("get_metrics", answer, 422))
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

    @router.get("/api/v1/ports", **operation("list_ports", model(PortsAnswer, "All ports of the node.")))
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

    @router.get("/api/v1/topology", **operation("get_topology", model(TopologyAnswer, "The node's topology.")))
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

    answer = model(SummaryAnswer, "The summary.")

    @router.get("/api/v1/summary", **operation("get_summary", answer, 404, 422, 503, repeatable=()))
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
    return seconds, reader.wall_of(end * ticks)


def _refuse_long(parameter: str, text: str, seconds: int, parts: WebParts) -> int:
    history = parts.node.reader.capacity * parts.node.reader.interval_ns // SECOND_NS
    if seconds > history:
        held = format_duration(history * SECOND_NS)
        raise bad_parameter(parameter, f"{text} exceeds the history, {held}; shorten the span or raise sampler.history")
    return seconds


def add_limits(router: APIRouter, parts: WebParts) -> None:
    """The route of signs."""
    wide = parts.limits.wide_requests("limits are already being computed", "a shorter span instead")

    answer = model(LimitsAnswer, "The signs.")

    @router.get("/api/v1/limits", **operation("get_limits", answer, 404, 422, 503, repeatable=()))
    async def limits(request: Request, query: Annotated[SummaryQuery, Query()]) -> Response:
        """Signs of what limited each rail while it transmitted: source, path, receiver, loss, link or unknown."""
        job, snapshot = choose_job(parts, query.job), parts.current.get()
        step = snapshot and job is None and snapshot.traffic.concluded.step_period_seconds
        return await wide.run(request, answer_limits, parts, *choose_seconds(query, parts), job, step or 0.0)


def answer_limits(parts: WebParts, seconds: int, end_ns: int | None, job: ChosenJob | None, steps: float) -> Response:
    """The response for `seconds` that end at a wall time, None for now, of a job if one is given.

    `steps` is the length of a step in seconds, 0 if it is unknown.
    """
    reader, peaks = parts.node.reader, parts.node.aggregator.limits.peaks
    ticks = _choose_ticks(parts, seconds, end_ns)
    rails = _read(parts, ticks, job)
    width = -(-EVERY_NS // reader.interval_ns)
    # a sample ends at its tick
    start_ns = reader.wall_of(ticks.start - 1)
    length_ns = len(ticks) * reader.interval_ns
    found = describe_signs(rails, *((length_ns / SECOND_NS / steps, "step") if steps else (1, "")))
    answer = LimitsAnswer.model_construct(
        start_ms=start_ns // MILLISECOND_NS,
        bin_ms=width * reader.interval_ns // MILLISECOND_NS,
        bins=-(-len(ticks) // width),
        limits=[LimitAnswer.model_construct(**asdict(limit)) for limit in found],
        ports=[
            PortLimitsAnswer.model_construct(
                port=rail.name,
                usual_peak_bytes_per_second=or_none(peaks.get(rail.name, math.nan)),
                strip=rail.signs.strip(width),
                remarks=rail.remarks(),
            )
            for rail in rails
        ],
        legend=LEGEND,
        cannot_know=CANNOT_KNOW,
    )
    if job is not None:
        described = describe_job_ports(job, start_ns, start_ns + length_ns)
        answer = LimitsAnswer.model_construct(**answer.given(), job=described)
    return Response(answer.encode_given(), media_type="application/json")


def _choose_ticks(parts: WebParts, seconds: int, end_ns: int | None) -> range:
    """The ticks of whole seconds."""
    node, reader = parts.node, parts.node.reader
    per_second = SECOND_NS // reader.interval_ns
    strides = (reader.stride(slot) for slot in node.supervisor.slots.values())
    newest = settled_tick(reader, widest_stride(strides), node.clock.time_ns())
    end = (newest if end_ns is None else min(newest, reader.tick_at(end_ns))) // per_second
    return range(max(0, end - seconds) * per_second + 1, end * per_second + 1)


def _read(parts: WebParts, ticks: range, job: ChosenJob | None) -> list[PortSigns]:
    """The signs of the rails at ticks, of a job if one is given."""
    node, reader = parts.node, parts.node.reader
    rails = [known.port for known in node.supervisor.known_ports() if known.port.rail]
    placed = place_ports(reader, rails, reader.ring.slots())
    if job is not None:
        had = job.ports.within(ticks.start, ticks.stop).spans
        placed = [port for port in placed if str(port.port.id) in had]
    if not ticks or not placed:
        return []
    # the first and the last sample lie between two readings
    more = SECOND_NS // reader.interval_ns
    around = range(max(1, ticks.start - more), max(ticks.stop, min(ticks.stop + more, reader.ring.latest_tick() + 1)))
    found = node.aggregator.limits.read(placed, around)
    inner = slice(ticks.start - around.start, ticks.stop - around.start)
    found = [replace(rail, signs=rail.signs.cut(inner.start, inner.stop)) for rail in found]
    if job is not None:
        kept = job.ports.mask([rail.name for rail in found], ticks.start, len(ticks))
        found = [replace(rail, signs=rail.signs.only(mine)) for rail, mine in zip(found, kept, strict=True)]
    return found


def add_events(router: APIRouter, parts: WebParts) -> None:
    """The events route."""
    wide = parts.limits.wide_requests(
        f"queries with more than {MAX_IN_LOOP} events are already running", f"{MAX_IN_LOOP} events"
    )

    answer = model(EventsAnswer, "Events by time.")

    @router.get("/api/v1/events", **operation("list_events", answer, 404, 422, 503, repeatable=("kind",)))
    async def events(request: Request, query: Annotated[EventsQuery, Query()]) -> Response:
        """Links that went down, rates that changed, devices that disappeared, captures: what happened and when."""
        about, chosen = choose_events(query, parts)
        if len(chosen) > MAX_IN_LOOP:
            return await wide.run(request, answer_events, about, chosen)
        return answer_events(about, chosen)


def choose_events(query: EventsQuery, parts: WebParts) -> tuple[dict[str, Any], Sequence[Event]]:
    """The members that describe the answer of a query, and its events by time."""
    for kind in query.kind:
        if kind not in KINDS:
            raise bad_parameter("kind", unknown_word(kind, KINDS))
    span = query.span(parts.node.clock.time_ns())
    if query.port is not None:
        _refuse_unknown(query.port, parts)
    found = parts.node.events.between(span.from_ns, span.to_ns, query.kind, query.port or "")
    chosen = found[-query.limit :]
    everything = (query.last, query.from_) == (None, None)
    about = {
        "from_ms": None if everything else span.from_ns // MILLISECOND_NS,
        "to_ms": span.to_ns // MILLISECOND_NS,
        "kinds": dict(Counter(event.kind for event in chosen)),
        "left_out": len(found) - len(chosen),
    }
    return about, chosen


def answer_events(about: dict[str, Any], chosen: Sequence[Event]) -> Response:
    """The response with these events."""
    body = orjson.dumps({**about, "events": [describe_event(event) for event in chosen]})
    return Response(body, media_type="application/json")


def describe_event(event: Event) -> dict[str, Any]:
    """The members of an `EventAnswer` as plain values: 1000 of them take 2 ms to encode, 1000 models 15 ms."""
    number = event.subject.partition(":")[2]
    return {
        "time_ms": event.time_ns // MILLISECOND_NS,
        "time": format_rfc3339(event.time_ns),
        "uncertainty_ms": -(-event.uncertainty_ns // MILLISECOND_NS),
        "kind": event.kind,
        "subject": event.subject,
        "device": event.device,
        "port": int(number) if number.isdecimal() and len(number) < 10 else None,
        "text": event.text,
        "before": event.before,
        "after": event.after,
        "details": event.details,
    }


def _refuse_unknown(name: str, parts: WebParts) -> None:
    """Refuse a name that is neither a port or device of the node nor the subject of an event."""
    ports = {str(known.port.id) for known in parts.node.supervisor.known_ports()}
    subjects = ports | {event.subject for event in parts.node.events.events()}
    devices = {subject.partition(":")[0] for subject in subjects}
    if not name or name not in subjects | devices:
        known = sorted(ports, key=natural_key)
        reason = f"No such port or device: {name[:64]!r}. Known ports: {', '.join(known) or 'none'}."
        raise ProblemError("unknown-port", 404, reason, known_ports=known)


def add_health(router: APIRouter, parts: WebParts) -> None:
    """The routes of the probes."""

    @router.get("/-/healthy", **probe("check_health", "The sampler's heartbeat is recent."))
    async def healthy() -> PlainTextResponse:
        """Liveness: whether the sampler's heartbeat is recent."""
        return _answer(*check_health(parts))

    @router.get("/-/ready", **probe("check_readiness", "The first sample has arrived."))
    async def ready() -> PlainTextResponse:
        """Readiness: whether the first sample has arrived."""
        return _answer(*parts.node.readiness())


def check_health(parts: WebParts) -> tuple[bool, str]:
    """Whether the sampler's heartbeat is recent, and a message. Always true without ports, which need no sampler."""
    bound = heartbeat_bound_seconds(parts.node.reader.interval_ns)
    age = parts.node.supervisor.heartbeat_age_seconds()
    if not parts.node.supervisor.slots:
        return True, "Healthy: no port to sample."
    if age is None:
        return False, "Not healthy: no heartbeat from the sampler yet."
    if age <= bound:
        return True, f"Healthy: the sampler's last heartbeat is {age:.2f} s old (limit: {bound:g} s)."
    return False, (f"Not healthy: the sampler's last heartbeat is {age:.2f} s old (limit: {bound:g} s); see the log.")


def _answer(good: bool, sentence: str) -> PlainTextResponse:
    return PlainTextResponse(escape_controls(sentence) + "\n", 200 if good else 503)


def landing_body(parts: WebParts) -> str:
    """The page's content without its script, as HTML."""
    fabric, ports = parts.node.fabric(), parts.node.supervisor.known_ports()
    interval = f"{parts.node.reader.interval_ns / 1e6:g} ms"
    states = [check_health(parts), parts.node.readiness()]
    lines = [
        f"<p>Traffic of every InfiniBand and RoCE port of this node, every {interval}. "
        f'<span class="soft">Version {escape(parts.version)}</span></p>',
        *(f'<p class="{"good" if good else "bad"}">{escape(sentence)}</p>' for good, sentence in states),
        *(f'<p class="notice">{escape(notice)}</p>' for notice in fabric.notices),
        "<h2>Ports</h2>",
        table(["Port", "State", "Data rate", "Role", "Bytes from", "Remark"], [_row(each) for each in ports])
        if ports
        else '<p class="soft">No ports found.</p>',
        "<h2>Interfaces</h2>",
        links(_LINKS),
    ]
    return "\n".join(lines)


def _row(known: KnownPort) -> list[str]:
    port, state = known.port, known.state
    rate = state.rate_bytes_per_second if state else None
    good = state is not None and state.active and not state.problem
    since = "" if good or known.since_ns is None else f" since {format_rfc3339(known.since_ns)}"
    return [
        f"<code>{escape(str(port.id))}</code>",
        f'<span class="{"good" if good else "bad"}">{escape(known.word + since)}</span>',
        "" if rate is None else f"{rate * 8 / 1e9:g} Gb/s",
        "rail" if port.rail else "" if port.role == UNKNOWN_ROLE else port.role,
        f"<code>{escape(port.source.name)}</code>" if port.source else "",
        escape(known.problem or port.problem or (port.source.note if port.source else "")),
    ]


def add_pages(app: FastAPI, parts: WebParts) -> None:
    """The live page, its files, and the API reference, generated from the OpenAPI document."""
    page_files = PageFiles()

    @app.get("/", include_in_schema=False)
    async def landing() -> HTMLResponse:
        fabric = parts.node.fabric()
        return live_document(
            NODE_WORDS, parts.version, landing_body(parts), simulated=fabric.simulated, name=parts.node.name
        )

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str, request: Request) -> Response:
        return await page_files.get_response(name, request.scope)

    @app.get("/api/docs", include_in_schema=False)
    async def reference() -> HTMLResponse:
        return page("ibpulse API", reference_body(app.openapi()))


def create_app(parts: WebParts) -> FastAPI:
    """The application with all routes."""
    app = make_app("ibpulse", DESCRIPTION, parts, parts.node.clock.monotonic_ns)
    api, probes, captures = APIRouter(responses=REFUSALS), APIRouter(), APIRouter(responses=REFUSALS)
    for add in (
        add_metrics,
        add_ports,
        add_window,
        add_summary,
        add_limits,
        add_events,
        add_jobs,
        add_stream,
        add_clock,
    ):
        add(api, parts)
    add_health(probes, parts)
    add_captures(captures, parts)
    add_capture_writing(captures, parts)
    for router in (api, probes, captures):
        app.include_router(router)
    add_pages(app, parts)
    return app
