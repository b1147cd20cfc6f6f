"""`/api/v1/captures`: list, download, take and delete captures, and the Alertmanager webhook."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from ibpulse.agent.flightrecorder.alerts import make_trigger
from ibpulse.agent.flightrecorder.captures import Captures
from ibpulse.agent.flightrecorder.recorder import Pending
from ibpulse.agent.flightrecorder.rules import Trigger
from ibpulse.agent.web.parts import WebParts
from ibpulse.agent.web.routes.capture_bodies import PATH, describe_pending, list_captures, make_request_trigger
from ibpulse.agent.web.routes.capture_download import send_capture
from ibpulse.base.errors import CaptureError
from ibpulse.core.answers.captures import CapturesAnswer, NotificationAnswer, PendingAnswer
from ibpulse.core.captures import MEDIA_TYPE, CaptureName, parse_name
from ibpulse.core.http.auth.access import USER
from ibpulse.core.http.capture_requests import (
    CaptureRequest,
    Notification,
    check_writer,
    json_response,
    read_alerts,
    read_body,
    refusals,
    request_schema,
)
from ibpulse.core.http.problems import ProblemError
from ibpulse.core.http.schemas import operation

log = logging.getLogger(__name__)


def find_name(name: str) -> CaptureName:
    """The parsed name of a capture.

    Raises:
        ProblemError: it is not the name of a capture.
    """
    parsed = parse_name(name)
    if parsed is None:
        raise unknown(name, ())
    return parsed


def unknown(name: str, pending: Sequence[Pending]) -> ProblemError:
    """The error for a name without a finished capture."""
    if any(str(each.name) == name for each in pending):
        return ProblemError("unknown-capture", 404, f"Capture {name} is not finished yet; try again in a few seconds.")
    return ProblemError("unknown-capture", 404, f"No such capture: {name[:100]!r}. See {PATH} for the list.")


def unavailable(captures: Captures, error: CaptureError, cause: str = "") -> ProblemError:
    """The error for a request that failed on the disk; `cause` is the same for every file of a disk."""
    # the message names paths on this node, so it only goes to the log, and not for every request that fails so
    if captures.failures.is_news(cause or str(error)):
        log.error("captures: %s", error)
    return ProblemError("no-captures", 503, "Captures are currently unavailable; see the server's log.")


def captures_router(captures: Captures) -> APIRouter:
    """The read-only routes."""
    router = APIRouter()
    recorder = captures.recorder

    @router.get(
        PATH,
        **operation("list_captures"),
        responses={200: {"model": CapturesAnswer, "description": "The captures."}, **refusals(503)},
        response_class=Response,
    )
    async def captures_of_node() -> Response:
        """The captures of this node, finished and pending."""
        # before the directory is read, so that a capture that is completed meanwhile is in one of the two lists
        pending = recorder.pending()
        try:
            stored = await recorder.refresh()
        except CaptureError as error:
            raise unavailable(captures, error) from error
        known = recorder.jobs_of(), recorder.ports_of()
        return json_response(200, list_captures(stored, pending, recorder.find_problem(), *known))

    @router.get(
        PATH + "/{name}",
        **operation("download_capture"),
        responses={
            200: {"description": "The file.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
            206: {"description": "The requested range.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
            **refusals(404, 416, 503),
        },
        response_class=Response,
    )
    async def download_capture(request: Request, name: str) -> Response:
        """A finished capture, as Parquet."""
        parsed = find_name(name)
        try:
            return await send_capture(request, recorder.store, parsed, recorder.threads)
        except FileNotFoundError as error:
            raise unknown(name, recorder.pending()) from error
        except OSError as error:
            failure = CaptureError(f"capture {parsed} cannot be read: {error.strerror}")
            raise unavailable(captures, failure, str(error.strerror)) from error

    return router


def captures_writing_router(parts: WebParts, captures: Captures) -> APIRouter:
    """The routes that take and delete captures."""
    router = APIRouter()

    @router.post(
        PATH,
        **operation("take_capture"),
        status_code=202,
        responses={
            202: {"model": PendingAnswer, "description": "The pending capture."},
            **refusals(403, 413, 422, 503),
        },
        response_class=Response,
        openapi_extra=request_schema(CaptureRequest, required=False),
    )
    async def take_capture(request: Request) -> Response:
        """Save the samples around now. A repeated request returns the same capture while it is pending."""
        check_writer(request, allow_unauthenticated=captures.allow_unauthenticated)
        body = read_body(CaptureRequest, await request.body())
        history_ns = parts.node.reader.capacity * parts.node.reader.interval_ns
        trigger = make_request_trigger(body, parts.node.clock.time_ns(), captures.default_span_ns, history_ns)
        pending = _ask(captures, trigger)
        return json_response(202, describe_pending(pending), {"Location": f"{PATH}/{pending.name}"})

    @router.post(
        f"{PATH}/alertmanager",
        **operation("receive_alerts"),
        responses={
            200: {"model": NotificationAnswer, "description": "Notification accepted."},
            **refusals(403, 413, 422, 503),
        },
        response_class=Response,
        openapi_extra=request_schema(Notification, required=True),
    )
    async def take_notification(request: Request) -> Response:
        """Alertmanager's webhook: alerts firing for this node, or for none, save the samples around their start."""
        check_writer(request, allow_unauthenticated=captures.allow_unauthenticated)
        return _take_alerts(parts, captures, read_body(Notification, await request.body()))

    @router.delete(
        PATH + "/{name}",
        **operation("delete_capture"),
        status_code=204,
        responses=refusals(403, 404, 503),
        response_class=Response,
    )
    async def delete_capture(request: Request, name: str) -> Response:
        """Delete a finished capture."""
        check_writer(request, allow_unauthenticated=captures.allow_unauthenticated)
        parsed = find_name(name)
        try:
            removed = await captures.recorder.remove(parsed)
        except CaptureError as error:
            raise unavailable(captures, error) from error
        if not removed:
            raise unknown(name, captures.recorder.pending())
        log.info("capture %s deleted by %s", parsed, request.scope.get(USER, "an anonymous request"))
        return Response(status_code=204)

    return router


def _take_alerts(parts: WebParts, captures: Captures, notification: Notification) -> Response:
    clock = parts.node.clock
    now_ns, monotonic_ns = clock.time_ns(), clock.monotonic_ns()
    chosen = captures.alert_receiver.choose(read_alerts(notification), monotonic_ns)
    if not chosen:
        return json_response(200, NotificationAnswer.model_construct(capture=None, alerts=0))
    reach_ns = parts.node.reader.capacity * parts.node.reader.interval_ns - captures.default_span_ns[0]
    pending = _ask(captures, make_trigger(chosen, now_ns, now_ns - reach_ns))
    captures.alert_receiver.remember(chosen, monotonic_ns)
    return json_response(200, NotificationAnswer.model_construct(capture=str(pending.name), alerts=len(chosen)))


def _ask(captures: Captures, trigger: Trigger) -> Pending:
    try:
        return captures.recorder.ask(trigger)
    except CaptureError as error:
        raise ProblemError("too-many-captures" if error.busy else "no-captures", 503, f"{error}.") from error
