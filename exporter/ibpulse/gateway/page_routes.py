"""The pages of the gateway with their files, the API reference, `/-/healthy` and `/-/ready`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from ibpulse.core.http.pages import PageFiles, page, reference_body
from ibpulse.core.http.problems import ProblemError, operation, text
from ibpulse.core.http.requests import may_write
from ibpulse.gateway.gateway_pages import job_page, node_page, nodes_page, refused_page
from ibpulse.gateway.job_nodes import list_jobs
from ibpulse.gateway.node_data import find_node
from ibpulse.gateway.parts import GatewayParts


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
    answers: dict[int | str, dict[str, Any]] = {
        200: text("All is well."),
        503: text("The check failed; the text gives the reason."),
    }

    @router.get(
        "/-/healthy", **operation("check_health"), responses={200: answers[200]}, response_class=PlainTextResponse
    )
    async def healthy() -> PlainTextResponse:
        """Liveness: whether the gateway serves."""
        return PlainTextResponse("Healthy.\n")

    @router.get("/-/ready", **operation("check_readiness"), responses=answers, response_class=PlainTextResponse)
    async def ready() -> PlainTextResponse:
        """Readiness: whether a source of nodes has answered."""
        if all(source.age_seconds is None for source in parts.discovery.sources()):
            return PlainTextResponse("Not ready: no source of nodes has answered yet; see the log.\n", 503)
        answering = sum(row.state in ("up", "degraded") for row in parts.table.rows())
        return PlainTextResponse(f"Ready: {answering} of {len(parts.nodes)} nodes answer.\n")

    return router
