"""The polls of the nodes of a job: how many are asked in parallel."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import numpy as np
import pytest

from ibpulse.core.answers.samples import NPY_TYPE
from ibpulse.core.client.transport import WINDOW_HEADER, NodeArray, read_array
from ibpulse.gateway import live
from ibpulse.gateway.jobs import JobNumbers, SummarySpan, find_lateness
from ibpulse.gateway.live import GONE_NODE, MAX_ASKED, JobPolls, JobView
from ibpulse.gateway.nodes.requests import Node
from ibpulse.gateway.samples import NodeSamples
from tests.clocks import GivenClock
from tests.fleet.daemons import poll_all
from tests.fleet.hostile import Hostile, hostile
from tests.fleet.small_answers import answer_node, clock_of, jobs_of
from tests.gateway.gateways import Gateway
from tests.gateway.test_samples import START, window
from tests.loop_clock import pause


async def list_nodes(gateway: Gateway, servers: AsyncExitStack, count: int) -> list[Hostile]:
    """Nodes with one job, which have no windows."""
    nodes = [await servers.enter_async_context(hostile()) for _ in range(count)]
    for node in nodes:
        answer_node(node)
        node.answer("/api/v1/jobs", jobs_of({}))
    await gateway.list(**{f"node{number}": node.url for number, node in enumerate(nodes)})
    return nodes


async def test_at_most_so_many_nodes_are_asked_in_parallel(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    # however slow the machine is
    monkeypatch.setattr(live, "PLACE_SECONDS", 3600.0)
    asked, most = 0, 0

    async def window(writer: asyncio.StreamWriter) -> None:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        await pause(0.05)
        asked -= 1
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    async with AsyncExitStack() as servers:
        nodes = await list_nodes(gateway, servers, 2 * MAX_ASKED + 1)
        for node in nodes:
            node.handlers["/api/v1/window"] = window
        polls = JobPolls(gateway.parts, ("slurm", "7"))
        await asyncio.gather(*polls.start())
        await polls.stop()
        assert most == MAX_ASKED
        assert {node.problem[0] for node in polls.nodes.values()} == {"bad-answer"}


async def test_nodes_that_hang_do_not_keep_others_waiting(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask_patiently(node: Node, *_: object) -> NodeArray:
        return read_array(await node.get("/api/v1/window", seconds=3600))

    monkeypatch.setattr(live, "PLACE_SECONDS", 0.0)
    monkeypatch.setattr(live, "ask_samples", ask_patiently)
    released = asyncio.Event()
    asked = 0

    async def window(_: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        if asked > MAX_ASKED:
            released.set()
        await asyncio.Event().wait()

    async with AsyncExitStack() as servers:
        nodes = await list_nodes(gateway, servers, MAX_ASKED + 1)
        for node in nodes:
            node.handlers["/api/v1/window"] = window
        polls = JobPolls(gateway.parts, ("slurm", "7"))
        polls.start()
        await released.wait()
        await polls.stop()


async def test_what_is_kept_of_nodes_that_are_gone_is_bounded(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_GONE", 2)
    async with AsyncExitStack() as servers:
        nodes = await list_nodes(gateway, servers, 1)
        polls = JobPolls(gateway.parts, ("slurm", "7"))
        for number in range(1, 6):
            for data in polls.nodes.values():
                data.samples = NodeSamples(10, 61_000, ["mlx5_0:1"])
            # the same daemon under another name
            await gateway.list(**{f"node{number}": nodes[0].url})
            polls.refresh()
        found = polls.nodes
        assert list(found) == ["node3", "node4", "node5"]
        assert list(polls.job.nodes) == ["node3", "node4", "node5"]
        assert [each.samples for each in found.values()] == [None] * 3
        assert {found[name].problem for name in ("node3", "node4")} == {GONE_NODE}


async def test_a_node_on_which_a_job_has_no_ports_has_an_empty_row(tmp_path: Path) -> None:
    begin = START
    clock = GivenClock(lambda: 0.0, lambda: (begin + 2000) * 10**6)
    async with AsyncExitStack() as servers, aclosing(Gateway(tmp_path, clock=clock)) as gateway:
        full, empty = await list_nodes(gateway, servers, 2)
        empty.answer("/api/v1/jobs", jobs_of({"ports": []}))
        for node, rails in ((full, ("mlx5_0:1",)), (empty, ())):
            node.answer("/api/v1/clock", clock_of((begin + 2000) * 10**6))
            body, head = window(np.full((len(rails), 2, 200), 7e6), begin, rails).encode()
            node.answer("/api/v1/window", body, NPY_TYPE, "200 OK", f"{WINDOW_HEADER}: {head}")
        await poll_all(gateway.table)
        polls = JobPolls(gateway.parts, ("slurm", "7"))
        await asyncio.gather(*polls.start())
        view = JobView(polls, (), rails=False, version="1", begin_ms=begin)
        sent = b"".join(view.advance(begin + 2000))
        assert view.row_count == 2
        assert {name: data.samples.end_ms for name, data in polls.nodes.items() if data.samples} == dict.fromkeys(
            ("node0", "node1"), begin + 2000
        )
        values = np.array(json.loads(sent.split(b"data: ")[1].split(b"\n")[0])["megabytes_per_second"], dtype=float)
        assert not np.isnan(values[:2]).any()
        assert np.isnan(values[2:]).all()
        numbers = JobNumbers(polls.nodes, find_lateness(polls.nodes, 1000), SummarySpan(begin + 2000))
        assert view.describe_second(numbers)
