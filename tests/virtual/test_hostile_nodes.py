"""A gateway in front of nodes that fail, and of servers that answer what no daemon would."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from tests.virtual.asgi import App
from tests.virtual.fleet import Fleet, share

JSON = "application/json"


def answers(bodies: Mapping[str, tuple[bytes, str]], status: int = 200, *headers: tuple[bytes, bytes]) -> App:
    """An application with a body and its media type at these paths of its API, and nothing elsewhere.

    The path `""` stands for all others.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found = bodies.get(scope["path"].removeprefix("/api/v1/"), bodies.get(""))
        body, kind = found or (b"", "text/plain")
        head = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)), *headers]
        await send({"type": "http.response.start", "status": status if found else 404, "headers": head})
        await send({"type": "http.response.body", "body": body})

    return app


async def hang(scope: Any, receive: Any, send: Any) -> None:
    """An application that never answers."""
    await asyncio.Event().wait()


async def endless(scope: Any, receive: Any, send: Any) -> None:
    """An application whose answers have no end."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", JSON.encode())]})
    while True:
        await send({"type": "http.response.body", "body": b"[" * 65536, "more_body": True})


async def drip(scope: Any, receive: Any, send: Any) -> None:
    """An application that sends a byte every 50 ms."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", JSON.encode())]})
    while True:
        await send({"type": "http.response.body", "body": b" ", "more_body": True})
        await asyncio.sleep(0.05)


MARK = b"pwned-7141"
HTML = b"<html><script>" + MARK + b"</script></html>", "text/html"
HEALTHY = ["node-0", "node-1"]
GONE, KILLED, STOPPED, CHANGED, LIAR = "node-2", "node-3", "node-4", "node-5", "liar"
NODES = [*HEALTHY, GONE, KILLED, STOPPED, CHANGED, LIAR]
# nodes of the job that do not answer: the word, and a part of the sentence
FAILING = {
    KILLED: ("no-answer", "it refuses connections"),
    STOPPED: ("no-answer", "no answer within"),
    CHANGED: ("refused", "password"),
    LIAR: ("bad-answer", "its answer is"),
}
OTHERS = {
    "huge": (endless, "bad-answer"),
    "slow": (drip, "no-answer"),
    "types": (answers({"ports": (b'{"ports": {"name": ["' + MARK + b'"]}}', JSON)}), "bad-answer"),
    "html": (answers({"": HTML}), "bad-answer"),
    "redirects": (answers({"": HTML}, 302, (b"location", b"http://trap/api/v1/ports")), "bad-answer"),
}
JOB = "/api/v1/jobs/7"
NODE_PATHS = ("ports", "jobs", "clock", "events", "summary", "captures", "topology", "window?last=1s")


@pytest.fixture(scope="module")
def fleet(shared_folder: Path) -> Iterator[Fleet]:
    """Six nodes of a job, of which four have failed, and servers: one answers like a node about its ports and jobs."""
    flags = (share(shared_folder), "--slow.interval=1s", "--capture.allow-unauthenticated=true")
    with Fleet(shared_folder, 6, *flags, workload="dense", interval="50ms") as made:
        made.run(6)
        first = made.nodes[0]
        true = {name: (first.ask(f"/api/v1/{name}").content, JSON) for name in ("ports", "jobs", "clock")}
        made.others |= {LIAR: answers(true | {"": HTML})} | {name: app for name, (app, _) in OTHERS.items()}
        made.list(*NODES, *OTHERS)
        made.run(6)
        for query in ("", "?rows=rails"):
            made.view(f"{JOB}/stream{query}")
        made.run(3)
        made.list(*(name for name in (*NODES, *OTHERS) if name != GONE))
        made.unreachable.add(KILLED)
        made.others |= {STOPPED: hang, CHANGED: answers({"": (b"", "text/plain")}, 401)}
        made.run(10)
        yield made


def names(entries: list[dict[str, Any]]) -> list[str]:
    return sorted(entry["node"] for entry in entries)


def test_the_list_says_of_each_node_how_it_fails(fleet: Fleet) -> None:
    rows = {row["node"]: row for row in fleet.rows()}
    failing = {name: word for name, (word, _) in FAILING.items()} | {name: word for name, (_, word) in OTHERS.items()}
    # what the liar says of its ports and jobs is right
    expected = dict.fromkeys(HEALTHY, "") | failing | {LIAR: ""}
    assert {name: row["problem"] for name, row in rows.items()} == expected
    for name, (_, part) in FAILING.items():
        assert name == LIAR or part in rows[name]["problem_text"]


def test_partial_answers_name_the_nodes_without_one_and_have_the_others(fleet: Fleet) -> None:
    window = fleet.wait_for(f"{JOB}/window", last="2s").json()
    assert sorted(window["missing"]) == sorted(FAILING)
    assert [name for name, (_, part) in FAILING.items() if part not in window["reasons"][name]] == []
    array = np.load(io.BytesIO(fleet.wait_for(f"{JOB}/window", last="2s", format="npy").content))
    for one, values in zip(window["series"], array, strict=True):
        assert (set(one["values"]) == {None}) == np.isnan(values).all() == (one["row"] in FAILING)
    job = fleet.wait_for(f"{JOB}/summary").json()["job"]
    assert (names(job["missing"]), job["nodes"], job["answering"]) == (sorted(FAILING), 6, 2)
    for name in ("events", "captures"):
        answer = fleet.wait_for(f"{JOB}/{name}").json()
        reasons = {each["node"]: each["reason"] for each in answer["missing"]}
        assert sorted(reasons) == sorted(FAILING)
        assert [node for node, (_, part) in FAILING.items() if part not in reasons[node]] == []
    events = fleet.wait_for(f"{JOB}/events").json()
    assert ({each["node"] for each in events["events"]}, events["kinds"]["started"]) == (set(HEALTHY), 2)


def test_a_capture_of_the_job_is_taken_on_the_nodes_that_answer(fleet: Fleet) -> None:
    body = {"before": "1s", "after": "100ms"}
    answer = fleet.loop.run_until_complete(fleet.request("POST", f"{JOB}/captures", json=body))
    assert answer.status_code == 202
    assert (names(answer.json()["nodes"]), names(answer.json()["missing"])) == (HEALTHY, sorted(FAILING))


def test_streams_go_on_and_their_rows_say_how_nodes_fail(fleet: Fleet) -> None:
    expected = dict.fromkeys(HEALTHY, "") | {GONE: "gone"} | {name: word for name, (word, _) in FAILING.items()}
    before = [len(viewer.events("summary")) for viewer in fleet.viewers]
    # one each second, wherever in a second this begins
    fleet.run(5)
    for viewer, count in zip(fleet.viewers, before, strict=True):
        assert len(viewer.events("summary")) - count in (4, 5)
        assert viewer.events("end") == []
        rows = orjson.loads(viewer.events("rows")[-1])["rows"]
        assert {row["node"]: row["problem"] for row in rows} == expected
        missing = orjson.loads(viewer.events("summary")[-1])["job"]["missing"]
        assert names(missing) == sorted({*FAILING, GONE})


def ask_everything(fleet: Fleet) -> list[bytes]:
    """All that the gateway answers about its nodes and their job."""
    paths = ["/", "/metrics", "/api/v1/nodes", "/api/v1/jobs", "/job/7"]
    paths += [f"{JOB}/{name}" for name in ("window", "summary", "events", "captures")]
    paths += [f"/node/{name}/api/v1/{path}" for name in (HEALTHY[0], LIAR, "html") for path in NODE_PATHS]
    paths += [f"/node/{name}/api/v1/ports" for name in (*NODES, *OTHERS)]
    found = [fleet.wait_for(path) for path in paths]
    assert {answer.status_code for answer in found} == {200, 404, 502, 504}
    return [answer.content for answer in found]


def test_nothing_of_a_page_of_a_server_is_passed_on(fleet: Fleet) -> None:
    found = [*ask_everything(fleet), *(bytes(viewer.received) for viewer in fleet.viewers)]
    assert [answer[:200] for answer in found if MARK in answer] == []


def test_no_request_is_left_behind(fleet: Fleet) -> None:
    before = len(asyncio.all_tasks(fleet.loop))
    for _ in range(2):
        # a dozen of the answers never come
        ask_everything(fleet)
    # polls of nodes that hang, and of those that do not
    assert len(asyncio.all_tasks(fleet.loop)) < before + 12
