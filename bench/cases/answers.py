"""Measures the server's cost of an answer: CPU time of the main process per /metrics and per wide window."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from statistics import median

from bench import processes
from bench.bench import NS_PER_SECOND, PORTS, Bench
from bench.daemon import Daemon, running_daemon
from bench.report import Budget, Section, Table, milliseconds

METHOD = f"""\
{PORTS} ports, every 10 ms. One client asks over a single connection without pause. Server time is the CPU time of the
main process, minus that without requests, divided by the number of responses."""
WINDOW = "/api/v1/window?last=60s&format="


@dataclass(frozen=True, slots=True)
class Answer:
    """Cost and size of one kind of answer."""

    server_seconds: float
    client_seconds: float
    bytes: int


def run(bench: Bench) -> Section:
    """Measure scrapes and windows of 60 s of all ports in every format."""
    with running_daemon(bench, "daemon", ports=PORTS, history_seconds=70) as daemon:
        idle_share = _idle_share(daemon, bench.seconds(5.0))
        paths = ["/metrics", *(WINDOW + kind for kind in ("json", "npy", "csv", "grafana"))]
        answers = {path: _ask(daemon, path, bench.seconds(3.0), idle_share) for path in paths}
    rows = [
        [f"`{path}`", milliseconds(one.server_seconds), milliseconds(one.client_seconds), f"{one.bytes / 1e3:,.0f} kB"]
        for path, one in answers.items()
    ]
    json = answers[f"{WINDOW}json"].server_seconds
    what = f"window of 60 s × {PORTS} ports as JSON"
    budget = Budget(what, "≤ 5 ms of server time", milliseconds(json), json <= 5e-3)
    table = Table(["answer", "server time", "client waits (median)", "size"], rows)
    return Section("Answers", METHOD, [table], (), [budget])


def _idle_share(daemon: Daemon, seconds: float) -> float:
    begun, cpu_ns = time.monotonic(), processes.cpu_ns(daemon.main_pid)
    time.sleep(seconds)
    return (processes.cpu_ns(daemon.main_pid) - cpu_ns) / NS_PER_SECOND / (time.monotonic() - begun)


def _ask(daemon: Daemon, path: str, seconds: float, idle_share: float) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    body = _get(connection, path)
    waits: list[float] = []
    begun, cpu_ns = time.perf_counter(), processes.cpu_ns(daemon.main_pid)
    while (now := time.perf_counter()) < begun + seconds:
        _get(connection, path)
        waits.append(time.perf_counter() - now)
    elapsed = time.perf_counter() - begun
    server = (processes.cpu_ns(daemon.main_pid) - cpu_ns) / NS_PER_SECOND - idle_share * elapsed
    connection.close()
    return Answer(server / len(waits), median(waits), len(body))


def _get(connection: http.client.HTTPConnection, path: str) -> bytes:
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise OSError(f"GET {path}: status {response.status}: {body[:200]!r}")
    return body
