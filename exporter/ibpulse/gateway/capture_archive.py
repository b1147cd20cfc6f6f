"""The files of a capture of several nodes as one tar archive, passed on as they come."""

from __future__ import annotations

import asyncio
import tarfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from ibpulse.base.errors import DaemonError
from ibpulse.core.capture_names import MEDIA_TYPE as FILE_TYPE
from ibpulse.core.http.application import HEAD
from ibpulse.core.http.problems import ProblemError
from ibpulse.gateway.nodes.nodes import Nodes

MEDIA_TYPE = "application/x-tar"
MAX_BYTES = 16 * 2**30
# so that no node takes the place of the others
MAX_NODE_BYTES = 256 * 2**20
# for a file, without the time in which the client takes it
FILE_SECONDS = 30.0
BLOCK = tarfile.BLOCKSIZE
MISSING = "missing.txt"


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A finished capture of a node."""

    node: str
    name: str
    size_bytes: int
    trigger_ms: int


def send_archive(
    request: Request,
    nodes: Nodes,
    group: str,
    members: Sequence[ArchiveMember],
    missing: Mapping[str, str],
    places: asyncio.Semaphore,
) -> Response:
    """The response with an archive; nodes without a file are named in a member `missing.txt`.

    Raises:
        ProblemError: it would be too large.
    """
    shares: Counter[str] = Counter()
    for member in members:
        shares[member.node] += member.size_bytes
    large = {node: _say_large(share) for node, share in shares.items() if share > MAX_NODE_BYTES}
    members = [member for member in members if member.node not in large]
    total = sum(member.size_bytes for member in members)
    if total > MAX_BYTES:
        raise ProblemError(
            "too-many-values",
            422,
            f"The files have {total} bytes together; the maximum is {MAX_BYTES}. Download those of single nodes.",
            bound={"name": "max_archive_bytes", "limit": MAX_BYTES, "asked": total},
        )
    headers = {"Content-Disposition": f'attachment; filename="{group}.tar"'}
    if request.scope.get(HEAD):
        return Response(headers=headers, media_type=MEDIA_TYPE)
    if places.locked():
        raise ProblemError("too-busy", 503, "Other archives are already being sent. Try again in a few seconds.")
    return StreamingResponse(_archive(nodes, group, members, {**missing, **large}, places), 200, headers, MEDIA_TYPE)


def _say_large(size_bytes: int) -> str:
    return f"its files have {size_bytes} bytes, more than {MAX_NODE_BYTES}; download them from the node"


async def _archive(
    nodes: Nodes,
    group: str,
    members: Sequence[ArchiveMember],
    missing: Mapping[str, str],
    places: asyncio.Semaphore,
) -> AsyncIterator[bytes]:
    reasons = dict(missing)
    async with places:
        for member in members:
            sent = 0
            try:
                async with aclosing(_file(nodes, member)) as parts:
                    async for part in parts:
                        if not sent:
                            yield _head(f"{group}/{member.node}/{member.name}", member.size_bytes, member.trigger_ms)
                        sent += len(part)
                        yield part
            except DaemonError as error:
                if sent:
                    # the archive cannot be continued; the client sees that the response breaks off
                    raise
                reasons[member.node] = str(error)
                continue
            yield bytes(-sent % BLOCK)
        if reasons:
            text = "".join(f"{node}: {reason}\n" for node, reason in sorted(reasons.items())).encode()
            yield _head(f"{group}/{MISSING}", len(text), 0) + text + bytes(-len(text) % BLOCK)
        yield bytes(2 * BLOCK)


async def _file(nodes: Nodes, member: ArchiveMember) -> AsyncGenerator[bytes, None]:
    """The parts of a file, which has as many bytes as it was listed with.

    Raises:
        DaemonError: it has others, or the node does not give it.
    """
    node = nodes.get(member.node)
    if node is None:
        raise DaemonError("its source no longer lists it")
    left = member.size_bytes
    async with aclosing(node.stream(f"/api/v1/captures/{member.name}", (), FILE_TYPE)) as parts:
        async for part in _in_time(parts):
            left -= len(part)
            if left < 0:
                raise DaemonError("its file is longer than it was listed")
            if part:
                yield part
    if left:
        raise DaemonError("its file is shorter than it was listed")


async def _in_time(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The parts of a file.

    Raises:
        DaemonError: the node takes too long for all of them.
    """
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
