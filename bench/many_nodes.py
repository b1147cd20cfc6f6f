"""One process that answers as many nodes, with the recorded answers of one real daemon whose times are moved on.

`many_nodes.py RECORDED COUNT` prints the ports that it listens on, one per node, and runs until it is terminated.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import pickle
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import numpy as np
import numpy.typing as npt
import orjson
import uvloop

WINDOW_HEADER = "X-Ibpulse-Window"
# of the head of an answer, these are written anew
OWN_HEADERS = ("content-length", WINDOW_HEADER.lower())
MILLISECOND_NS = 1_000_000
PATHS = ("/api/v1/ports", "/api/v1/clock", "/api/v1/jobs", "/api/v1/silences")


@dataclass(frozen=True, slots=True)
class Answer:
    """A recorded answer: its headers, and its body."""

    headers: tuple[tuple[str, str], ...]
    body: bytes

    def write(self, body: bytes, *more: tuple[str, str]) -> bytes:
        """An answer with the same headers and this body."""
        kept = [(name, text) for name, text in self.headers if name.lower() not in OWN_HEADERS]
        lines = [f"{name}: {text}" for name, text in (*kept, ("content-length", str(len(body))), *more)]
        return "\r\n".join(("HTTP/1.1 200 OK", *lines, "", "")).encode() + body


@dataclass(frozen=True, slots=True)
class RecordedNode:
    """The answers of a daemon by path, and how far its newest sample was behind its clock.

    That of `/api/v1/window` has every sample of some whole steps of the job.
    """

    answers: Mapping[str, Answer]
    behind_ms: int

    @property
    def job(self) -> str:
        """The id of its only job."""
        (job,) = orjson.loads(self.answers["/api/v1/jobs"].body)["jobs"]
        return str(job["job_id"])


def record(port: int, seconds: int) -> RecordedNode:
    """The answers of a daemon with one job, which has samples of so many seconds."""
    answers = {path: _ask(port, path) for path in PATHS}
    job = RecordedNode(answers, 0).job
    names = "&".join(
        f"name[]=ibpulse_{name}"
        for name in ("build_info", "node_line_rate_bytes_per_second", "port_rail_idle", "port_rail_slow")
    )
    for path, query in {
        "/metrics": names,
        "/api/v1/summary": f"job={job}&last=10s",
        "/api/v1/events": "limit=1000",
        "/api/v1/window": f"job={job}&format=npy&statistic=max&last={seconds}s",
    }.items():
        answers[path] = _ask(port, f"{path}?{query}")
    newest_ms = _window_head(answers["/api/v1/window"])["history"]["newest_ms"]
    now_ms = orjson.loads(_ask(port, "/api/v1/clock").body)["time_ns"] // MILLISECOND_NS
    return RecordedNode(answers, now_ms - newest_ms)


def _ask(port: int, path: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Accept-Encoding": "identity"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status != 200:
        raise OSError(f"GET {path}: status {response.status}: {body[:200]!r}")
    return Answer(tuple(response.getheaders()), body)


def _window_head(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads({name.lower(): text for name, text in answer.headers}[WINDOW_HEADER.lower()])
    return found


class ManyNodes:
    """Answers to the requests of a gateway. The recorded samples are repeated for ever."""

    def __init__(self, recorded: RecordedNode) -> None:
        self._answers, self._behind_ms = recorded.answers, recorded.behind_ms
        window = recorded.answers["/api/v1/window"]
        self._head = _window_head(window)
        self._values: npt.NDArray[np.float32] = np.load(io.BytesIO(window.body))
        self._events = orjson.loads(recorded.answers["/api/v1/events"].body)
        self._summary = orjson.loads(recorded.answers["/api/v1/summary"].body)
        self._clock = orjson.loads(recorded.answers["/api/v1/clock"].body)

    def answer(self, target: str) -> bytes:
        """The answer to a GET request, as it is sent."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        answer = self._answers.get(path)
        if answer is None:
            return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
        now_ms = time.time_ns() // MILLISECOND_NS
        if path == "/api/v1/window":
            return self._window(answer, query, now_ms)
        body = answer.body
        if path == "/api/v1/events":
            from_ms = int(query.get("from", ["0"])[0])
            news = [event for event in self._events["events"] if event["time_ms"] >= from_ms]
            body = orjson.dumps({**self._events, "to_ms": now_ms, "events": news})
        elif path == "/api/v1/summary":
            end_ms = now_ms // 1000 * 1000
            span = {"start_ms": end_ms - 1000 * self._summary["window_seconds"], "end_ms": end_ms}
            body = orjson.dumps({**self._summary, **span})
        elif path == "/api/v1/clock":
            # the clock is read last, as in the daemon
            body = orjson.dumps({**self._clock, "time_ns": time.time_ns()})
        return answer.write(body)

    def _window(self, answer: Answer, query: Mapping[str, list[str]], now_ms: int) -> bytes:
        interval_ms = self._head["interval_ms"]
        end = (now_ms - self._behind_ms) // interval_ms
        if "from" in query:
            first = min(end, int(query["from"][0]) // interval_ms)
        else:
            first = end - int(query["last"][0].removesuffix("ms")) // interval_ms
        history_ms = self._head["history"]["newest_ms"] - self._head["history"]["oldest_ms"]
        head = self._head | {
            "start_ms": first * interval_ms,
            "end_ms": end * interval_ms,
            "points": end - first,
            "history": {"oldest_ms": end * interval_ms - history_ms, "newest_ms": end * interval_ms},
        }
        samples = self._values.take(np.arange(first, end) % self._values.shape[1], axis=1)
        body = io.BytesIO()
        np.save(body, samples)
        return answer.write(body.getvalue(), (WINDOW_HEADER, json.dumps(head, separators=(",", ":"))))


class Connection(asyncio.Protocol):
    """One connection of the gateway, with GET requests one after the other."""

    def __init__(self, nodes: ManyNodes) -> None:
        self._nodes = nodes
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # that of uvloop is no asyncio.Transport
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer every complete request."""
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            target = self._rest.split(b" ", 2)[1].decode()
            self._rest = self._rest[end + 4 :]
            self._transport.write(self._nodes.answer(target))


async def serve(path: Path, count: int) -> None:
    nodes = ManyNodes(pickle.loads(path.read_bytes()))
    loop = asyncio.get_running_loop()
    # a port and a connection or two per node
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    servers = [await loop.create_server(lambda: Connection(nodes), "127.0.0.1", 0) for _ in range(count)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
