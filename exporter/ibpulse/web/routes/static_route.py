"""`/static/...`: scripts, styles and the icon of the live page, out of memory. It must not read other files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Kept by the browser, but asked about each time: after an upgrade no page runs with old parts.
CACHING = "no-cache"


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file with its type and its tag, a hash of what it holds."""

    content: bytes
    media_type: str
    tag: str


def read_static() -> dict[str, StaticFile]:
    """The files by name."""
    found = {}
    for entry in files("ibpulse.web").joinpath("static").iterdir():
        media_type = MEDIA_TYPES.get("." + entry.name.rpartition(".")[2])
        if media_type:
            content = entry.read_bytes()
            found[entry.name] = StaticFile(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:20]}"')
    return found


def static_router() -> APIRouter:
    """The route of the files."""
    router = APIRouter(include_in_schema=False)
    known = read_static()

    @router.get("/static/{name}")
    async def static(name: str, request: Request) -> Response:
        file = known.get(name)
        if file is None:
            raise HTTPException(404)
        headers = {"ETag": file.tag, "Cache-Control": CACHING}
        if file.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)

    return router
