"""The pages of the gateway, with scripts and styles of the live page; the list of nodes, and the probes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from html import escape
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from ibpulse.base.units import whole_ms
from ibpulse.core.http.pages import LIVE_PAGE_POLICY, NODE_WORDS, PageFiles, links, live_document, page, reference_body
from ibpulse.core.http.problems import ProblemError, operation, probe, text
from ibpulse.core.http.requests import may_write
from ibpulse.gateway.jobs import list_jobs
from ibpulse.gateway.node_proxy import find_node
from ibpulse.gateway.nodes.discovery import SourceState
from ibpulse.gateway.nodes.table import NodeState, describe_clock
from ibpulse.gateway.parts import GatewayParts

_NODES = Template(files(__package__).joinpath("nodes.html").read_text(encoding="utf-8"))
_ORDER = """<div class="group" role="group" aria-label="Order of the rows" title="Order of the rows (s)">
      <button data-sort="lateness">Latest</button><button data-sort="bandwidth">Busiest</button>\
<button data-sort="name">Name</button><button data-sort="rack">Rack</button>
    </div>
    <div class="group" role="group" aria-label="Rows" title="One row per node, or per rail of the chosen nodes (n)">
      <button data-rows="nodes">Nodes</button><button data-rows="rails">Rails</button>
    </div>
    """
_CAPTURE = """<button id="capture" title="Save the samples around now on all nodes of the job; \
from a held view, everything since it began">Capture</button>
    """
_ABOUT_ROWS = """<p>A row of a node is the sum over the rails that the job has there. It leads to the page of the node.
Double-click the picture, or press Enter, to open the node whose row is read.</p>
  <p>Each row has the time of its own node. Next to its name is how far its clock is ahead (+) or behind (−), and how \
far that may be wrong. Rows that differ by less are in no order.</p>
  """
JOB_WORDS: Mapping[str, str] = {
    "script": "job.js",
    "whole": "Job",
    "sum": "Job, transmit + receive of its rails on all nodes",
    "rows": "Nodes",
    "menu": "Choose",
    "row": "node",
    "holders": "nodes",
    "health": "Answers and clocks",
    "table": "All rows as a table",
    "format": "json",
    "samples": "Samples as JSON",
    "copies": '<button id="copy-curl">Copy as curl</button>',
    "total": "Job",
    "menu_rows": "Rows",
    "order": _ORDER,
    "about_rows": _ABOUT_ROWS,
}
_NODE_WORDS: Mapping[str, str] = {
    **NODE_WORDS,
    "format": "json",
    "samples": "Samples as JSON",
    "copies": """<button id="copy-curl">Copy as curl</button>
      <button id="copy-promql">Copy as PromQL</button>""",
}
"""Only the node itself answers with CSV and takes captures of a single node."""
_LINKS = (
    ("api/v1/nodes", "nodes and their sources as JSON"),
    ("api/v1/jobs", "jobs with their nodes, including ended ones"),
    ("metrics", "metrics of the gateway for Prometheus"),
    ("api/docs", "API reference"),
)
_NODE_LINKS = (
    ("api/v1/window?last=5s&max_points=500", "newest raw samples"),
    ("api/v1/summary?last=10s", "traffic statistics of the last ten seconds"),
    ("api/v1/ports", "ports as JSON"),
    ("api/v1/events?last=1h", "events of the last hour: links, ports, captures"),
    ("api/v1/jobs", "jobs of the node and the ports that carry their traffic"),
    ("api/v1/captures", "captures of the flight recorder"),
)
_JOB_LINKS = (
    ("window?last=5s&max_points=500", "newest samples of every node"),
    ("summary?last=10s", "statistics of every node in the last ten seconds"),
    ("events?last=1h", "events of the nodes in the last hour"),
    ("captures", "captures of the flight recorders"),
)
_RUNBOOK_TEXTS = files(__package__).joinpath("runbooks.md").read_text(encoding="utf-8")
RUNBOOKS: Mapping[str, str] = {
    text.partition("\n")[0]: text for text in re.split(r"(?m)^# (?=IBPulse)", _RUNBOOK_TEXTS)[1:]
}
"""The text of each runbook by the name of its alert."""
_NODES_ANSWER = {"description": "The nodes and their sources."}


def nodes_page(version: str) -> HTMLResponse:
    """The page of all nodes, at `/`."""
    text = _NODES.substitute(version=escape(version), facts=f"<h2>Interfaces</h2>\n{links(_LINKS)}")
    return HTMLResponse(text, headers={"Content-Security-Policy": LIVE_PAGE_POLICY})


def node_page(name: str, version: str, *, simulated: bool) -> HTMLResponse:
    """The live page of a node, at `/node/NAME/`; the API of the node is below it."""
    facts = f"<h2>Interfaces of {escape(name)}</h2>\n{links(_NODE_LINKS)}"
    root = "../../"
    return live_document(
        _NODE_WORDS, version, facts, simulated=simulated, name=name, root=root, navigation=_navigation(root)
    )


def job_page(job: str, version: str, *, simulated: bool, may_capture: bool) -> HTMLResponse:
    """The live page of a job, at `/job/ID`; its API is below `/api/v1/jobs/ID/`. An id has no slash.

    It has the button that takes captures only for those who may.
    """
    root = "../"
    api = f"{root}api/v1/jobs/{quote(job)}/"
    facts = f"<h2>Interfaces of the job</h2>\n{links([(api + path, words) for path, words in _JOB_LINKS])}"
    return live_document(
        {**JOB_WORDS, "order": (_CAPTURE if may_capture else "") + _ORDER},
        version,
        facts,
        simulated=simulated,
        name=f"job {job}",
        root=root,
        api=api,
        navigation=_navigation(root),
    )


def refused_page(detail: str, root: str) -> HTMLResponse:
    """The page instead of one of a node that does not exist: why, and the way to all nodes."""
    answer = page(
        "ibpulse gateway",
        f'<main><h1>Not found</h1>\n<p>{escape(detail)}</p>\n<p><a href="{root}">All nodes</a></p></main>',
    )
    answer.status_code = 404
    return answer


def runbook_page(name: str) -> HTMLResponse:
    """What to do about an alert, at `/runbooks/NAME`; `NAME.md`, as in a folder of runbooks, is the same."""
    name = name.removesuffix(".md")
    if name not in RUNBOOKS:
        return refused_page(f"No runbook has the name {name}.", "../")
    return page(f"{name}: runbook", f'<main><pre class="wide" tabindex="0">{escape(RUNBOOKS[name])}</pre></main>')


def _navigation(root: str) -> str:
    return f'\n  <nav aria-label="Pages"><a href="{root}">All nodes</a></nav>'


def page_router(parts: GatewayParts, schema: Callable[[], dict[str, Any]]) -> APIRouter:
    """The pages, their files, and the API reference from the OpenAPI document."""
    router = APIRouter(include_in_schema=False)
    page_files = PageFiles()

    @router.get("/")
    async def nodes() -> HTMLResponse:
        return nodes_page(parts.version)

    @router.get("/node/{name}/")
    async def node(name: str) -> HTMLResponse:
        try:
            found = find_node(parts, name).name
        except ProblemError as error:
            return refused_page(error.detail, "../../")
        return node_page(found, parts.version, simulated=_is_simulated(parts, name))

    @router.get("/node/{name}")
    async def node_without_slash(name: str) -> Response:
        # relative, because a proxy may serve this below a prefix
        return RedirectResponse(f"{quote(find_node(parts, name).name)}/", 308)

    @router.get("/job/{job}")
    async def job(job: str, request: Request) -> HTMLResponse:
        may_capture = may_write(request, allow_unauthenticated=parts.allow_unauthenticated)
        return job_page(job, parts.version, simulated=_is_simulated_job(parts, job), may_capture=may_capture)

    @router.get("/runbooks/{name}")
    async def runbook(name: str) -> HTMLResponse:
        return runbook_page(name)

    @router.get("/static/{name}")
    async def static(name: str, request: Request) -> Response:
        return await page_files.get_response(name, request.scope)

    @router.get("/api/docs")
    async def reference() -> HTMLResponse:
        return page("ibpulse gateway API", reference_body(schema()))

    return router


def _is_simulated(parts: GatewayParts, name: str) -> bool:
    row = parts.table.row(name)
    return bool(row and row.ports and row.ports.simulated)


def _is_simulated_job(parts: GatewayParts, job: str) -> bool:
    """Whether a node that has the job is simulated, as far as is known."""
    return any(
        _is_simulated(parts, node)
        for found in list_jobs(parts.table.rows()).values()
        if job in (found.key[1], found.text)
        for node in found.nodes
    )


def probe_router(parts: GatewayParts) -> APIRouter:
    """The routes of the probes, which need no password: they name neither nodes nor files."""
    router = APIRouter()

    @router.get("/-/healthy", **operation("check_health", text("All is well.")))
    async def healthy() -> PlainTextResponse:
        """Liveness: whether the gateway serves."""
        return PlainTextResponse("Healthy.\n")

    @router.get("/-/ready", **probe("check_readiness", "All is well."))
    async def ready() -> PlainTextResponse:
        """Readiness: whether a source of nodes has answered."""
        if all(source.age_seconds is None for source in parts.discovery.sources()):
            return PlainTextResponse("Not ready: no source of nodes has answered yet; see the log.\n", 503)
        answering = sum(row.state in ("up", "degraded") for row in parts.table.rows())
        return PlainTextResponse(f"Ready: {answering} of {len(parts.nodes)} nodes answer.\n")

    return router


def node_list_router(parts: GatewayParts) -> APIRouter:
    """The route of all nodes."""
    router = APIRouter()

    @router.get("/api/v1/nodes", **operation("list_nodes", _NODES_ANSWER))
    async def nodes() -> Response:
        """All nodes, those with problems first."""
        document = {
            "version": parts.version,
            "sources": [_describe_source(source) for source in parts.discovery.sources()],
            "nodes": [describe_node(row) for row in parts.table.rows()],
        }
        return Response(orjson.dumps(document), media_type="application/json")

    return router


def _describe_source(source: SourceState) -> dict[str, Any]:
    members = asdict(source)
    return {"source": members.pop("name"), **members}


def describe_node(row: NodeState) -> dict[str, Any]:
    """A node as plain values; its last answers stay while it does not answer."""
    rails = None if row.ports is None else [port for port in row.ports.ports if port.rail]
    running = [job for job in row.jobs.jobs if job.running] if row.jobs else []
    return {
        "node": row.name,
        "labels": dict(row.target.labels),
        "problem": row.kind or "",
        "problem_text": row.problem,
        "since_ms": whole_ms(row.since_ns),
        "version": row.figures.version or "",
        "jobs": [{"job_id": job.job_id, "scheduler": job.scheduler, "name": job.name} for job in running],
        "clock": describe_clock(row),
        "rails": None if rails is None else len(rails),
        "rails_down": [port.name for port in rails or () if not port.active],
        "rails_idle": list(row.figures.idle),
        "rails_slow": list(row.figures.slow),
        "down_since_ms": _down_since_ms(row),
        "idle_since_ms": whole_ms(row.idle_since_ns),
        "simulated": row.ports is not None and row.ports.simulated,
    }


def _down_since_ms(row: NodeState) -> int | None:
    """When the first of its rails that are down went down; None if that is not known."""
    down = [port.since_ms for port in row.ports.ports if port.rail and not port.active] if row.ports else []
    return min((each for each in down if each is not None), default=None)
