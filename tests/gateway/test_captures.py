"""Archives of captures over nodes that are slow, lie about sizes, or are gone."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator

import pytest
from fastapi import Request
from starlette.responses import StreamingResponse

from ibpulse.base.errors import DaemonError
from ibpulse.core.answers.jobs import CapturesAnswer, StoredAnswer
from ibpulse.core.captures import MEDIA_TYPE
from ibpulse.core.client.transport import NodeAccess
from ibpulse.gateway import captures
from ibpulse.gateway.captures import MAX_NODE_BYTES, members_of, send_archive
from ibpulse.gateway.nodes.requests import Nodes
from ibpulse.gateway.nodes.targets import make_target
from tests.fleet.hostile import Hostile, never
from tests.fleet.small_answers import answer_node, capture_of, captures_of
from tests.gateway.gateways import Gateway

GROUP, FILE = "job0123456789", "20261123T053000.123Z-job0123456789-1f6c0a2e.parquet"
CONTENT = b"PAR1" + bytes(1000) + b"PAR1"


@pytest.fixture
async def nodes(server: Hostile) -> AsyncIterator[Nodes]:
    found = Nodes()
    names = ("good", "slow", "large", "short")
    targets = [make_target(f"{server.url}/{name}", {"node": name}) for name in names]
    found.update(targets, NodeAccess())
    server.answer(f"/good/api/v1/captures/{FILE}", CONTENT, MEDIA_TYPE)
    server.answer(f"/short/api/v1/captures/{FILE}", CONTENT, MEDIA_TYPE)
    yield found
    await found.close()


def stored(size_bytes: int) -> StoredAnswer:
    content = captures_of(capture_of(FILE, reason=GROUP, size_bytes=size_bytes))
    return CapturesAnswer.model_validate_json(content).captures[0]


async def read(nodes: Nodes, **sizes: int) -> dict[str, bytes]:
    """The files of the archive of nodes that list their files with these sizes."""
    members = {name: stored(size) for name, size in sizes.items()}
    answer = send_archive(Request({"type": "http"}), nodes, GROUP, members, {"down": "no answer"}, asyncio.Semaphore())
    assert isinstance(answer, StreamingResponse)
    content = b"".join([part async for part in answer.body_iterator])  # type: ignore[misc]
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]


async def test_an_archive_waits_for_no_node_and_has_no_more_than_its_share(
    nodes: Nodes, server: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captures, "FILE_SECONDS", 0.3)

    async def hang(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Length: 1000\r\n\r\n".encode())
        await writer.drain()
        await never(writer)

    server.handlers[f"/slow/api/v1/captures/{FILE}"] = hang
    files = await read(nodes, good=len(CONTENT), slow=1000, large=MAX_NODE_BYTES + 1, gone=5)
    assert files.keys() == {f"{GROUP}/good/{FILE}", f"{GROUP}/missing.txt"}
    assert files[f"{GROUP}/good/{FILE}"] == CONTENT
    missing = dict(line.split(": ", 1) for line in files[f"{GROUP}/missing.txt"].decode().splitlines())
    assert missing.keys() == {"down", "gone", "large", "slow"}
    assert missing["slow"] == "its file did not come within 0.3 s"
    assert missing["large"].startswith(f"its file has {MAX_NODE_BYTES + 1} bytes, more than")


async def test_a_longer_file_than_listed_is_missing_and_a_shorter_one_breaks_the_archive_off(nodes: Nodes) -> None:
    files = await read(nodes, good=len(CONTENT), short=len(CONTENT) - 1)
    assert f"{GROUP}/short/{FILE}" not in files
    assert b"short: its file is longer than it was listed\n" in files[f"{GROUP}/missing.txt"]
    with pytest.raises(DaemonError, match="its file is shorter than it was listed"):
        await read(nodes, good=len(CONTENT), short=len(CONTENT) + 1)


def test_a_node_has_one_file_of_a_group_whatever_it_lists() -> None:
    capture = capture_of(FILE, reason=GROUP, size_bytes=5)
    many = [{**capture, "size_bytes": size} for size in range(1, 1000)]
    other = {**capture, "reason": "job9876543210"}
    listed = {"b": [other, capture], "a": many, "c": [other]}
    answers = {node: CapturesAnswer.model_validate_json(captures_of(*files)) for node, files in listed.items()}
    assert {node: file.size_bytes for node, file in members_of(answers, GROUP).items()} == {"a": 1, "b": 5}


async def test_captures_of_a_job_that_no_node_knows_any_more_are_found(gateway: Gateway, server: Hostile) -> None:
    answer_node(server)
    word = f"job{hashlib.sha256(b'slurm:7').hexdigest()[:5]}00000"
    times = dict.fromkeys(("began_ms", "began_uncertainty_ms", "ended_ms", "ended_uncertainty_ms"), 1)
    job = {"job_id": "7", "scheduler": "slurm", "name": "", "namespace": "", "ports": [], **times}
    server.answer(
        "/api/v1/captures",
        captures_of(
            capture_of(FILE, reason=f"late-{word}", size_bytes=5),
            capture_of(FILE, reason="link-down", jobs=[job]),
            capture_of(FILE, reason=GROUP),
        ),
    )
    await gateway.list(node=server.url)
    found = (await gateway.client.get("/api/v1/jobs/slurm:7/captures")).json()
    assert [(each["id"], each["reason"], each["size_bytes"]) for each in found["captures"]] == [(word, "late", 5)]
    assert [each["reason"] for each in found["single"]] == ["link-down"]
    assert (await gateway.client.get("/api/v1/jobs/slurm:8/captures")).status_code == 404
    assert (await gateway.client.get(f"/api/v1/jobs/slurm:7/captures/{GROUP}")).status_code == 404
