"""`/api/v1/captures`: list and download captures. It must not know how one is taken."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from ibpulse.errors import CaptureError
from ibpulse.web.captures_answer import PATH, CapturesAnswer, json_response, list_members, refusals
from ibpulse.web.captures_file import MEDIA_TYPE, send_file
from ibpulse.web.captures_name import find_name, unavailable, unknown
from ibpulse.web.parts import CaptureParts


def captures_router(captures: CaptureParts) -> APIRouter:
    """The routes that read."""
    router = APIRouter()
    recorder = captures.recorder

    @router.get(
        PATH,
        responses={200: {"model": CapturesAnswer, "description": "The captures."}, **refusals(401, 414, 503)},
        response_class=Response,
    )
    async def list_captures() -> Response:
        """The captures of this node, and those that are being taken."""
        try:
            stored = await recorder.refresh()
        except CaptureError as error:
            raise unavailable(error) from error
        return json_response(200, list_members(stored, recorder.pending(), recorder.find_problem()))

    @router.get(
        PATH + "/{name}",
        responses={
            200: {"description": "The file.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
            206: {"description": "The range asked for.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
            **refusals(401, 404, 414, 416, 503),
        },
        response_class=Response,
    )
    async def download_capture(request: Request, name: str) -> Response:
        """A whole capture, as Parquet."""
        parsed = find_name(name)
        try:
            return await send_file(request, recorder.store.path(parsed))
        except FileNotFoundError as error:
            raise unknown(name, recorder.pending()) from error
        except OSError as error:
            raise unavailable(CaptureError(f"capture {parsed} cannot be read: {error.strerror}")) from error

    return router
