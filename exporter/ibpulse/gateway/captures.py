"""Captures of a job: the same span on all of its nodes, listed together, and downloaded as one archive.

The nodes keep the files. Those of one request have a common word at the end of their reason, which is in the name of
the file, so the gateway remembers nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import tarfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from ibpulse.base.clocks import Clock
from ibpulse.base.errors import DaemonError
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.base.values import SOME_TIME
from ibpulse.core.answers.jobs import CapturesAnswer, PendingAnswer, StoredAnswer
from ibpulse.core.captures import MEDIA_TYPE as FILE_TYPE
from ibpulse.core.client.transport import read_answer
from ibpulse.core.http.admission import ParallelRequests
from ibpulse.core.http.application import HEAD
from ibpulse.core.http.problems import ProblemError, operation, text
from ibpulse.core.http.requests import (
    REFUSALS,
    CaptureRequest,
    check_writer,
    json_response,
    read_body,
    read_parameter,
    request_schema,
)
from ibpulse.gateway.jobs import FleetJob, choose_job, list_jobs
from ibpulse.gateway.nodes.requests import GONE, Node, Nodes, ask_node
from ibpulse.gateway.parts import GatewayParts

ARCHIVE_TYPE = "application/x-tar"
MAX_ARCHIVE_BYTES = 16 * 2**30
# so that no node takes the place of the others
MAX_NODE_BYTES = 256 * 2**20
# for a file, without the time in which the client takes it
FILE_SECONDS = 30.0
BLOCK = tarfile.BLOCKSIZE
MISSING = "missing.txt"
CAPTURES = "/api/v1/captures"
PATH = "/api/v1/jobs/{job}/captures"
MIN_NS = 100 * MILLISECOND_NS
MAX_ARCHIVES, MAX_LISTS = 2, 4
# the reason in the name of a file has at most 64 characters
MAX_REASON = 50
_GROUP = re.compile(r"(?:(.*)-)?(job([0-9a-f]{5})[0-9a-f]{5})", re.ASCII)


def send_archive(
    request: Request,
    nodes: Nodes,
    group: str,
    members: Mapping[str, StoredAnswer],
    missing: Mapping[str, str],
    places: asyncio.Semaphore,
) -> Response:
    """The response with an archive of the files of nodes; those without one are named in a member `missing.txt`."""
    large = {
        node: f"its file has {file.size_bytes} bytes, more than {MAX_NODE_BYTES}; download it from the node"
        for node, file in members.items()
        if file.size_bytes > MAX_NODE_BYTES
    }
    members = {node: file for node, file in members.items() if node not in large}
    total = sum(file.size_bytes for file in members.values())
    if total > MAX_ARCHIVE_BYTES:
        raise ProblemError(
            "too-many-values",
            422,
            f"The files have {total} bytes together; the maximum is {MAX_ARCHIVE_BYTES}. Download those of single "
            "nodes.",
            bound={"name": "max_archive_bytes", "limit": MAX_ARCHIVE_BYTES, "asked": total},
        )
    headers = {"Content-Disposition": f'attachment; filename="{group}.tar"'}
    if request.scope.get(HEAD):
        return Response(headers=headers, media_type=ARCHIVE_TYPE)
    if places.locked():
        raise ProblemError("too-busy", 503, "Other archives are already being sent. Try again in a few seconds.")
    return StreamingResponse(_archive(nodes, group, members, {**missing, **large}, places), 200, headers, ARCHIVE_TYPE)


async def _archive(
    nodes: Nodes,
    group: str,
    members: Mapping[str, StoredAnswer],
    missing: Mapping[str, str],
    places: asyncio.Semaphore,
) -> AsyncIterator[bytes]:
    reasons = dict(missing)
    async with places:
        for name, file in members.items():
            sent = 0
            try:
                async with aclosing(_file(nodes, name, file)) as parts:
                    async for part in parts:
                        if not sent:
                            yield _head(f"{group}/{name}/{file.name}", file.size_bytes, file.trigger_ms)
                        sent += len(part)
                        yield part
            except DaemonError as error:
                if sent:
                    # the archive cannot be continued; the client sees that the response breaks off
                    raise
                reasons[name] = str(error)
                continue
            yield bytes(-sent % BLOCK)
        if reasons:
            text = "".join(f"{node}: {reason}\n" for node, reason in sorted(reasons.items())).encode()
            yield _head(f"{group}/{MISSING}", len(text), 0) + text + bytes(-len(text) % BLOCK)
        yield bytes(2 * BLOCK)


async def _file(nodes: Nodes, name: str, file: StoredAnswer) -> AsyncGenerator[bytes, None]:
    """The parts of a file, which has as many bytes as it was listed with.

    Raises:
        DaemonError: it has others, or the node does not give it.
    """
    node = nodes.get(name)
    if node is None:
        raise DaemonError(GONE)
    left = file.size_bytes
    async with aclosing(node.stream(f"/api/v1/captures/{file.name}", (), FILE_TYPE)) as parts:
        async for part in _in_time(parts):
            left -= len(part)
            if left < 0:
                raise DaemonError("its file is longer than it was listed")
            if part:
                yield part
    if left:
        raise DaemonError("its file is shorter than it was listed")


async def _in_time(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The parts of a file."""
    left, loop = FILE_SECONDS, asyncio.get_running_loop()
    while True:
        begin = loop.time()
        try:
            async with asyncio.timeout(left):
                part = await anext(parts, None)
        except TimeoutError:
            raise DaemonError(f"its file did not come within {FILE_SECONDS:g} s") from None
        if part is None:
            return
        left -= loop.time() - begin
        yield part


def _head(name: str, size: int, time_ms: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, time_ms // 1000, 0o644
    return member.tobuf(tarfile.PAX_FORMAT)


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
    """The routes of the captures of jobs."""
    router, settings = APIRouter(), parts.captures
    archives = asyncio.Semaphore(MAX_ARCHIVES)
    lists = ParallelRequests(MAX_LISTS, "lists of captures of jobs are already being read")

    listed = {"description": "The captures of the job.", "content": {"application/json": {"schema": {}}}}

    @router.get(PATH, **operation("list_job_captures", listed, 404, 503, reasons=REFUSALS))
    async def list_captures(request: Request, job: str) -> Response:
        """The captures of a job: those of all its nodes together, and those of single nodes."""
        async with lists.place(request):
            found, missing = await _ask_captures(parts, job)
        return json_response(200, _describe(job, found, missing))

    archive = text("A tar archive.", "application/x-tar")

    @router.get(PATH + "/{group}", **operation("download_job_capture", archive, 404, 503, reasons=REFUSALS))
    async def download(request: Request, job: str, group: str) -> Response:
        """The files of all nodes of one capture as a tar archive."""
        async with lists.place(request):
            found, missing = await _ask_captures(parts, job)
        members = members_of(found, group)
        for node in found.keys() - members.keys():
            waits = any(_group_of(capture.reason) == group for capture in found[node].pending)
            missing[node] = "its file is not complete yet" if waits else "it has no file of this capture"
        if not members:
            raise ProblemError("unknown-capture", 404, f"No such finished capture of the job: {group[:100]!r}.")
        return send_archive(request, parts.nodes, group, members, missing, archives)

    pending = {"description": "The pending captures."}

    @router.post(
        PATH,
        **operation("take_job_capture", pending, 403, 404, 413, 422, 503, reasons=REFUSALS, status=202),
        openapi_extra=request_schema(CaptureRequest, required=False),
    )
    async def take_captures(request: Request, job: str) -> Response:
        """Save the samples around now on all nodes of a job."""
        check_writer(request, allow_unauthenticated=parts.allow_unauthenticated)
        body = read_body(CaptureRequest, await request.body())
        before_ns = settings.before_ns if body.before is None else read_parameter("before", body.before, SOME_TIME)
        after_ns = settings.after_ns if body.after is None else read_parameter("after", body.after, SOME_TIME)
        chosen = choose_job(list_jobs(parts.table.rows()), job)
        wanted = WantedCapture(body.reason, body.labels, before_ns, after_ns, parts.clock.monotonic_ns(), parts.clock)
        taken = await capture_job(parts, chosen, wanted)
        if not taken["nodes"]:
            raise ProblemError("no-captures", 503, missing_nodes_text(taken))
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
    nodes, gone = parts.nodes.choose(running)
    found = await parts.nodes.ask_all(nodes, replace(wanted, reason=f"{words}-{group}" if words else group).ask)
    return {
        "id": group,
        "job_id": job.key[1],
        "scheduler": job.key[0],
        "reason": words,
        "trigger_ms": trigger_ms,
        "nodes": [describe_pending(name, found.answers[name]) for name in running if name in found.answers],
        "missing": _missing(gone | found.missing),
        "url": f"{PATH.format(job=quote(job.text, safe=''))}/{group}",
    }


def describe_pending(node: str, pending: PendingAnswer) -> dict[str, Any]:
    """The members of a capture that a node takes."""
    return {"node": node, "name": pending.name, "trigger_ms": pending.trigger_ms, "ready_ms": pending.ready_ms}


def missing_nodes_text(taken: Mapping[str, Any]) -> str:
    """Why no node of a job takes a capture."""
    reasons = "; ".join(f"{each['node']}: {each['reason']}" for each in taken["missing"][:3])
    return f"No node of the job takes a capture. {reasons}"[:1000]


async def _ask_captures(parts: GatewayParts, text: str) -> tuple[dict[str, CapturesAnswer], dict[str, str]]:
    """The captures of a job by node, and the nodes without an answer with the reason.

    A job that no node knows any more is looked for on all nodes.
    """
    known: FleetJob | None = None
    try:
        known = choose_job(list_jobs(parts.table.rows()), text)
    except ProblemError as error:
        if error.kind != "unknown-job":
            raise
        unknown = error
    nodes = [node for node in parts.nodes.all() if known is None or node.name in known.nodes]

    found = await parts.nodes.ask_all(nodes, lambda node: ask_node(node, CapturesAnswer, CAPTURES))
    name = known.text if known else text
    mine = {node: _only(answer, name, known=known is not None) for node, answer in found.answers.items()}
    if known is None:
        mine = {node: answer for node, answer in mine.items() if answer.captures or answer.pending}
        if not mine:
            raise unknown
    return mine, found.missing


def members_of(found: Mapping[str, CapturesAnswer], group: str) -> dict[str, StoredAnswer]:
    """The file of each node of a group; a node has one, and would have the time of several if it listed several."""
    return {
        node: file
        for node, answer in sorted(found.items())
        if (file := next((each for each in answer.captures if _group_of(each.reason) == group), None))
    }


def _only(answer: CapturesAnswer, job: str, *, known: bool) -> CapturesAnswer:
    """The captures of a job: those that name it, and those whose common word does."""

    def is_mine(capture: StoredAnswer | PendingAnswer) -> bool:
        word = _GROUP.fullmatch(capture.reason)
        if word and (known or word[3] == _key_hash(job)):
            return word[3] == _key_hash(job)
        jobs = capture.jobs if isinstance(capture, StoredAnswer) else None
        return any(job in (each.job_id, f"{each.scheduler}:{each.job_id}") for each in jobs or ())

    return answer.model_copy(
        update={
            "captures": [each for each in answer.captures if is_mine(each)],
            "pending": [each for each in answer.pending if is_mine(each)],
        }
    )


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
