"""`/api/v1/captures`: list, download, take and delete captures, and the Alertmanager webhook."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from typing import Annotated, Literal

import aiofiles
import aiofiles.os
from aiofiles.threadpool.binary import AsyncBufferedReader
from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from ibpulse.agent.flightrecorder.converter import convert_capture
from ibpulse.agent.flightrecorder.recorder import Captures, FlightRecorder, Pending
from ibpulse.agent.flightrecorder.store import CaptureStore, Stored
from ibpulse.agent.flightrecorder.triggers import API, Trigger, make_trigger
from ibpulse.agent.web.jobs import describe_record
from ibpulse.agent.web.parts import WebParts
from ibpulse.base.errors import CaptureError
from ibpulse.base.units import MILLISECOND_NS, format_duration
from ibpulse.base.values import SOME_TIME
from ibpulse.core.answers.jobs import CaptureJobAnswer, CapturesAnswer, NotificationAnswer, PendingAnswer, StoredAnswer
from ibpulse.core.captures import MEDIA_TYPE, TRACE_TYPE, CaptureName, parse_name, trace_file
from ibpulse.core.http.access import USER
from ibpulse.core.http.admission import ParallelRequests
from ibpulse.core.http.application import HEAD
from ibpulse.core.http.problems import ProblemError, bad_parameter, model, operation, problem_response, text
from ibpulse.core.http.requests import (
    REFUSALS,
    CaptureRequest,
    Notification,
    check_writer,
    json_response,
    read_alerts,
    read_body,
    read_parameter,
    request_schema,
)
from ibpulse.core.jobs import JobRecord

log = logging.getLogger(__name__)

PATH = "/api/v1/captures"
CHUNK_BYTES = 262_144
_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))", re.ASCII)


def describe_captures(recorder: FlightRecorder, stored: Sequence[Stored], pending: Sequence[Pending]) -> CapturesAnswer:
    """The answer with all captures; `stored` is oldest first.

    A file that is complete remains pending until its event is in the event log, so a client that finds it listed finds
    the event as well.
    """
    unfinished = {each.name for each in pending}
    finished = [each for each in stored if each.name not in unfinished]
    jobs, ports = recorder.jobs_of(), recorder.ports_of()
    return CapturesAnswer.model_construct(
        captures=[
            StoredAnswer.model_construct(
                name=(name := str(each.name)),
                trigger_ms=each.name.trigger_ms,
                reason=each.name.reason,
                ports=ports.get(name, ""),
                jobs=None if name not in jobs else [_describe_job(record) for record in jobs[name]],
                size_bytes=each.size_bytes,
                url=f"{PATH}/{name}",
            )
            for each in reversed(finished)
        ],
        pending=[describe_pending(each) for each in pending],
        stored_bytes=sum(each.size_bytes for each in finished),
        problem=recorder.find_problem(),
    )


def _describe_job(record: JobRecord) -> CaptureJobAnswer:
    return CaptureJobAnswer.model_construct(**describe_record(record))


def describe_pending(pending: Pending) -> PendingAnswer:
    """The answer about a capture that is not finished."""
    return PendingAnswer.model_construct(
        name=str(pending.name),
        trigger_ms=pending.name.trigger_ms,
        reason=pending.name.reason,
        ready_ms=pending.ready_ns // MILLISECOND_NS,
        url=f"{PATH}/{pending.name}",
    )


def make_request_trigger(
    body: CaptureRequest, now_ns: int, default_span_ns: tuple[int, int], history_ns: int
) -> Trigger:
    """The trigger of a request; `default_span_ns` is the default time before and after."""
    before_ns = None if body.before is None else read_parameter("before", body.before, SOME_TIME)
    after_ns = None if body.after is None else read_parameter("after", body.after, SOME_TIME)
    whole_ns = (before_ns or default_span_ns[0]) + (after_ns or default_span_ns[1])
    if whole_ns > history_ns:
        raise bad_parameter(
            "before",
            f"{format_duration(whole_ns)} together with after exceeds the history, "
            f"{format_duration(history_ns)}; shorten one of them",
        )
    return Trigger(API, body.reason, now_ns, body.labels, before_ns, after_ns)


async def send_capture(request: Request, store: CaptureStore, name: CaptureName, threads: Executor) -> Response:
    """The response with a capture, or with the requested range of it, read in `threads`.

    Multiple ranges and other range units are ignored, and the response is the whole file (RFC 9110, 14.2).

    Raises:
        FileNotFoundError: no regular file has this name.
        OSError: the file cannot be read.
    """
    file = await aiofiles.open(str(name), "rb", opener=lambda _path, _flags: store.open(name), executor=threads)
    try:
        size = (await aiofiles.os.stat(file.fileno(), executor=threads)).st_size
        response = _answer(request, str(name), file, size)
    except BaseException:
        await file.close()
        raise
    if not isinstance(response, StreamingResponse):
        await file.close()
    return response


def _answer(request: Request, name: str, file: AsyncBufferedReader, size: int) -> Response:
    tag = f'"{name.removesuffix(".parquet")}"'
    headers = {"Accept-Ranges": "bytes", "ETag": tag, "Content-Disposition": f'attachment; filename="{name}"'}
    # A capture never changes, so a different tag means a different file.
    found = _RANGE.fullmatch(request.headers.get("range", "")) if request.headers.get("if-range", tag) == tag else None
    first, end = _span(found, size) if found else (0, size)
    if found and first >= end:
        detail = f"The file has {size} bytes, none of them in the requested range."
        return problem_response(416, detail, "bad-range", {"Content-Range": f"bytes */{size}"})
    if found:
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - first)
    status = 206 if found else 200
    if request.scope.get(HEAD):
        return Response(status_code=status, headers=headers, media_type=MEDIA_TYPE)
    return StreamingResponse(_chunks(file, first, end), status, headers, MEDIA_TYPE)


async def send_trace(
    request: Request, store: CaptureStore, name: CaptureName, threads: Executor, places: ParallelRequests
) -> Response:
    """The response with a capture as a trace of Perfetto, converted in a place of `places`.

    Raises:
        FileNotFoundError: no regular file has this name.
        OSError: the file cannot be read.
        CaptureError: it cannot be converted.
    """

    async def convert() -> AsyncGenerator[bytes]:
        async with places.place(request):
            descriptor = await asyncio.get_running_loop().run_in_executor(threads, store.open, name)
            async with aclosing(convert_capture(descriptor)) as chunks:
                async for chunk in chunks:
                    yield chunk

    headers = {"Content-Disposition": f'attachment; filename="{trace_file(name)}"'}
    if request.scope.get(HEAD):
        return Response(headers=headers, media_type=TRACE_TYPE)
    chunks = convert()
    # a refusal comes before the status of the answer
    first = await anext(chunks)

    async def resume() -> AsyncIterator[bytes]:
        async with aclosing(chunks):
            yield first
            async for chunk in chunks:
                yield chunk

    return StreamingResponse(resume(), headers=headers, media_type=TRACE_TYPE)


def _span(found: re.Match[str], size: int) -> tuple[int, int]:
    """The first byte of a range, and the end, exclusive (RFC 9110, 14.1.2)."""
    begin, last, tail = found.groups()
    if tail is not None:
        return max(0, size - int(tail)), size
    return int(begin), min(size, int(last) + 1) if last else size


async def _chunks(file: AsyncBufferedReader, first: int, end: int) -> AsyncIterator[bytes]:
    try:
        await file.seek(first)
        while first < end and (chunk := await file.read(min(CHUNK_BYTES, end - first))):
            first += len(chunk)
            yield chunk
    finally:
        await file.close()


def find_name(name: str) -> CaptureName:
    """The parsed name of a capture."""
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


def add_captures(router: APIRouter, parts: WebParts) -> None:
    """The routes that read captures."""
    captures = parts.node.captures
    recorder = captures.recorder
    conversions = ParallelRequests(1, "capture is already being converted", "the file itself with format=parquet")

    @router.get(PATH, **operation("list_captures", model(CapturesAnswer, "The captures."), 503, reasons=REFUSALS))
    async def captures_of_node() -> Response:
        """The captures of this node, finished and pending."""
        # before the directory is read, so that a capture that is completed meanwhile is in one of the two lists
        pending = recorder.pending()
        try:
            stored = await recorder.refresh()
        except CaptureError as error:
            raise unavailable(captures, error) from error
        return json_response(200, describe_captures(recorder, stored, pending))

    download = operation("download_capture", None, 404, 416, 503, reasons=REFUSALS)
    whole, part = text("The file.", MEDIA_TYPE, TRACE_TYPE), text("The requested range.", MEDIA_TYPE)
    download["responses"] = {200: whole, 206: part, **download["responses"]}

    @router.get(PATH + "/{name}", **download)
    async def download_capture(
        request: Request,
        name: str,
        form: Annotated[
            Literal["parquet", "perfetto"],
            Query(alias="format", description="The file itself, or a trace for Perfetto."),
        ] = "parquet",
    ) -> Response:
        """A finished capture, as Parquet or for Perfetto."""
        parsed = find_name(name)
        try:
            if form == "perfetto":
                return await send_trace(request, recorder.store, parsed, recorder.threads, conversions)
            return await send_capture(request, recorder.store, parsed, recorder.threads)
        except FileNotFoundError as error:
            raise unknown(name, recorder.pending()) from error
        except OSError as error:
            failure = CaptureError(f"capture {parsed} cannot be read: {error.strerror}")
            raise unavailable(captures, failure, str(error.strerror)) from error
        except CaptureError as error:
            raise unavailable(captures, CaptureError(f"capture {parsed} cannot be converted: {error}")) from error


def add_capture_writing(router: APIRouter, parts: WebParts) -> None:
    """The routes that take and delete captures."""
    captures = parts.node.captures

    pending_answer = model(PendingAnswer, "The pending capture.")

    @router.post(
        PATH,
        **operation("take_capture", pending_answer, 403, 413, 422, 503, reasons=REFUSALS, status=202),
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

    accepted = model(NotificationAnswer, "Notification accepted.")

    @router.post(
        f"{PATH}/alertmanager",
        **operation("receive_alerts", accepted, 403, 413, 422, 503, reasons=REFUSALS),
        openapi_extra=request_schema(Notification, required=True),
    )
    async def take_notification(request: Request) -> Response:
        """Alertmanager's webhook: alerts firing for this node, or for none, save the samples around their start."""
        check_writer(request, allow_unauthenticated=captures.allow_unauthenticated)
        return _take_alerts(parts, captures, read_body(Notification, await request.body()))

    @router.delete(PATH + "/{name}", **operation("delete_capture", None, 403, 404, 503, reasons=REFUSALS, status=204))
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
