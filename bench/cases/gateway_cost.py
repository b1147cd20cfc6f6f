"""Measures what a gateway over 64 nodes costs, without viewers and with some on the page of a job of all nodes."""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench import processes, viewers
from bench.bench import PORTS, Bench
from bench.gateway import Gateway, running_gateway
from bench.many_nodes import RecordedNode, record
from bench.report import Budget, Section, Table, percent

NODES = 64
VIEWERS = (0, 1, 2, 4)
MOST = VIEWERS[-1]
BASE_LIMIT, VIEWER_LIMIT = 0.30, 0.03
# whole steps of the job, or nearly
RECORDED_SECONDS = 30
# the first poll reads the past, and the nodes are polled every 5 s
SETTLE_SECONDS = 6.0
METHOD = f"""\
`ibpulse gateway` over {NODES} nodes with {PORTS} ports each, every 10 ms, which share a job; one process answers as all
nodes, with recorded answers of a real daemon. The viewers are a single process that reads the stream of the job's page.
The base is the CPU time of the gateway with one viewer without the cost of that viewer; a viewer costs a third of the
difference between one and {MOST}."""


def run(bench: Bench) -> Section:
    """Measure CPU, memory and descriptors by the number of viewers."""
    recorded = record_node(bench)
    log = bench.new_folder("gateway") / "log"
    with answering(bench, recorded, NODES) as nodes, running_gateway(nodes, log) as gateway:
        processes.wait_for(lambda: all_answer(gateway, NODES), "all nodes", 60.0)
        path = f"/api/v1/jobs/{recorded.job}/stream"
        shares: dict[int, list[float]] = {count: [] for count in VIEWERS}
        rates: dict[int, float] = {}
        memory, descriptors = [], []
        before, begun = requests_of(gateway), time.monotonic()
        for _ in range(bench.rounds(3)):
            for count in VIEWERS:
                share, rates[count] = _share(bench, gateway, path, count)
                shares[count].append(share)
            memory.append(processes.pss_bytes(gateway.pid))
            descriptors.append(gateway.descriptors())
        requests = {name: value - before[name] for name, value in requests_of(gateway).items()}
        seconds = time.monotonic() - begun
    cost = {count: median(found) for count, found in shares.items()}
    each = (cost[MOST] - cost[1]) / (MOST - 1)
    base = cost[1] - each
    rows = [
        [str(count), percent(cost[count], 1), " ".join(percent(share, 1) for share in sorted(shares[count]))]
        for count in VIEWERS
    ]
    failed = sum(value for name, value in requests.items() if name != "answered")
    notes = [
        f"The gateway asked {sum(requests.values()) / seconds:.0f} times per second; {failed:.0f} requests had no "
        f"usable answer. A viewer received {rates[MOST] / MOST / 1e3:.1f} kB/s. Memory (PSS) after each round: "
        f"{', '.join(f'{size / 1e6:.1f}' for size in memory)} MB; open descriptors without viewers: "
        f"{', '.join(map(str, descriptors))}."
    ]
    budgets = [
        Budget(
            f"gateway, page of a job of {NODES} nodes: base", "≤ 30 % of one core", percent(base, 1), base <= BASE_LIMIT
        ),
        Budget("each viewer of that page", "≤ 3 % of one core", percent(each, 2), each <= VIEWER_LIMIT),
    ]
    table = Table(["viewers", "gateway, of one core", "rounds"], rows)
    return Section("The gateway", METHOD, [table], notes, budgets)


def record_node(bench: Bench) -> RecordedNode:
    """The answers of the demo's daemon, with one job on all ports."""
    port = processes.free_port()
    command = [
        *(sys.executable, "-m", "ibpulse", "demo", f"--ports={PORTS}", "--jobs=1"),
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with processes.running(command, bench.new_folder("node") / "log"):
        processes.wait_for(lambda: _has_job(port), "the demo", 60.0)
        time.sleep(RECORDED_SECONDS + 2)
        return record(port, RECORDED_SECONDS)


def _has_job(port: int) -> bool:
    try:
        return bool(json.loads(processes.get(port, "/api/v1/jobs"))["jobs"])
    except OSError:
        return False


@contextmanager
def answering(bench: Bench, recorded: RecordedNode, count: int) -> Iterator[Path]:
    """A process that answers as so many nodes; yields the file that lists them."""
    folder = bench.new_folder("nodes")
    (folder / "recorded").write_bytes(pickle.dumps(recorded))
    command = [sys.executable, "-m", "bench.many_nodes", str(folder / "recorded"), str(count)]
    log, nodes = folder / "log", folder / "nodes.json"
    with processes.running(command, log):
        processes.wait_for(lambda: "]" in log.read_text(), "the nodes")
        ports = json.loads(log.read_text())
        nodes.write_text(
            json.dumps(
                [
                    {"targets": [f"127.0.0.1:{port}"], "labels": {"node": f"gpu-{place:03}", "rack": f"r{place // 8}"}}
                    for place, port in enumerate(ports)
                ]
            )
        )
        yield nodes


def all_answer(gateway: Gateway, count: int) -> bool:
    """Whether so many nodes have answered, and none has a problem."""
    return len(answering_nodes(gateway)) == count


def answering_nodes(gateway: Gateway) -> list[str]:
    """The nodes with a job and no problem."""
    return [node["node"] for node in gateway.nodes() if node["jobs"] and not node["problem"]]


def _share(bench: Bench, gateway: Gateway, path: str, count: int) -> tuple[float, float]:
    """The part of a core that the gateway needs with this number of viewers, and the bytes per second they receive."""
    seconds = bench.seconds(20.0)
    if not count:
        time.sleep(1.0)
        return measure(gateway, seconds), 0.0
    log = bench.new_folder("viewers") / "log"
    command = [sys.executable, str(viewers.__file__), str(gateway.port), str(count), path]
    with processes.running(command, log):
        processes.wait_for(lambda: "watching" in log.read_text(), f"{count} viewers")
        time.sleep(SETTLE_SECONDS)
        share = measure(gateway, seconds)
        _check(gateway, path)
    told = json.loads(log.read_text().splitlines()[-1])
    return share, told["bytes"] / told["seconds"]


def measure(gateway: Gateway, seconds: float) -> float:
    """The part of a core that a gateway needs in a time to come."""
    begun, cpu_ns = time.monotonic_ns(), processes.cpu_ns(gateway.pid)
    time.sleep(seconds)
    return (processes.cpu_ns(gateway.pid) - cpu_ns) / (time.monotonic_ns() - begun)


def _check(gateway: Gateway, path: str) -> None:
    """Nodes without answers would cost less.

    Raises:
        OSError: the stream has not all nodes, or not their samples.
    """
    job = next(data["job"] for name, data in gateway.events(path) if name == "summary")
    batch = next(data for name, data in gateway.events(path) if name == "batch")
    known = sum(any(value is not None for value in series) for series in batch["megabytes_per_second"])
    if job["answering"] != NODES or job["lateness_nodes"] != NODES or known != 2 * NODES:
        reasons = dict.fromkeys(each["reason"] for each in job["missing"])
        raise OSError(
            f"{job['answering']} of {NODES} nodes answer, the lateness of {job['lateness_nodes']} is known, "
            f"and {known} of {2 * NODES} series have samples: {'; '.join(reasons)}"
        )


def requests_of(gateway: Gateway) -> dict[str, float]:
    """The requests to nodes so far, by outcome."""
    name = "ibpulse_gateway_node_requests_total"
    found = {}
    for line in processes.get(gateway.port, "/metrics").decode().splitlines():
        if line.startswith(name):
            labels, _, value = line.removeprefix(name).rpartition(" ")
            found[labels.split('"')[1]] = float(value)
    return found
