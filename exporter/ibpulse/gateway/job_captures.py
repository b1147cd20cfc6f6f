"""Captures of a job: the same span on all of its nodes, listed together, and downloaded as one archive.

The nodes keep the files. Those of one request have a common word at the end of their reason, which is in the name of
the file, so the gateway remembers nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from ibpulse.base.clocks import Clock
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.base.values import SOME_TIME
from ibpulse.core.answers.jobs import CapturesAnswer, PendingAnswer, StoredAnswer
from ibpulse.core.client.transport import read_answer
from ibpulse.core.http.admission import ParallelRequests
from ibpulse.core.http.problems import ProblemError, operation
from ibpulse.core.http.requests import (
    CaptureRequest,
    check_writer,
    json_response,
    read_body,
    read_parameter,
    refusals,
    request_schema,
)
from ibpulse.gateway.capture_archive import ArchiveMember, send_archive
from ibpulse.gateway.job_nodes import FleetJob, choose_job
from ibpulse.gateway.job_polls import GONE
from ibpulse.gateway.nodes.nodes import Node, ask_node
from ibpulse.gateway.parts import GatewayParts

CAPTURES = "/api/v1/captures"
PATH = "/api/v1/jobs/{job}/captures"
MIN_NS = 100 * MILLISECOND_NS
MAX_ARCHIVES, MAX_LISTS = 2, 4
# the reason in the name of a file has at most 64 characters
MAX_REASON = 50
_GROUP = re.compile(r"(?:(.*)-)?(job([0-9a-f]{5})[0-9a-f]{5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class WantedCapture:
    """A capture: its reason, its labels, and the time before and after `at_ns` of the monotonic clock."""

    reason: str
    labels: Mapping[str, str]
    before_ns: int
    after_ns: int
    at_ns: int
    clock: Clock = time

    async def ask(self, node: Node) -> PendingAnswer:
        """The capture that a node takes.

        Raises:
            DaemonError: it takes none.
        """
        passed_ns = self.clock.monotonic_ns() - self.at_ns
        before_ns, after_ns = self.before_ns + passed_ns, max(MIN_NS, self.after_ns - passed_ns)
        body = {
            "reason": self.reason,
            "labels": dict(self.labels),
            "before": f"{before_ns // MILLISECOND_NS}ms",
            "after": f"{after_ns // MILLISECOND_NS}ms",
        }
        return read_answer(PendingAnswer, await node.post(CAPTURES, orjson.dumps(body)))


def captures_router(parts: GatewayParts) -> APIRouter:
    """The read-only routes of the captures of jobs."""
    router = APIRouter()
    archives = asyncio.Semaphore(MAX_ARCHIVES)
    lists = ParallelRequests(MAX_LISTS, "lists of captures of jobs are already being read")

    @router.get(
        PATH,
        **operation("list_job_captures"),
        responses={200: {"description": "The captures of the job."}, **refusals(404, 503)},
    )
    async def list_captures(request: Request, job: str) -> Response:
        """The captures of a job: those of all its nodes together, and those of single nodes."""
        async with lists.place(request):
            found, missing = await _ask_captures(parts, job)
        return json_response(200, _describe(job, found, missing))

    @router.get(
        PATH + "/{group}",
        **operation("download_job_capture"),
        responses={
            200: {"description": "A tar archive.", "content": {"application/x-tar": {"schema": {"type": "string"}}}},
            **refusals(404, 503),
        },
        response_class=Response,
    )
    async def download(request: Request, job: str, group: str) -> Response:
        """The files of all nodes of one capture as a tar archive."""
        async with lists.place(request):
            found, missing = await _ask_captures(parts, job)
        members = members_of(found, group)
        for node in found.keys() - {member.node for member in members}:
            waits = any(_group_of(capture.reason) == group for capture in found[node].pending)
            missing[node] = "its file is not complete yet" if waits else "it has no file of this capture"
        if not members:
            raise ProblemError("unknown-capture", 404, f"No such finished capture of the job: {group[:100]!r}.")
        return send_archive(request, parts.nodes, group, members, missing, archives)

    return router


def captures_writing_router(parts: GatewayParts) -> APIRouter:
    """The route that takes captures of jobs."""
    router, settings = APIRouter(), parts.captures

    @router.post(
        PATH,
        **operation("take_job_capture"),
        status_code=202,
        responses={202: {"description": "The pending captures."}, **refusals(403, 404, 413, 422, 503)},
        response_class=Response,
        openapi_extra=request_schema(CaptureRequest, required=False),
    )
    async def take_captures(request: Request, job: str) -> Response:
        """Save the samples around now on all nodes of a job."""
        check_writer(request, allow_unauthenticated=parts.allow_unauthenticated)
        body = read_body(CaptureRequest, await request.body())
        before_ns = settings.before_ns if body.before is None else read_parameter("before", body.before, SOME_TIME)
        after_ns = settings.after_ns if body.after is None else read_parameter("after", body.after, SOME_TIME)
        chosen = choose_job(parts.table.rows(), job)
        wanted = WantedCapture(body.reason, body.labels, before_ns, after_ns, parts.clock.monotonic_ns(), parts.clock)
        taken = await capture_job(parts, chosen, wanted)
        if not taken["nodes"]:
            raise ProblemError("no-captures", 503, say_missing(taken))
        return json_response(202, taken, {"Location": taken["url"]})

    return router


def _key_hash(text: str) -> str:
    """A part of the common word that says which job it is, by scheduler and id."""
    return hashlib.sha256(text.encode()).hexdigest()[:5]


def _group_of(reason: str) -> str | None:
    found = _GROUP.fullmatch(reason)
    return found[2] if found else None


async def capture_job(parts: GatewayParts, job: FleetJob, wanted: WantedCapture) -> dict[str, Any]:
    """Take a capture on all nodes of a job; the answer names those that take none."""
    group = f"job{_key_hash(job.text)}{secrets.token_hex(3)[:5]}"
    words = re.sub("[^A-Za-z0-9]+", "-", wanted.reason)[:MAX_REASON].strip("-")
    trigger_ms = parts.clock.time_ns() // MILLISECOND_NS
    running = [name for name, each in job.nodes.items() if each.running] or list(job.nodes)
    nodes = [node for name in running if (node := parts.nodes.get(name)) is not None]
    found = await parts.nodes.ask_all(nodes, replace(wanted, reason=f"{words}-{group}" if words else group).ask)
    missing = {name: GONE[1] for name in running if parts.nodes.get(name) is None} | found.missing
    return {
        "id": group,
        "job_id": job.key[1],
        "scheduler": job.key[0],
        "reason": words,
        "trigger_ms": trigger_ms,
        "nodes": [describe_pending(name, found.answers[name]) for name in running if name in found.answers],
        "missing": _missing(missing),
        "url": f"{PATH.format(job=quote(job.text, safe=''))}/{group}",
    }


def describe_pending(node: str, pending: PendingAnswer) -> dict[str, Any]:
    """The members of a capture that a node takes."""
    return {"node": node, "name": pending.name, "trigger_ms": pending.trigger_ms, "ready_ms": pending.ready_ms}


def say_missing(taken: Mapping[str, Any]) -> str:
    """Why no node of a job takes a capture."""
    reasons = "; ".join(f"{each['node']}: {each['reason']}" for each in taken["missing"][:3])
    return f"No node of the job takes a capture. {reasons}"[:1000]


async def _ask_captures(parts: GatewayParts, text: str) -> tuple[dict[str, CapturesAnswer], dict[str, str]]:
    """The captures of a job by node, and the nodes without an answer with the reason.

    A job that no node knows any more is looked for on all nodes.

    Raises:
        ProblemError: several schedulers have the job, or no node knows anything of it.
    """
    known: FleetJob | None = None
    try:
        known = choose_job(parts.table.rows(), text)
    except ProblemError as error:
        if error.kind != "unknown-job":
            raise
        unknown = error
    nodes = [node for node in parts.nodes.all() if known is None or node.name in known.nodes]

    async def ask(node: Node) -> CapturesAnswer:
        return await ask_node(node, CapturesAnswer, CAPTURES)

    found = await parts.nodes.ask_all(nodes, ask)
    names = (text,) if known is None else (known.text,)
    mine = {name: _only(answer, names, found_all=known is not None) for name, answer in found.answers.items()}
    if known is None:
        mine = {name: answer for name, answer in mine.items() if answer.captures or answer.pending}
        if not mine:
            raise unknown
    return mine, found.missing


def members_of(found: Mapping[str, CapturesAnswer], group: str) -> list[ArchiveMember]:
    """The file of each node of a group; a node has one, and would have the time of several if it said that it has."""
    files = (
        (node, next((each for each in answer.captures if _group_of(each.reason) == group), None))
        for node, answer in sorted(found.items())
    )
    return [ArchiveMember(node, one.name, one.size_bytes, one.trigger_ms) for node, one in files if one]


def _only(answer: CapturesAnswer, names: tuple[str, ...], *, found_all: bool) -> CapturesAnswer:
    """The captures of a job: those that say so, and those whose common word does."""
    hashes = {_key_hash(name) for name in names}

    def is_mine(capture: StoredAnswer | PendingAnswer) -> bool:
        word = _GROUP.fullmatch(capture.reason)
        if word:
            return word[3] in hashes or (not found_all and _has_job(capture, names))
        return _has_job(capture, names)

    return answer.model_copy(
        update={
            "captures": [each for each in answer.captures if is_mine(each)],
            "pending": [each for each in answer.pending if is_mine(each)],
        }
    )


def _has_job(capture: StoredAnswer | PendingAnswer, names: tuple[str, ...]) -> bool:
    jobs = capture.jobs if isinstance(capture, StoredAnswer) else None
    return any(name in (each.job_id, f"{each.scheduler}:{each.job_id}") for each in jobs or () for name in names)


def _describe(job: str, found: Mapping[str, CapturesAnswer], missing: Mapping[str, str]) -> dict[str, Any]:
    groups: dict[str, dict[str, Any]] = {}
    single = []
    for node, answer in sorted(found.items()):
        every: list[StoredAnswer | PendingAnswer] = [*answer.captures, *answer.pending]
        for capture in every:
            ready_ms = capture.ready_ms if isinstance(capture, PendingAnswer) else None
            size = capture.size_bytes if isinstance(capture, StoredAnswer) else None
            one = {
                "node": node,
                "name": capture.name,
                "trigger_ms": capture.trigger_ms,
                "size_bytes": size,
                "ready_ms": ready_ms,
            }
            word = _GROUP.fullmatch(capture.reason)
            if word is None:
                single.append({**one, "reason": capture.reason})
                continue
            url = f"{PATH.format(job=quote(job, safe=''))}/{word[2]}"
            group = groups.setdefault(word[2], {"id": word[2], "reason": word[1] or "", "url": url, "nodes": []})
            group["nodes"].append(one)
    for group in groups.values():
        group["trigger_ms"] = min(each["trigger_ms"] for each in group["nodes"])
        group["size_bytes"] = sum(each["size_bytes"] or 0 for each in group["nodes"])
    return {
        "captures": sorted(groups.values(), key=lambda group: -group["trigger_ms"]),
        "single": sorted(single, key=lambda one: -one["trigger_ms"]),
        "missing": _missing(missing),
    }


def _missing(reasons: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"node": name, "reason": reason} for name, reason in reasons.items()]
