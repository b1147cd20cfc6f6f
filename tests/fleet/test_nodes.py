"""Requests to many nodes: in parallel within bounds, answers as they come, and a reason for each missing one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from ibpulse.base.errors import DaemonError
from ibpulse.core.client.transport import MAX_CONNECTIONS, NodeAccess
from ibpulse.gateway.nodes.requests import MAX_PARALLEL, Node, Nodes
from ibpulse.gateway.nodes.targets import Target
from tests.fleet.hostile import Hostile, never
from tests.loop_clock import pause, until

PLAIN = NodeAccess()


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    made = Nodes()
    yield made
    await made.close()


def listed(server: Hostile, *names: str) -> list[Target]:
    return [Target(name, f"{server.url}/{name}") for name in names]


async def ask(node: Node) -> bytes:
    return (await node.get("/x")).body


async def test_answers_come_early_and_missing_nodes_have_reasons(server: Hostile, nodes: Nodes) -> None:
    async def late(writer: asyncio.StreamWriter) -> None:
        await pause(0.3)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")

    server.handlers["/slow/x"], server.handlers["/hung/x"] = late, never
    server.answer("/quick/x", b"quick")
    nodes.update(listed(server, "hung", "slow", "gone", "quick"), PLAIN)
    came = [(node.name, str(found)) async for node, found in nodes.ask_each(nodes.all(), ask, 0.7)]
    assert sorted(came[:2]) == [("gone", "it refuses with 404"), ("quick", "b'quick'")]
    assert came[2:] == [("slow", "b'late'"), ("hung", "no answer within the 0.7 s of the whole request")]
    found = await nodes.ask_all(nodes.all(), ask)
    assert found.answers == {"quick": b"quick", "slow": b"late"}
    assert found.missing == {"gone": "it refuses with 404", "hung": "no answer within 1 s"}


async def test_at_most_64_requests_run_in_parallel(server: Hostile, nodes: Nodes) -> None:
    running, most = 0, 0

    async def count(writer: asyncio.StreamWriter) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await pause(0.05)
        running -= 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    targets = listed(server, *(f"n{number}" for number in range(200)))
    server.handlers.update({f"/{target.name}/x": count for target in targets})
    nodes.update(targets, PLAIN)
    each = nodes.ask_each(nodes.all(), lambda node: node.get("/x", seconds=60), 60)
    assert [answer async for _, answer in each if isinstance(answer, DaemonError)] == []
    assert most == MAX_PARALLEL


async def test_readers_that_leave_early_leave_no_tasks(server: Hostile, nodes: Nodes) -> None:
    server.handlers["/hung/x"] = never
    server.answer("/quick/x", b"quick")
    nodes.update(listed(server, "hung", "quick"), PLAIN)
    each = nodes.ask_each(nodes.all(), ask)
    assert (await anext(each))[1] == b"quick"
    await each.aclose()
    assert [task for task in asyncio.all_tasks() if "_ask" in repr(task.get_coro())] == []


async def test_internal_errors_are_not_faults_of_nodes(server: Hostile, nodes: Nodes) -> None:
    async def broken(_: Node) -> bytes:
        raise ZeroDivisionError

    nodes.update(listed(server, "a"), PLAIN)
    with pytest.raises(ZeroDivisionError):
        await nodes.ask_all(nodes.all(), broken)


async def test_unchanged_nodes_keep_their_connections(server: Hostile, nodes: Nodes) -> None:
    server.answer("/a/x", b"1")
    nodes.update(listed(server, "a", "b"), PLAIN)
    first = nodes.get("a")
    await first.get("/x")
    nodes.update([Target("a", f"{server.url}/a", {"rack": "r"})], PLAIN)
    assert nodes.get("a") is first
    assert (first.target.labels, len(nodes), nodes.get("b")) == ({"rack": "r"}, 1, None)
    await first.get("/x")
    assert server.connections == 1
    nodes.update(listed(server, "a"), NodeAccess(authorization="Basic eDp5"))
    assert nodes.get("a") is not first


async def test_requests_count_once_by_outcome(server: Hostile, nodes: Nodes) -> None:
    server.answer("/a/x", b"1")
    server.answer("/a/secret", b"", "text/html", "401 No")
    server.send("/a/broken", b"SSH\r\n\r\n")
    server.handlers["/a/hung"] = never
    nodes.update(listed(server, "a"), PLAIN)
    (node,) = nodes.all()
    outcomes = {"x": "answered", "secret": "refused", "gone": "bad-answer", "broken": "no-answer", "hung": "no-answer"}
    for path, outcome in outcomes.items():
        for ask_one in (node.get(f"/{path}", seconds=0.5), node.post(f"/{path}", b"{}", seconds=0.5)):
            before = nodes.outcomes.copy()
            found = await asyncio.gather(ask_one, return_exceptions=True)
            assert nodes.outcomes - before == {outcome: 1}, found


async def test_streams_count_once_by_their_begin(server: Hostile, nodes: Nodes) -> None:
    async def broken_later(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await writer.drain()
        writer.close()

    server.handlers["/a/x"] = broken_later
    server.answer("/a/empty", b"", "a/b")
    nodes.update(listed(server, "a"), PLAIN)
    (node,) = nodes.all()
    for path, outcome in {"x": "answered", "empty": "answered", "gone": "bad-answer"}.items():
        before = nodes.outcomes.copy()
        found = bytearray()
        with suppress(DaemonError):
            async for part in node.stream(f"/{path}", (), "a/b"):
                found += part
        assert nodes.outcomes - before == {outcome: 1}
        assert found == (b"x" if path == "x" else b"")


async def test_hung_nodes_free_their_places_and_leave_them_to_others(server: Hostile, nodes: Nodes) -> None:
    server.handlers["/hung/x"] = never
    server.answer("/a/x", b"1")
    nodes.update(listed(server, "hung", "a"), PLAIN)
    hung = nodes.get("hung")
    many = [asyncio.create_task(hung.get("/x", seconds=0.2)) for _ in range(150)]
    results = await asyncio.gather(*many, return_exceptions=True)
    assert all(isinstance(found, DaemonError) for found in results)
    assert (await nodes.ask_all(nodes.all(), ask)).answers == {"a": b"1"}
    server.answer("/quick/x", b"quick")
    nodes.update(listed(server, "hung", "quick"), PLAIN)
    hung, quick = nodes.get("hung"), nodes.get("quick")
    waiting = [asyncio.create_task(hung.get("/x", seconds=60)) for _ in range(2 * MAX_PARALLEL)]
    await until(lambda: len(server.asked) >= MAX_CONNECTIONS)
    assert (await asyncio.wait_for(quick.get("/x"), 30)).body == b"quick"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
