"""Sends one capture, chunk by chunk, whole or a range of it. It must not know what is in it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiofiles
import aiofiles.os
from aiofiles.threadpool.binary import AsyncBufferedReader
from fastapi import Request
from starlette.responses import Response, StreamingResponse

from ibpulse.web.edge import HEAD
from ibpulse.web.problems import KINDS, problem_response

MEDIA_TYPE = "application/vnd.apache.parquet"
CHUNK_BYTES = 262_144
_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))", re.ASCII)


async def send_file(request: Request, path: Path) -> Response:
    """The response with the file, or with the one range of it that is asked for.

    Raises:
        OSError: the file is not there, or cannot be read.
    """
    size = (await aiofiles.os.stat(path)).st_size
    tag = f'"{path.stem}"'
    headers = {"Accept-Ranges": "bytes", "ETag": tag, "Content-Disposition": f'attachment; filename="{path.name}"'}
    wanted = request.headers.get("range", "")
    # a capture never changes, so any other tag is that of another file
    found = _RANGE.fullmatch(wanted) if request.headers.get("if-range", tag) == tag else None
    first, end = _span(found, size) if found else (0, size)
    if first >= end and found:
        detail = f"The file has {size} bytes, and the range asked for has none of them; ask for another."
        return problem_response(416, detail, KINDS["bad-range"], "bad-range", {"Content-Range": f"bytes */{size}"})
    if found:
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - first)
    status = 206 if found else 200
    if request.scope.get(HEAD):
        return Response(status_code=status, headers=headers, media_type=MEDIA_TYPE)
    file = await aiofiles.open(path, "rb")
    return StreamingResponse(_chunks(file, first, end), status, headers, MEDIA_TYPE)


def _span(found: re.Match[str], size: int) -> tuple[int, int]:
    """First byte and the one after the last of a range (RFC 9110, 14.1.2)."""
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
