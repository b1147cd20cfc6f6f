"""`/api/v1/events`: what happened on the node and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ibpulse.agent.web.parts import WebParts
from ibpulse.base.instants import format_rfc3339
from ibpulse.base.text import natural_key
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.base.values import unknown_word
from ibpulse.core.answers.events import EventsAnswer
from ibpulse.core.events import KINDS, Event
from ibpulse.core.http.problems import ProblemError, bad_parameter, operation, problems
from ibpulse.core.http.requests import EventsQuery, refuse_repeated

# encoding this many takes less than 10 ms; more are encoded in a thread
MAX_IN_LOOP = 1000


def add_events(router: APIRouter, parts: WebParts) -> None:
    """The events route."""
    wide = parts.limits.wide_requests(
        f"queries with more than {MAX_IN_LOOP} events are already running", f"{MAX_IN_LOOP} events"
    )

    @router.get(
        "/api/v1/events",
        **operation("list_events"),
        responses={200: {"model": EventsAnswer, "description": "Events by time."}, **problems(404, 422, 503)},
        response_class=Response,
        dependencies=[refuse_repeated("kind")],
    )
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
