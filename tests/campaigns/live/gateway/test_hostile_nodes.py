"""A real gateway in front of real daemons that fail, and of servers that answer what no daemon would."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.campaigns.live.gateway.hostile_fleet import ASKING, MARK, SERVERS, VIEWING, HostileFleet
from tests.gateway.gateway_process import GatewayProcess, StreamViewer, Usage
from tests.running import eventually

# sixteen processes, and the half minute between two readings of a file, on a machine with other work
pytestmark = pytest.mark.timeout(900)
MEGABYTE = 1_000_000
NODE_PATHS = (
    "jobs",
    "clock",
    "events",
    "summary",
    "captures",
    "topology",
    "window?last=1s",
    "window?last=1s&format=npy",
)
# of the job, which no node but `liar` takes part in that is not a real daemon
PROBLEMS = {
    "killed": ("no-answer", "it refuses connections"),
    "stopped": ("no-answer", "no answer within"),
    "changed": ("refused", "password"),
}


@dataclass
class Seen:
    """What a gateway told about its nodes when some had failed, and what it used before and after asking for it."""

    fleet: HostileFleet
    gateway: GatewayProcess
    streams: list[StreamViewer]
    job: str = ""
    before: Usage | None = None
    after: Usage | None = None

    def of_job(self, name: str, **query: str) -> dict[str, Any]:
        """What the gateway has of the job now."""
        found: dict[str, Any] = self.gateway.ask(f"/api/v1/jobs/{self.job}/{name}", **query).json()
        return found

    @property
    def failing(self) -> dict[str, tuple[str, str]]:
        """The nodes of the job that do not answer: the word, and a part of the sentence."""
        found = {getattr(self.fleet, role): problem for role, problem in PROBLEMS.items()}
        return found | {"liar": ("bad-answer", "its answer is")}


def ask_everything(seen: Seen) -> None:
    """Ask for everything that the gateway has, once."""
    job = f"/api/v1/jobs/{seen.job}"

    def ask_node(name: str, path: str) -> None:
        answer = seen.gateway.client.get(f"/node/{name}/api/v1/{path}")
        seen.gateway.answers.append(answer.content)
        assert answer.status_code in (200, 404, 502, 504), (name, path, answer.text)

    def view(name: str, wanted: Callable[[StreamViewer], object]) -> None:
        with StreamViewer(seen.gateway, f"/node/{name}/api/v1/stream", "127.0.0.3") as viewer:
            eventually(lambda: wanted(viewer))

    asked: list[Callable[[], object]] = [
        *(
            partial(seen.gateway.ask, path)
            for path in ("/", "/metrics", "/api/docs", "/api/v1/nodes", "/api/v1/jobs", f"/job/{seen.job}")
        ),
        *(partial(seen.of_job, name) for name in ("window", "summary", "events", "captures")),
        partial(seen.gateway.ask, f"{job}/window?last=2s&unit=ratio&format=npy&rows=rails"),
        *(partial(ask_node, name, path) for name in (seen.fleet.healthy[0], "liar") for path in NODE_PATHS),
        *(partial(ask_node, name, "ports") for name in [*seen.fleet.names, *SERVERS]),
        partial(view, seen.fleet.healthy[1], lambda viewer: viewer.counts.get("batch") or viewer.problem),
        partial(view, "liar", lambda viewer: viewer.problem.startswith("502")),
    ]
    with ThreadPoolExecutor(4) as pool:
        for task in [pool.submit(each) for each in asked]:
            task.result()


def see(fleet: HostileFleet, gateway: GatewayProcess, stack: ExitStack, rounds: int) -> Seen:
    """Let nodes of a running fleet fail, and ask its gateway for everything again and again."""
    eventually(lambda: all_known(fleet, gateway), 120)
    seen = Seen(fleet, gateway, [])
    (found,) = gateway.ask("/api/v1/jobs").json()["jobs"]
    seen.job = found["job_id"]
    assert {node["node"] for node in found["nodes"]} == {*fleet.names, "liar"}
    paths = [f"/api/v1/jobs/{seen.job}/stream{query}" for query in ("", "?rows=rails")]
    paths += [f"/node/{fleet.healthy[0]}/api/v1/stream"] * 2
    seen.streams += [
        stack.enter_context(StreamViewer(gateway, path, f"127.0.0.{number % 2 + 1}"))
        for number, path in enumerate(paths)
    ]
    for viewer in seen.streams:
        eventually(lambda viewer=viewer: viewer.counts.get("batch") and viewer.counts.get("summary"), 60)
    fleet.fail()
    eventually(lambda: gateway.nodes()[fleet.changed]["problem"] == "refused", 60)
    # the file is read every 30 s
    eventually(lambda: fleet.gone not in gateway.nodes(), 60)
    for _ in range(2):
        ask_everything(seen)
    seen.before = gateway.usage()
    for _ in range(rounds):
        ask_everything(seen)
    seen.after = gateway.usage()
    return seen


def all_known(fleet: HostileFleet, gateway: GatewayProcess) -> bool:
    """Whether all real nodes and `liar` have told their jobs, and all others have failed."""
    nodes = gateway.nodes()
    honest = all(name in nodes and nodes[name]["jobs"] and nodes[name]["clock"] for name in [*fleet.names, "liar"])
    others = ("huge", "slow", "types", "html", "redirects", "listed")
    failed = all(name in nodes and nodes[name]["problem"] for name in others)
    return honest and failed


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    fleet = HostileFleet(tmp_path_factory.mktemp("fleet"), 6)
    with fleet.running() as gateway, ExitStack() as stack:
        yield see(fleet, gateway, stack, rounds=4)


def test_the_list_says_of_each_node_how_it_fails(seen: Seen) -> None:
    fleet = seen.fleet
    expected = {
        **dict.fromkeys(fleet.healthy, ""),
        fleet.killed: "no-answer",
        fleet.stopped: "no-answer",
        fleet.changed: "refused",
        "huge": "bad-answer",
        "slow": "no-answer",
        "types": "bad-answer",
        "html": "bad-answer",
        "listed": "bad-answer",
        "redirects": "bad-answer",
        # what it says of its ports and jobs is right
        "liar": "",
    }
    # one that is well may be slow on this machine now and then
    nodes = soon(seen.gateway.nodes, lambda nodes: {name: node["problem"] for name, node in nodes.items()} == expected)
    for name, (_, part) in seen.failing.items():
        assert name == "liar" or part in nodes[name]["problem_text"]


def soon(ask: Callable[[], dict[str, Any]], expected: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first answer that is as expected; on a busy machine, other nodes miss their second now and then."""
    found: dict[str, Any] = {}

    def check() -> bool:
        found.update(ask())
        return expected(found)

    try:
        eventually(check, 60, 0.5)
    except AssertionError:
        pytest.fail(f"not as expected: {json.dumps(found)[:3000]}")
    return found


def test_partial_answers_name_the_nodes_without_one_and_have_the_others(seen: Seen) -> None:
    failing = seen.failing
    window = soon(lambda: seen.of_job("window", last="2s"), lambda found: set(found["missing"]) == set(failing))
    assert all(part in window["reasons"][name] for name, (_, part) in failing.items())
    for one in window["series"]:
        assert (set(one["values"]) == {None}) == (one["row"] in failing)
    summary = soon(lambda: seen.of_job("summary"), lambda found: names(found["job"]["missing"]) == set(failing))
    assert (summary["job"]["nodes"], summary["job"]["answering"]) == (
        len(seen.fleet.names),
        len(seen.fleet.healthy),
    )
    for name in ("events", "captures"):
        answer = soon(partial(seen.of_job, name), lambda found: names(found["missing"]) == set(failing))
        reasons = {each["node"]: each["reason"] for each in answer["missing"]}
        assert all(part in reasons[node] for node, (_, part) in failing.items())
    events = soon(lambda: seen.of_job("events"), lambda found: names(found["events"]) == set(seen.fleet.healthy))
    assert events["kinds"]["started"] >= len(seen.fleet.healthy)


def names(entries: list[dict[str, Any]]) -> set[str]:
    return {entry["node"] for entry in entries}


def test_a_capture_of_the_job_is_taken_on_the_nodes_that_answer(seen: Seen) -> None:
    def take() -> dict[str, Any]:
        answer = seen.gateway.post(f"/api/v1/jobs/{seen.job}/captures", {"before": "1s", "after": "100ms"})
        found: dict[str, Any] = answer.json()
        return found if answer.status_code == 202 else {"nodes": [], "missing": []}

    taken = soon(take, lambda found: names(found["nodes"]) == set(seen.fleet.healthy))
    assert names(taken["missing"]) == set(seen.failing)


def test_streams_go_on_and_their_rows_say_how_nodes_fail(seen: Seen) -> None:
    for viewer in seen.streams:
        before = viewer.counts["batch"]
        eventually(lambda viewer=viewer, before=before: viewer.counts["batch"] > before + 5)
        assert not viewer.problem
        assert "end" not in viewer.counts
    expected = {**dict.fromkeys(seen.fleet.healthy, ""), seen.fleet.gone: "gone"}
    expected |= {name: word for name, (word, _) in seen.failing.items()}
    missing = {*seen.failing, seen.fleet.gone}
    for viewer in seen.streams[:2]:
        rows = soon(
            lambda viewer=viewer: viewer.last["rows"],
            lambda found: {row["node"]: row["problem"] for row in found["rows"]} == expected,
        )
        assert names(rows["rows"]) == {*seen.fleet.names, "liar"}
        soon(lambda viewer=viewer: viewer.last["summary"], lambda found: names(found["job"]["missing"]) == missing)


def test_nothing_of_a_page_of_a_server_is_passed_on(seen: Seen) -> None:
    assert len(seen.gateway.answers) > 200
    assert [answer[:200] for answer in seen.gateway.answers if MARK in answer] == []


def test_passwords_are_sent_to_listed_nodes_only(seen: Seen) -> None:
    servers = seen.fleet.servers
    expected = f"Basic {encode(*ASKING)}"
    for name in ("huge", "slow", "types", "html", "redirects", "liar"):
        assert servers.passwords(name) == {expected}, name
    assert servers.passwords("list") == {""}
    # a redirect is not followed
    assert servers["trap"].asked == []
    heads = [head for server in servers.by_name.values() for head in server.asked]
    assert not [head for head in heads if encode(*VIEWING) in head or VIEWING[1] in head]


def test_the_gateway_keeps_its_memory_and_its_files_over_rounds(seen: Seen) -> None:
    assert seen.before is not None
    assert seen.after is not None
    assert seen.after.memory_bytes < seen.before.memory_bytes + 32 * MEGABYTE
    assert seen.after.descriptors < seen.before.descriptors + 32


def encode(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()
