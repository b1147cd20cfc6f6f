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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from ibpulse.defaults import CAPTURE_AFTER_NS, CAPTURE_BEFORE_NS
from ibpulse.fleet.node_answers import ask_node, read_answer
from ibpulse.fleet.nodes import Node
from ibpulse.fleet.span_answers import NodeCapture, NodeCaptures, NodePendingCapture
from ibpulse.flightrecorder.alertmanager import NODE_LABELS, Alert, AlertReceiver, join_labels
from ibpulse.gateway.capture_archive import ArchiveMember, send_archive
from ibpulse.gateway.job_nodes import FleetJob, choose_job
from ibpulse.gateway.job_polls import GONE
from ibpulse.gateway.parts import GatewayParts
from ibpulse.units import MILLISECOND_NS, SECOND_NS
from ibpulse.web.parameters import read_duration
from ibpulse.web.problems import ProblemError
from ibpulse.web.routes.capture_bodies import (
    MAX_LABELS,
    CaptureRequest,
    Notification,
    json_response,
    read_alerts,
    read_body,
    refusals,
    request_schema,
)
from ibpulse.web.routes.captures_route import check_writer

CAPTURES = "/api/v1/captures"
PATH = "/api/v1/jobs/{job}/captures"
JOB_LABEL = "job_id"
SHORTEST_NS = 100 * MILLISECOND_NS
# an alert that began earlier saves the samples around now
REACH_NS = 120 * SECOND_NS
COOLDOWN_NS = 300 * SECOND_NS
MAX_ARCHIVES = 2
# the reason in the name of a file has at most 40 characters
MOST_REASON = 26
_GROUP = re.compile(r"(?:(.*)-)?(job([0-9a-f]{5})[0-9a-f]{5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Span:
    """What to capture: a time before and after now, as of a moment of the monotonic clock."""

    before_ns: int
    after_ns: int
    at_ns: int

    def now(self) -> tuple[int, int]:
        """Before and after, for a request that is sent now."""
        passed = time.monotonic_ns() - self.at_ns
        return self.before_ns + passed, max(SHORTEST_NS, self.after_ns - passed)


def captures_router(parts: GatewayParts) -> APIRouter:
    """The read-only routes of the captures of jobs."""
    router = APIRouter()
    archives = asyncio.Semaphore(MAX_ARCHIVES)

    @router.get(PATH, responses={200: {"description": "The captures of the job."}, **refusals(404)})
    async def list_captures(job: str) -> Response:
        """The captures of a job: those of all its nodes together, and those of single nodes."""
        found, missing = await _ask_captures(parts, job)
        return json_response(200, _describe(job, found, missing))

    @router.get(
        PATH + "/{group}",
        responses={
            200: {"description": "A tar archive.", "content": {"application/x-tar": {"schema": {"type": "string"}}}},
            **refusals(404, 503),
        },
        response_class=Response,
    )
    async def download(request: Request, job: str, group: str) -> Response:
        """The files of all nodes of one capture as a tar archive."""
        found, missing = await _ask_captures(parts, job)
        members = [
            ArchiveMember(node, capture.name, capture.size_bytes, capture.trigger_ms)
            for node, answer in sorted(found.items())
            for capture in answer.captures
            if _group_of(capture.reason) == group
        ]
        if not members:
            raise ProblemError("unknown-capture", 404, f"No such finished capture of the job: {group[:100]!r}.")
        return send_archive(request, parts.nodes, group, members, missing, archives)

    return router


def captures_writing_router(parts: GatewayParts) -> APIRouter:
    """The routes that take captures of jobs."""
    router = APIRouter()
    receiver = AlertReceiver((), COOLDOWN_NS)

    @router.post(
        PATH,
        status_code=202,
        responses={202: {"description": "The pending captures."}, **refusals(403, 404, 413, 422, 503)},
        response_class=Response,
        openapi_extra=request_schema(CaptureRequest, required=False),
    )
    async def take_captures(request: Request, job: str) -> Response:
        """Save the samples around now on all nodes of a job."""
        check_writer(request, allow_unauthenticated=parts.allow_unauthenticated)
        body = read_body(CaptureRequest, await request.body())
        before_ns = CAPTURE_BEFORE_NS if body.before is None else read_duration("before", body.before)
        after_ns = CAPTURE_AFTER_NS if body.after is None else read_duration("after", body.after)
        chosen = choose_job(parts.table.rows(), job)
        taken = await _take(parts, chosen, body.reason, body.labels, Span(before_ns, after_ns, time.monotonic_ns()))
        if not taken["nodes"]:
            reasons = "; ".join(f"{each['node']}: {each['reason']}" for each in taken["missing"][:3])
            raise ProblemError("no-captures", 503, f"No node of the job takes a capture. {reasons}"[:1000])
        return json_response(202, taken, {"Location": taken["url"]})

    @router.post(
        f"{CAPTURES}/alertmanager",
        responses={200: {"description": "Notification accepted."}, **refusals(403, 413, 422)},
        response_class=Response,
        openapi_extra=request_schema(Notification, required=True),
    )
    async def take_notification(request: Request) -> Response:
        """Alertmanager's webhook: alerts with the label job_id save the samples around their start on its nodes."""
        check_writer(request, allow_unauthenticated=parts.allow_unauthenticated)
        alerts = read_alerts(read_body(Notification, await request.body()))
        return json_response(200, await _take_alerts(parts, receiver, alerts))

    return router


def _key_hash(text: str) -> str:
    """A part of the common word that says which job it is, by scheduler and id."""
    return hashlib.sha256(text.encode()).hexdigest()[:5]


def _group_of(reason: str) -> str | None:
    found = _GROUP.fullmatch(reason)
    return found[2] if found else None


async def _take(
    parts: GatewayParts, job: FleetJob, reason: str, labels: Mapping[str, str], span: Span
) -> dict[str, Any]:
    """Take a capture on all nodes; the answer names those that do not."""
    group = f"job{_key_hash(job.text)}{secrets.token_hex(3)[:5]}"
    words = re.sub("[^a-z0-9]+", "-", reason.lower())[:MOST_REASON].strip("-")
    full = f"{words}-{group}" if words else group
    trigger_ms = time.time_ns() // MILLISECOND_NS

    async def ask(node: Node) -> NodePendingCapture:
        before_ns, after_ns = span.now()
        body = {
            "reason": full,
            "labels": dict(labels),
            "before": f"{before_ns // MILLISECOND_NS}ms",
            "after": f"{after_ns // MILLISECOND_NS}ms",
        }
        return read_answer(NodePendingCapture, await node.post(CAPTURES, orjson.dumps(body)))

    running = [name for name, each in job.nodes.items() if each.running] or list(job.nodes)
    nodes = [node for name in running if (node := parts.nodes.get(name)) is not None]
    found = await parts.nodes.ask_all(nodes, ask)
    missing = {name: GONE[1] for name in running if parts.nodes.get(name) is None} | found.missing
    return {
        "id": group,
        "job_id": job.key[1],
        "scheduler": job.key[0],
        "reason": words,
        "trigger_ms": trigger_ms,
        "nodes": [
            {"node": name, "name": each.name, "trigger_ms": each.trigger_ms, "ready_ms": each.ready_ms}
            for name in running
            if (each := found.answers.get(name)) is not None
        ],
        "missing": _missing(missing),
        "url": f"{PATH.format(job=quote(job.text, safe=''))}/{group}",
    }


async def _take_alerts(parts: GatewayParts, receiver: AlertReceiver, alerts: Iterable[Alert]) -> dict[str, Any]:
    """Take one capture for each job that firing alerts name."""
    now_ns = time.time_ns()
    by_job: dict[str, list[Alert]] = {}
    ignored = 0
    for alert in alerts:
        named = alert.labels.get(JOB_LABEL, "")
        if alert.firing and named:
            by_job.setdefault(named, []).append(alert)
        elif alert.firing:
            ignored += 1
    captures, problems = [], []
    for text, firing in by_job.items():
        # one capture for all nodes, so an alert of another node of the job is the same one
        mine = [
            replace(
                alert,
                fingerprint=f"{text} {alert.labels.get('alertname', '')}",
                labels={name: value for name, value in alert.labels.items() if name not in NODE_LABELS},
            )
            for alert in firing
        ]
        chosen = receiver.choose(mine, now_ns)
        if not chosen:
            continue
        try:
            job = choose_job(parts.table.rows(), text)
        except ProblemError as error:
            problems.append({"job_id": text, "reason": error.detail})
            continue
        starts = [each.starts_ns for each in chosen if each.starts_ns is not None]
        age_ns = now_ns - min((start for start in starts if now_ns - REACH_NS <= start <= now_ns), default=now_ns)
        span = Span(CAPTURE_BEFORE_NS + age_ns, max(SHORTEST_NS, CAPTURE_AFTER_NS - age_ns), time.monotonic_ns())
        # a file holds at most so many
        labels = dict(list(join_labels([alert.labels for alert in firing]).items())[:MAX_LABELS])
        taken = await _take(parts, job, labels.get("alertname", "alert"), labels, span)
        captures.append(taken)
        if taken["nodes"]:
            receiver.remember(chosen, now_ns)
    return {"captures": captures, "problems": problems, "ignored": ignored}


async def _ask_captures(parts: GatewayParts, text: str) -> tuple[dict[str, NodeCaptures], dict[str, str]]:
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

    async def ask(node: Node) -> NodeCaptures:
        return await ask_node(node, NodeCaptures, CAPTURES)

    found = await parts.nodes.ask_all(nodes, ask)
    names = (text,) if known is None else (known.text,)
    mine = {name: _only(answer, names, found_all=known is not None) for name, answer in found.answers.items()}
    if known is None and not any(answer.captures for answer in mine.values()):
        raise unknown
    return mine, found.missing


def _only(answer: NodeCaptures, names: tuple[str, ...], *, found_all: bool) -> NodeCaptures:
    """The captures of a job: those that say so, and those whose common word does."""
    hashes = {_key_hash(name) for name in names}

    def is_mine(capture: NodeCapture | NodePendingCapture) -> bool:
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


def _has_job(capture: NodeCapture | NodePendingCapture, names: tuple[str, ...]) -> bool:
    jobs = capture.jobs if isinstance(capture, NodeCapture) else None
    return any(name in (each.job_id, f"{each.scheduler}:{each.job_id}") for each in jobs or () for name in names)


def _describe(job: str, found: Mapping[str, NodeCaptures], missing: Mapping[str, str]) -> dict[str, Any]:
    groups: dict[str, dict[str, Any]] = {}
    single = []
    for node, answer in sorted(found.items()):
        every: list[NodeCapture | NodePendingCapture] = [*answer.captures, *answer.pending]
        for capture in every:
            ready_ms = capture.ready_ms if isinstance(capture, NodePendingCapture) else None
            size = capture.size_bytes if isinstance(capture, NodeCapture) else None
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
