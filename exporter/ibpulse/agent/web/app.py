"""The web application: all routes with access control around them, among them the live page and the probes."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from ibpulse.agent.sampler.supervisor import heartbeat_bound_seconds
from ibpulse.agent.web.captures import add_capture_writing, add_captures
from ibpulse.agent.web.jobs import add_jobs
from ibpulse.agent.web.node import add_clock, add_events, add_limits, add_metrics, add_ports, add_summary
from ibpulse.agent.web.parts import WebParts
from ibpulse.agent.web.stream import add_stream
from ibpulse.agent.web.window import add_window
from ibpulse.base.instants import format_rfc3339
from ibpulse.base.text import escape_controls
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.http.application import REFUSALS, make_app
from ibpulse.core.http.pages import NODE_WORDS, PageFiles, links, live_document, page, reference_body, table
from ibpulse.core.http.problems import probe
from ibpulse.core.model import UNKNOWN_ROLE

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


DESCRIPTION = "Traffic of every InfiniBand and RoCE port of this node, sample by sample."


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
