"""The table of nodes over nodes of this process and hostile servers, and the memory of a polled node."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import bcrypt
import httpx
import pytest

from ibpulse.base.internal_errors import GATEWAY_PARTS, InternalErrors
from ibpulse.core.client.transport import HttpPeer, PeerAnswer
from ibpulse.core.http.web_config import WebConfigReloader
from ibpulse.gateway.nodes import table
from ibpulse.gateway.nodes.discovery import Discovery, NodeConfigFile, parse_source
from ibpulse.gateway.nodes.requests import Node, NodeFigures, Nodes
from ibpulse.gateway.nodes.table import NodeState, NodeTable, PolledNode
from ibpulse.gateway.nodes.targets import Target
from tests.clocks import GivenClock
from tests.fleet.daemons import BEGIN_NS, LOOP_CLOCK, Daemon, poll_all, running
from tests.fleet.hostile import Hostile, endless, endless_gzip, hostile
from tests.fleet.small_answers import PORT, PORTS, answer_node, clock_of, ports_of
from tests.loop_clock import until


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    async with running(tmp_path / "open", "open") as made:
        yield made


class Fleet:
    """A table over nodes that are listed in a file."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "nodes.json"
        self.secret = directory / "nodes.yml"
        self.secret.write_text("basic_auth: {username: ops, password: secret}")
        self.config = NodeConfigFile(self.secret)
        self.discovery = Discovery([parse_source(str(self.path))], self.config, clock=LOOP_CLOCK)
        self.nodes = Nodes(partial(HttpPeer, clock=LOOP_CLOCK))
        self.errors = InternalErrors(parts=GATEWAY_PARTS)
        self.table = NodeTable(self.discovery, self.nodes, self.errors, LOOP_CLOCK)

    async def list(self, **urls: str) -> None:
        self.path.write_text(json.dumps([{"targets": [url], "labels": {"node": name}} for name, url in urls.items()]))
        await self.discovery.refresh()
        assert self.discovery.problems == ()

    async def poll(self) -> dict[str, NodeState]:
        await poll_all(self.table)
        return {row.name: row for row in self.table.rows()}


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    await made.nodes.close()


async def test_corrected_passwords_are_used(fleet: Fleet, tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users: {{ops: '{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}'}}\n")
    fleet.secret.write_text("basic_auth: {username: ops, password: wrong}")
    async with running(tmp_path / "closed", "closed", web_config=WebConfigReloader(config)) as daemon:
        await fleet.list(closed=daemon.url)
        row = (await fleet.poll())["closed"]
        assert (row.state, row.problem.partition(";")[0]) == ("down", "it asks for a password")
        fleet.secret.write_text("basic_auth: {username: ops, password: secret}")
        await fleet.discovery.refresh()
        assert (await fleet.poll())["closed"].state == "up"


async def test_lying_clocks_harm_only_their_node(fleet: Fleet, server: Hostile, daemon: Daemon) -> None:
    answer_node(server)
    server.answer("/api/v1/clock", clock_of(2**63 - 1))
    await fleet.list(open=daemon.url, bad=server.url)
    rows = await fleet.poll()
    assert rows["bad"].state == "up"
    assert rows["open"].offset is not None
    assert rows["open"].offset.offset_ns == 0
    server.answer("/api/v1/clock", b'{"node": "n", "synchronised": null, "time_ns": 1e400}')
    row = (await fleet.poll())["bad"]
    assert row.state == "degraded"
    assert row.problem.startswith("its clock cannot be read: its answer is not as expected: time_ns ")


async def test_unreadable_jobs_keep_ports_and_last_jobs(fleet: Fleet, server: Hostile) -> None:
    answer_node(server)
    await fleet.list(n=server.url)
    before = (await fleet.poll())["n"]
    assert (before.state, before.jobs and before.jobs.known) == ("up", True)
    server.answer("/api/v1/jobs", b'{"known": "yes", "jobs": []}')
    server.answer("/api/v1/ports", PORTS.replace(b'"ACTIVE"', b'"INIT"'))
    row = (await fleet.poll())["n"]
    assert (row.state, row.jobs) == ("degraded", before.jobs)
    assert row.problem.startswith("its jobs cannot be read: its answer is not as expected: known 'yes' is not true or")
    assert {port.state for port in row.ports.ports} == {"INIT"}


async def test_nodes_come_and_go_with_the_list(fleet: Fleet, daemon: Daemon, server: Hostile) -> None:
    await fleet.list(a=daemon.url, b=server.url)
    assert [*await fleet.poll()] == ["b", "a"]
    await fleet.list(a=daemon.url)
    fleet.table.update()
    (row,) = fleet.table.rows()
    assert (row.name, row.state) == ("a", "up")
    # the same name at another address is another node
    await fleet.list(a=server.url)
    fleet.table.update()
    (row,) = fleet.table.rows()
    assert (row.state, row.ports, row.offset) == ("waiting", None, None)
    assert fleet.table.row("a") == row
    assert fleet.table.row("b") is None


async def test_rails_with_problems_degrade_their_node(fleet: Fleet, server: Hostile) -> None:
    cases = {
        "down": ({"active": False, "state": "DOWN"}, "mlx5_0:1 is not ACTIVE"),
        "unread": ({"active": False, "problem": "its files cannot be read"}, "no samples of mlx5_0:1"),
        "other": ({"active": False, "rail": False}, ""),
    }
    for name, (change, _) in cases.items():
        answer_node(server, f"/{name}")
        server.answer(f"/{name}/api/v1/ports", ports_of({**PORT, **change}))
    await fleet.list(**{name: f"{server.url}/{name}" for name in cases})
    rows = await fleet.poll()
    assert {name: row.problem for name, row in rows.items()} == {name: text for name, (_, text) in cases.items()}
    assert {name: row.state for name, row in rows.items()} == {"down": "degraded", "unread": "degraded", "other": "up"}


def kept() -> Counter[str]:
    """Objects that would be more after each bad answer if anything kept them, by type, and open descriptors."""
    gc.collect()
    types = (HttpPeer, Node, PolledNode, PeerAnswer, asyncio.Task, asyncio.BaseTransport, httpx.Response, bytearray)
    found = Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, types))
    large = Counter("large" for each in gc.get_objects() if isinstance(each, list | dict) and len(each) > 10_000)
    return found + large + Counter(descriptors=len(os.listdir("/proc/self/fd")))


@pytest.fixture
def frozen() -> Iterator[None]:
    """What there was before a test is not looked at."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
async def test_bad_answers_and_gone_nodes_leave_no_memory(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    # of each error that asyncio logs about the server of this test, pytest keeps the frames
    caplog.set_level(logging.CRITICAL, "asyncio")
    async with hostile() as one, hostile() as other:
        for server in (one, other):
            server.answer("/html/api/v1/ports", b"<html>" * 10_000, "text/html")
            server.handlers["/huge/api/v1/ports"] = endless
            server.handlers["/bomb/api/v1/ports"] = endless_gzip
            server.answer("/wrong/api/v1/ports", b'{"interval_seconds": 1, "ports": [%s0]}' % (b"0," * 100_000))
            answer_node(server, "/ports")
        kinds = ("html", "huge", "bomb", "wrong", "ports", "none")
        counts = []
        for number in range(6):
            # the same names at other addresses are other nodes
            server = (one, other)[number % 2]
            await fleet.list(**{kind: f"{server.url}/{kind}" for kind in kinds})
            await fleet.poll()
            await fleet.list()
            fleet.table.update()
            await until(lambda: not one.open and not other.open)
            counts.append(kept())
    assert counts[-1] == counts[1]


async def test_polls_are_spread_and_hung_nodes_asked_once(
    fleet: Fleet, server: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "POLL_SECONDS", 0.4)
    loop = asyncio.get_running_loop()
    names = [f"n{number}" for number in range(8)]
    times: dict[str, list[float]] = {name: [] for name in names}
    for name in names:

        def handler(writer: asyncio.StreamWriter, name: str = name) -> asyncio.Future[None]:
            times[name].append(loop.time())
            if name == "n7":
                return asyncio.ensure_future(asyncio.Event().wait())
            writer.write(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
            return asyncio.ensure_future(asyncio.sleep(0))

        server.handlers[f"/{name}/api/v1/ports"] = handler
    await fleet.list(**{name: f"{server.url}/{name}" for name in names})
    begin = loop.time()
    task = asyncio.create_task(fleet.table.run())
    await until(lambda: len(times["n7"]) >= 2 or task.done())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [times[name][0] - begin for name in names] == pytest.approx([0.05 * place for place in range(8)])
    # the poll that hung ended after a second, amid the third period, and the others were asked in the meantime
    assert times["n7"][1] - times["n7"][0] == pytest.approx(1.2)
    assert all(len([one for one in times[name] if one < times["n7"][1]]) == 4 for name in names[:7])
    assert [task for task in asyncio.all_tasks() if "NodeTable._poll" in repr(task.get_coro())] == []


async def test_a_replaced_pod_has_its_name_as_soon_as_the_old_one_is_silent(fleet: Fleet) -> None:
    loop, seen = asyncio.get_running_loop(), set()

    def shows(url: str) -> bool:
        rows = fleet.table.rows()
        seen.update(row.name for row in rows)
        return [(row.target.url, row.state) for row in rows] == [(url, "up")]

    async with hostile() as new, AsyncExitStack() as life:
        old = await life.enter_async_context(hostile())
        for server in (old, new):
            answer_node(server, "")
        fleet.path.write_text(json.dumps([{"targets": [old.url]}]))
        tasks = [asyncio.create_task(each.run()) for each in (fleet.discovery, fleet.table)]
        await until(lambda: shows(old.url))
        await life.aclose()
        fleet.path.write_text(json.dumps([{"targets": [new.url]}]))
        began = loop.time()
        await until(lambda: shows(new.url))
        assert loop.time() - began <= table.POLL_SECONDS + table.MEET_SECONDS
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert seen == {"gpu-1"}


async def test_an_internal_error_takes_down_only_its_node(
    fleet: Fleet, server: Hostile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read = PolledNode._read_figures

    async def break_one(polled: PolledNode, node: Node) -> None:
        if node.name == "b":
            raise ZeroDivisionError
        await read(polled, node)

    monkeypatch.setattr(PolledNode, "_read_figures", break_one)
    for name in "ab":
        answer_node(server, f"/{name}")
    await fleet.list(**{name: f"{server.url}/{name}" for name in "ab"})
    rows = {name: (row.state, row.problem, row.kind) for name, row in (await fleet.poll()).items()}
    assert rows == {
        "a": ("up", "", None),
        "b": ("down", "internal error of the gateway; see its log", "bad-answer"),
    }
    assert "internal error in nodes (b): ZeroDivisionError; retrying" in caplog.text


@pytest.fixture
def now() -> dict[str, float]:
    return {"seconds": 100.0}


@pytest.fixture
def polled(now: dict[str, float]) -> PolledNode:
    clock = GivenClock(lambda: now["seconds"], lambda: BEGIN_NS + round(now["seconds"] * 1e9))
    return PolledNode(Target("a", "http://127.0.0.1:10055"), clock)


def test_rails_are_idle_since_their_last_seen_traffic(
    polled: PolledNode, now: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([("mlx5_0:1",), (), ("mlx5_0:1",), ("mlx5_0:1", "mlx5_1:1"), ()])

    async def ask(_: object) -> NodeFigures:
        return NodeFigures("1.2.3", next(answers))

    monkeypatch.setattr(table, "ask_figures", ask)
    found = []
    for _ in range(5):
        polled._polls = 0
        asyncio.run(polled._read_figures(None))  # type: ignore[arg-type]
        since_ns = polled.state.idle_since_ns
        found.append(None if since_ns is None else (since_ns - BEGIN_NS) / 1e9)
        now["seconds"] += 30
    # at first nothing is known of before
    assert found == [None, None, 160.0, 160.0, None]
