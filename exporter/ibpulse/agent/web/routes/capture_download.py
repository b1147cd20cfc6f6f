"""Sends a capture, or one range of it, without reading the disk in the event loop.

starlette's `FileResponse` does not fit: it shares threads with the files of the live page, so a hung disk would stop
those as well; it refuses a bad range in plain text; and it starts the response before it opens the file.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from concurrent.futures import Executor

import aiofiles
import aiofiles.os
from aiofiles.threadpool.binary import AsyncBufferedReader
from fastapi import Request
from starlette.responses import Response, StreamingResponse

from ibpulse.agent.flightrecorder.store import CaptureStore
from ibpulse.core.captures import MEDIA_TYPE, CaptureName
from ibpulse.core.http.middleware import HEAD
from ibpulse.core.http.problems import KINDS, problem_response

CHUNK_BYTES = 262_144
_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))", re.ASCII)


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
        return problem_response(416, detail, KINDS["bad-range"], "bad-range", {"Content-Range": f"bytes */{size}"})
    if found:
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - first)
    status = 206 if found else 200
    if request.scope.get(HEAD):
        return Response(status_code=status, headers=headers, media_type=MEDIA_TYPE)
    return StreamingResponse(_chunks(file, first, end), status, headers, MEDIA_TYPE)


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
