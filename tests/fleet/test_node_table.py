"""The table of nodes over real daemons, and over servers that answer what no daemon would."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import bcrypt
import pytest

from ibpulse.fleet import node_table
from ibpulse.fleet.discovery import Discovery
from ibpulse.fleet.node_answers import NodePorts, ask_node
from ibpulse.fleet.node_config import NodeConfigFile
from ibpulse.fleet.node_table import NodeState, NodeTable
from ibpulse.fleet.nodes import Nodes
from ibpulse.fleet.span_answers import NodeCaptures, NodeEvents, NodeSpanSummary
from ibpulse.fleet.target_sources import parse_source
from ibpulse.fleet.window_answers import read_array, read_window
from tests.daemon.fabrics import simulated
from tests.fleet.hostile import Hostile, bomb, drip, endless, hostile, never
from tests.running import Running

RELEASED = Path(__file__).parents[1] / "upgrade" / "released"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Running]]:
    """A node without a password, one with, and one whose ring is its own too."""
    directory = tmp_path_factory.mktemp("fleet")
    config = directory / "web.yml"
    config.write_text(f"basic_auth_users: {{ops: '{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}'}}\n")
    with ExitStack() as stack:
        tree = stack.enter_context(simulated(directory / "sys", "dense", ports=2))
        found = {}
        for name, flags in (("open", ()), ("closed", (f"--web.config.file={config}",)), ("frozen", ())):
            daemon = Running(tree, directory / name / "ring", *flags)
            (directory / name).mkdir()
            daemon.http = {"auth": ("ops", "secret")} if flags else {}
            found[name] = stack.enter_context(daemon)
        yield found


@pytest.fixture
async def server() -> AsyncIterator[Hostile]:
    async with hostile() as state:
        yield state


class Fleet:
    """A table over nodes that are listed in a file."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "nodes.json"
        self.secret = directory / "nodes.yml"
        self.secret.write_text("basic_auth: {username: ops, password: secret}")
        self.config = NodeConfigFile(self.secret)
        self.discovery = Discovery([(parse_source(str(self.path)), self.config)])
        self.nodes = Nodes()
        self.table = NodeTable(self.discovery, self.nodes)

    async def list(self, **urls: str) -> None:
        self.path.write_text(json.dumps([{"targets": [url], "labels": {"node": name}} for name, url in urls.items()]))
        await self.discovery.refresh()
        assert self.discovery.problems == ()

    async def poll(self) -> dict[str, NodeState]:
        await self.table.poll_all()
        return {row.name: row for row in self.table.rows()}


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    await made.nodes.close()


async def test_real_daemons_are_up_with_ports_jobs_version_and_offset(
    fleet: Fleet, daemons: dict[str, Running]
) -> None:
    await fleet.list(**{name: daemon.url for name, daemon in daemons.items()})
    for _ in range(3):
        rows = await fleet.poll()
    assert {name: (row.state, row.problem) for name, row in rows.items()} == dict.fromkeys(daemons, ("up", ""))
    for row in rows.values():
        assert row.ports is not None
        assert [port.name for port in row.ports.ports] == ["mlx5_0:1", "mlx5_1:1"]
        assert row.ports.simulated is True
        assert row.jobs is not None
        assert row.figures.line_rate == 200e9
        assert row.figures.version is not None
        assert row.clock is not None
        assert row.seen_ns is not None
        assert abs(time.time_ns() - row.seen_ns) < 10e9
        # all on this machine, so the true offset is 0
        assert row.offset is not None
        assert abs(row.offset.offset_ns) <= row.offset.uncertainty_ns < 20_000_000


async def test_every_answer_of_a_real_daemon_is_read(fleet: Fleet, daemons: dict[str, Running]) -> None:
    await fleet.list(open=daemons["open"].url)
    await fleet.poll()
    (node,) = fleet.nodes.all()
    assert (await ask_node(node, NodeSpanSummary, "/api/v1/summary", [("last", "1s")])).node.rails == 2
    assert (await ask_node(node, NodeEvents, "/api/v1/events")).events[0].kind == "started"
    assert (await ask_node(node, NodeCaptures, "/api/v1/captures")).captures == []
    assert read_window(await node.get("/api/v1/window", [("last", "500ms")])).points == 50
    array = read_array(await node.get("/api/v1/window", [("last", "500ms"), ("format", "npy")]))
    assert array.values.shape == (4, 50)


async def test_a_wrong_password_is_said_and_a_corrected_one_is_used(fleet: Fleet, daemons: dict[str, Running]) -> None:
    fleet.secret.write_text("basic_auth: {username: ops, password: wrong}")
    await fleet.list(closed=daemons["closed"].url)
    row = (await fleet.poll())["closed"]
    assert row.state == "down"
    assert row.problem == "it asks for a password; is the one in the node configuration file of its source right?"
    fleet.secret.write_text("basic_auth: {username: ops, password: secret}")
    await fleet.discovery.refresh()
    assert (await fleet.poll())["closed"].state == "up"


async def test_a_node_that_stops_answering_keeps_its_last_answers_and_comes_back(
    fleet: Fleet, daemons: dict[str, Running]
) -> None:
    await fleet.list(open=daemons["open"].url, frozen=daemons["frozen"].url)
    before = (await fleet.poll())["frozen"]
    daemons["frozen"].signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        rows = await fleet.poll()
        assert time.monotonic() - begin < 2.5
    finally:
        daemons["frozen"].signal(signal.SIGCONT)
    assert [row.name for row in fleet.table.rows()] == ["frozen", "open"]
    assert (rows["frozen"].state, rows["frozen"].problem) == ("down", "no answer within 1 s")
    assert (rows["frozen"].ports, rows["frozen"].seen_ns) == (before.ports, before.seen_ns)
    assert (await fleet.poll())["frozen"].state == "up"


async def test_a_daemon_of_0_1_has_no_offset_and_no_jobs(fleet: Fleet, server: Hostile) -> None:
    server.answer("/api/v1/ports", (RELEASED / "ports.json").read_bytes())
    server.answer("/metrics", b'ibpulse_build_info{version="0.1.0",python="3.11.7"} 1\n', "text/plain")
    await fleet.list(old=server.url)
    row = (await fleet.poll())["old"]
    assert (row.state, row.offset, row.clock, row.jobs) == ("up", None, None, None)
    assert (row.figures.version, row.figures.line_rate) == ("0.1.0", None)
    assert row.ports is not None
    assert [port.role for port in row.ports.ports] == ["compute", "compute"]


HOSTILE: dict[str, tuple[Callable[[Hostile], None], str]] = {
    "html": (lambda s: s.answer("/api/v1/ports", b"<script>alert(1)</script>", "text/html"), "'text/html', not JSON"),
    "types": (lambda s: s.answer("/api/v1/ports", b'{"interval_seconds":"x"}'), "interval_seconds 'x' is not a number"),
    "redirect": (lambda s: s.answer("/api/v1/ports", b"", "x/y", "302 Found", "Location: /"), "it redirects"),
    "huge": (lambda s: s.handlers.update({"/api/v1/ports": endless}), "longer than 1000000 bytes"),
    "slow": (lambda s: s.handlers.update({"/api/v1/ports": drip}), "no answer within 1 s"),
    "hung": (lambda s: s.handlers.update({"/api/v1/ports": never}), "no answer within 1 s"),
    "bomb": (
        lambda s: s.answer("/api/v1/ports", bomb(), "application/json", "200 OK", "Content-Encoding: gzip"),
        "its answer is compressed",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_hostile_node_is_down_with_a_sentence_and_the_others_are_not(
    fleet: Fleet, server: Hostile, daemons: dict[str, Running], kind: str
) -> None:
    make, reason = HOSTILE[kind]
    make(server)
    await fleet.list(open=daemons["open"].url, bad=server.url)
    begin = time.monotonic()
    rows = await fleet.poll()
    assert time.monotonic() - begin < 2.5
    assert (rows["open"].state, rows["bad"].state) == ("up", "down")
    assert reason in rows["bad"].problem
    assert "<script>" not in rows["bad"].problem


async def test_a_lying_clock_harms_only_its_own_node(
    fleet: Fleet, server: Hostile, daemons: dict[str, Running]
) -> None:
    server.answer("/api/v1/ports", (RELEASED / "ports.json").read_bytes())
    server.answer("/metrics", b"", "text/plain")
    server.answer("/api/v1/clock", b'{"time_ns": 9223372036854775807, "synchronised": true}')
    await fleet.list(open=daemons["open"].url, bad=server.url)
    rows = await fleet.poll()
    assert rows["bad"].state == "up"
    assert rows["open"].offset is not None
    assert abs(rows["open"].offset.offset_ns) < 20_000_000
    server.answer("/api/v1/clock", b'{"time_ns": 1e400}')
    row = (await fleet.poll())["bad"]
    assert row.state == "degraded"
    assert row.problem.startswith("its clock cannot be read: its answer is not as expected: time_ns ")


async def test_a_node_whose_jobs_cannot_be_read_keeps_its_ports_and_last_jobs(fleet: Fleet, server: Hostile) -> None:
    ports = (RELEASED / "ports.json").read_bytes()
    server.answer("/api/v1/ports", ports)
    server.answer("/metrics", b"", "text/plain")
    server.answer("/api/v1/jobs", b'{"known": true, "jobs": []}')
    await fleet.list(n=server.url)
    before = (await fleet.poll())["n"]
    assert (before.state, before.jobs and before.jobs.known) == ("up", True)
    server.answer("/api/v1/jobs", b'{"known": "yes", "jobs": []}')
    server.answer("/api/v1/ports", ports.replace(b'"ACTIVE"', b'"INIT"'))
    row = (await fleet.poll())["n"]
    assert (row.state, row.jobs) == ("degraded", before.jobs)
    assert row.problem.startswith("its jobs cannot be read: its answer is not as expected: known 'yes' is not true or")
    assert row.ports is not None
    assert {port.state for port in row.ports.ports} == {"INIT"}


async def test_a_clock_that_is_ahead_is_measured_and_its_step_noticed(fleet: Fleet, server: Hostile) -> None:
    ahead_ns = 20_000_000

    async def tell(writer: asyncio.StreamWriter) -> None:
        # the way back is the longer one
        body = b'{"time_ns": %d}' % (time.time_ns() + ahead_ns)
        await asyncio.sleep(0.004)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)

    server.answer("/api/v1/ports", (RELEASED / "ports.json").read_bytes())
    server.answer("/metrics", b"", "text/plain")
    server.handlers["/api/v1/clock"] = tell
    await fleet.list(n=server.url)
    for steps, ahead_ns in ((0, 20_000_000), (1, 620_000_000)):
        for _ in range(5):
            row = (await fleet.poll())["n"]
        assert row.clock_steps == steps
        assert row.offset is not None
        assert abs(row.offset.offset_ns - ahead_ns) <= row.offset.uncertainty_ns < 100_000_000
        assert row.clock is not None
        assert row.clock.synchronised is None


async def test_nodes_come_and_go_with_the_list(fleet: Fleet, daemons: dict[str, Running], server: Hostile) -> None:
    await fleet.list(a=daemons["open"].url, b=server.url)
    assert [*await fleet.poll()] == ["b", "a"]
    await fleet.list(a=daemons["open"].url)
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


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"active": False, "state": "DOWN"}, "mlx5_0:1 is not ACTIVE"),
        ({"active": False, "problem": "its files cannot be read"}, "no samples of mlx5_0:1"),
        ({"active": False, "rail": False}, ""),
    ],
)
async def test_rails_with_problems_degrade_their_node(
    fleet: Fleet, server: Hostile, change: dict[str, object], problem: str
) -> None:
    document = json.loads((RELEASED / "ports.json").read_bytes())
    document["ports"][0].update(change)
    server.answer("/api/v1/ports", json.dumps(document).encode())
    server.answer("/metrics", b"", "text/plain")
    await fleet.list(n=server.url)
    row = (await fleet.poll())["n"]
    assert (row.state, row.problem) == ("degraded" if problem else "up", problem)


async def test_descriptors_and_memory_are_where_they_were_after_many_bad_answers(fleet: Fleet) -> None:
    async with hostile() as one, hostile() as other:
        one.answer("/html/api/v1/ports", b"<html>" * 10_000, "text/html")
        one.handlers["/huge/api/v1/ports"] = endless
        one.answer("/bomb/api/v1/ports", bomb(), "application/json", "200 OK", "Content-Encoding: gzip")
        one.answer("/ports/api/v1/ports", (RELEASED / "ports.json").read_bytes())
        kinds = ("html", "huge", "bomb", "ports", "none")
        tracemalloc.start()
        counts = []
        for round_ in range(40):
            server = (one, other)[round_ % 2]
            await fleet.list(**{kind: f"{server.url}/{kind}" for kind in kinds})
            await fleet.poll()
            await asyncio.sleep(0)
            counts.append((len(os.listdir("/proc/self/fd")), tracemalloc.get_traced_memory()[0]))
        tracemalloc.stop()
    (early, used_early), (late, used_late) = counts[9], counts[39]
    assert late <= early + 2
    assert used_late < used_early + 1_000_000


async def test_polls_are_spread_evenly_and_a_hung_node_is_not_asked_twice(
    fleet: Fleet, server: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_table, "POLL_SECONDS", 0.8)
    names = [f"n{number}" for number in range(8)]
    times: dict[str, list[float]] = {name: [] for name in names}
    for name in names:

        def handler(writer: asyncio.StreamWriter, name: str = name) -> asyncio.Future[None]:
            times[name].append(time.monotonic())
            if name == "n7":
                return asyncio.ensure_future(asyncio.sleep(3600))
            writer.write(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
            return asyncio.ensure_future(asyncio.sleep(0))

        server.handlers[f"/{name}/api/v1/ports"] = handler
    await fleet.list(**{name: f"{server.url}/{name}" for name in names})
    task = asyncio.create_task(fleet.table.run())
    await asyncio.sleep(1.5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    firsts = [times[name][0] for name in names]
    gaps = [later - earlier for earlier, later in pairwise(firsts)]
    assert all(0.05 < gap < 0.2 for gap in gaps), gaps
    assert [len(times[name]) for name in names] == [2] * 7 + [1]


async def test_ports_are_asked_of_all_nodes_at_once(fleet: Fleet, daemons: dict[str, Running], server: Hostile) -> None:
    server.handlers["/api/v1/ports"] = never
    await fleet.list(open=daemons["open"].url, closed=daemons["closed"].url, bad=server.url)
    fleet.table.update()
    found = await fleet.nodes.ask_all(fleet.nodes.all(), lambda node: ask_node(node, NodePorts, "/api/v1/ports"))
    assert set(found.answers) == {"open", "closed"}
    assert found.missing == {"bad": "no answer within 1 s"}
