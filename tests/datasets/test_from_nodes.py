"""Past samples of real daemons become a dataset, directly and through a gateway; gaps have reasons."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.types import ASGIApp

from ibpulse.agent.web.app import create_app
from ibpulse.base.errors import DiscoveryError
from ibpulse.core.answers.jobs import JobsAnswer
from ibpulse.core.client.transport import HttpPeer
from ibpulse.core.http.server import serve
from ibpulse.core.recordings import Recording, load
from ibpulse.gateway.nodes import requests
from ibpulse.gateway.nodes.discovery import Discovery, NodeConfigFile, parse_source
from ibpulse.gateway.nodes.table import PolledNode
from ibpulse.workbench.fleet import from_nodes
from ibpulse.workbench.fleet.collection import CollectionResult
from ibpulse.workbench.fleet.dataset import FILES, MISSING, RAW, DatasetStore, Part
from ibpulse.workbench.fleet.from_nodes import GatewaySource, NodeCollection, collect_nodes
from tests.fleet.hostile import Hostile, hostile
from tests.fleet.small_answers import answer_node, jobs_of, ports_of
from tests.gateway.gateways import Gateway
from tests.running import HANG_SECONDS
from tests.web.rings import EPOCH, INTERVAL_NS, SIGNALS, Node, full_node

START_NS = EPOCH * INTERVAL_NS
SPAN = NodeCollection(START_NS, START_NS + 8 * 10**9)
DEAD = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return full_node(tmp_path_factory.mktemp("ring"))


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    server = await serve(app, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


@dataclass
class Fleet:
    """A dataset and the file that lists the nodes to collect."""

    directory: Path

    @property
    def store(self) -> DatasetStore:
        return DatasetStore(str(self.directory / "set"))

    async def collect(self, wanted: NodeCollection = SPAN, **urls: str) -> CollectionResult:
        path = self.directory / "nodes.json"
        entries = [{"targets": [url], "labels": {"node": name, "rack": "r1"}} for name, url in urls.items()]
        path.write_text(json.dumps(entries))
        return await self.collect_from(Discovery([parse_source(str(path))]), wanted)

    async def collect_from(self, discovery: Discovery, wanted: NodeCollection = SPAN) -> CollectionResult:
        self.store.begin()
        with ThreadPoolExecutor(1) as computing:
            return await collect_nodes(self.store, discovery, wanted, computing)

    def raw(self, part: Part) -> Recording:
        path = self.store.local_path(RAW, part)
        return load(path)

    def rows(self, tier: str) -> list[Mapping[str, Any]]:
        rows = []
        for part in self.store.parts(tier):
            (row,) = self.store.read_table(tier, part).to_pylist()
            rows.append({"node": part.node, "job": part.job, **row})
        return rows


@pytest.fixture(autouse=True)
def no_node_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: nodes of the test answer in its own process."""
    for get in (HttpPeer.get, requests.Node.get):
        monkeypatch.setitem(get.__kwdefaults__, "seconds", HANG_SECONDS)
    monkeypatch.setattr(from_nodes, "ANSWER_SECONDS", HANG_SECONDS)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def check_samples(found: Recording, node: Node, first: int, ticks: int) -> None:
    """The rates are those that were put into the ring."""
    assert (found.start_ns, found.ticks) == ((EPOCH + first) * INTERVAL_NS, ticks)
    for row, name in enumerate(("mlx5_0:1", "mlx5_1:1")):
        for way in range(2):
            known = [node.rates.get((name, way, EPOCH + first + tick), np.nan) for tick in range(ticks)]
            np.testing.assert_array_equal(found.bytes_per_second[row, way], np.float32(known))


def check_signals(found: Recording) -> None:
    """The first port waited for three ticks more at each reading."""
    assert [port.signals for port in found.meta.ports] == [SIGNALS, ()]
    assert found.time_ns()[found.signals[0].samples][0] == (EPOCH + 5) * INTERVAL_NS
    np.testing.assert_array_equal(found.readings(0).gains().gained[1:], [[0, 3]] * (len(found.signals[0].samples) - 1))
    np.testing.assert_allclose(found.signals[0].seconds[1:], 0.1, rtol=0.05)


async def test_nodes_are_collected_once_with_clocks_and_labels(fleet: Fleet, node: Node) -> None:
    async with served(create_app(node.parts(clock_state=lambda: None))) as url:
        result = await fleet.collect(a=url, b=url)
        again = await fleet.collect(a=url, b=url)
    assert sorted(one.part.node for one in result.written) == ["a", "b"]
    found = fleet.raw(Part("", "a", START_NS))
    check_samples(found, node, 1, 799)
    check_signals(found)
    assert (again.written, len(again.kept), again.missing) == ([], 2, [])
    first, second = fleet.rows(FILES)
    assert (first["node"], first["rack"], second["node"]) == ("a", "r1", "b")
    # the clock of the ring stands still in the year 2025
    assert first["clock_offset_ns"] < -(10**9)
    assert first["clock_bound_ns"] > 0
    assert first["clock_measured_ns"] > START_NS
    assert first["clock_synchronised"] is None
    # a ring has no rate before its second sample
    assert [(row["node"], row["to_ns"] - row["from_ns"]) for row in fleet.rows(MISSING)] == [
        ("a", INTERVAL_NS),
        ("b", INTERVAL_NS),
    ]


async def test_longer_spans_add_only_the_rest(fleet: Fleet, node: Node) -> None:
    wanted = replace(SPAN, begin_ns=START_NS + 2 * 10**9, end_ns=START_NS + 4 * 10**9)
    async with served(create_app(node.parts())) as url:
        await fleet.collect(wanted, a=url)
        result = await fleet.collect(a=url)
    assert [one.part.start_ns for one in result.written] == [START_NS, START_NS + 4 * 10**9]
    check_samples(fleet.raw(Part("", "a", START_NS + 4 * 10**9)), node, 400, 400)


async def test_gaps_are_written_down_until_collected(fleet: Fleet, node: Node) -> None:
    wanted = NodeCollection(START_NS - 3 * 10**9, START_NS + 20 * 10**9)
    async with served(create_app(node.parts())) as url:
        result = await fleet.collect(wanted, here=url, late=DEAD)
        told = {
            (row["node"], row["from_ns"] - START_NS, row["to_ns"] - START_NS): row["reason"]
            for row in fleet.rows(MISSING)
        }
        assert {(name, first, end): reason.partition(";")[0] for (name, first, end), reason in told.items()} == {
            # the parts of two hours
            ("here", -3 * 10**9, 0): "its history begins later",
            ("here", 0, INTERVAL_NS): "its history begins later",
            ("here", 9_800_000_000, 20 * 10**9): "its newest sample is older",
            ("late", -3 * 10**9, 20 * 10**9): "it refuses connections",
        }
        assert "something is missing of 2 nodes: here, late" in result.describe()
        await fleet.collect(SPAN, late=url)
        await fleet.collect(wanted, late=url)
    assert [row["reason"] for row in fleet.rows(MISSING) if row["node"] == "late" and row["from_ns"] < START_NS] == [
        "its history begins later"
    ]


async def test_unknown_jobs_are_named_with_running_ones(
    fleet: Fleet, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = jobs_of({"job_id": "1001", "ports": []}, {"job_id": "1000", "ports": [], "running": False})
    jobs = JobsAnswer.model_validate_json(listed)
    polled = PolledNode.view
    monkeypatch.setattr(PolledNode, "view", lambda self, target: replace(polled(self, target), jobs=jobs))
    async with served(create_app(node.parts())) as url:
        unknown = await fleet.collect(replace(SPAN, job="9999"), a=url)
        known = await fleet.collect(replace(SPAN, job="1000"), a=url)
    assert unknown.problems == ["no node is known to have job '9999'; running: 1001"]
    assert known.problems == []


async def test_daemons_are_refused_as_gateways(fleet: Fleet, node: Node) -> None:
    async with served(create_app(node.parts())) as url:
        result = await fleet.collect_from(Discovery([GatewaySource(url, NodeConfigFile())]))
    assert result.problems == [f"{url}: has no list of nodes, so it is no gateway; give the address of one"]


async def test_gateways_pass_samples_on(fleet: Fleet, node: Node, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(create_app(node.parts())))
        gateway = Gateway(tmp_path)
        stack.push_async_callback(gateway.close)
        await gateway.list(a=url, gone=DEAD)
        place = await stack.enter_async_context(gateway.served())
        config = NodeConfigFile()
        result = await fleet.collect_from(Discovery([GatewaySource(place, config)], config))
    assert [one.part for one in result.written] == [Part("", "a", START_NS)]
    check_samples(fleet.raw(Part("", "a", START_NS)), node, 1, 799)
    check_signals(fleet.raw(Part("", "a", START_NS)))
    (row,) = fleet.rows(FILES)
    assert (row["source"], row["rack"]) == (f"{place}/node/a", "r1")
    assert row["clock_bound_ns"] > 0
    assert [span.part.node for span in result.missing if span.part.node != "a"] == ["gone"]


@pytest.fixture
async def server() -> AsyncIterator[Hostile]:
    async with hostile() as state:
        yield state


async def test_hostile_answers_become_reasons(fleet: Fleet, server: Hostile) -> None:
    result = await fleet.collect(silent=server.url)
    server.answer("/api/v1/ports", b"<html>", "text/html")
    page = await fleet.collect(page=server.url)
    answer_node(server)
    server.answer("/api/v1/window", b"\x93NUMPY\x01\x00" + bytes(100), "application/x-npy")
    array = await fleet.collect(array=server.url)
    server.answer("/api/v1/ports", ports_of())
    empty = await fleet.collect(empty=server.url)
    reasons = [span.reason for each in (result, page, array, empty) for span in each.missing]
    assert [reason.partition(",")[0] for reason in reasons[1:]] == [
        "its answer is 'text/html'",
        "its answer is not an array; is this an ibpulse daemon of a compatible version?",
        "has no ports with byte counters",
    ]
    assert len(reasons) == 4
    assert fleet.store.parts(RAW) == []


async def test_other_lists_of_nodes_are_refused(server: Hostile) -> None:
    source = GatewaySource(server.url, NodeConfigFile())
    server.answer("/api/v1/nodes", b'{"nodes": [{"node": "a", "labels": {"rack": 7}}]}')
    with pytest.raises(DiscoveryError, match="not as expected"):
        await source.ask(None)  # type: ignore[arg-type]
    server.answer("/api/v1/nodes", b'{"nodes": [{"node": "..", "labels": {}}, {"node": "b", "labels": {"leaf": "l"}}]}')
    (target,) = await source.ask(None)  # type: ignore[arg-type]
    assert (target.name, target.url, target.labels) == ("b", f"{server.url}/node/b", {"leaf": "l"})
