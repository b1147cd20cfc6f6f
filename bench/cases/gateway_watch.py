"""Measures what it costs that a gateway watches the jobs of many nodes for silence, without viewers."""

from __future__ import annotations

import time
from statistics import median

from bench import processes
from bench.bench import PORTS, Bench
from bench.cases.gateway_cost import answering, answering_nodes, measure, record_node, requests_of
from bench.gateway import running_gateway
from bench.report import Budget, Section, Table, percent

LIMITS = {64: 0.12, 512: 0.80}
MEMORY_LIMIT = 200e6
# while it starts, it asks more
SETTLE_SECONDS = 40.0
METHOD = f"""\
`ibpulse gateway` over nodes with {PORTS} ports each, which share a job, without viewers: every two seconds it asks each
node until when the job moved bytes, every five for ports, clock and jobs. One process answers as all nodes, with
recorded answers of a real daemon."""


def run(bench: Bench) -> Section:
    """Measure CPU and memory by the number of nodes."""
    recorded, rows, budgets = record_node(bench), [], []
    for count, limit in LIMITS.items():
        log = bench.new_folder(f"gateway{count}") / "log"
        with answering(bench, recorded, count) as nodes, running_gateway(nodes, log) as gateway:
            # asking for the page of many nodes again and again would keep the gateway from them
            time.sleep(SETTLE_SECONDS)
            before, begun = requests_of(gateway), time.monotonic()
            shares = sorted(measure(gateway, bench.seconds(20.0)) for _ in range(bench.rounds(3)))
            seconds = time.monotonic() - begun
            asked = {name: value - before.get(name, 0.0) for name, value in requests_of(gateway).items()}
            memory = processes.pss_bytes(gateway.pid)
            answering_now = len(answering_nodes(gateway))
            watched = gateway.get("/api/v1/verdicts")["jobs"]
            if [job["armed"] for job in watched] != [True]:
                raise OSError(f"the job of {count} nodes is not watched: {watched}")
        failed = sum(value for name, value in asked.items() if name != "answered")
        share, rate = median(shares), sum(asked.values()) / seconds
        every = " ".join(percent(each, 1) for each in shares)
        figures = [f"{rate:.0f}", f"{failed:.0f}", str(answering_now), f"{memory / 1e6:.0f} MB"]
        rows.append([str(count), percent(share, 1), every, *figures])
        what = f"gateway over {count} nodes without viewers"
        budgets += [
            Budget(what, f"≤ {100 * limit:.0f} % of one core", percent(share, 1), share <= limit),
            Budget(f"its memory over {count} nodes", "≤ 200 MB", f"{memory / 1e6:.0f} MB", memory <= MEMORY_LIMIT),
        ]
    heads = [
        "nodes",
        "gateway, of one core",
        "rounds",
        "requests per second",
        "failed",
        "nodes that answer at the end",
        "memory",
    ]
    return Section("The watch over silent jobs", METHOD, [Table(heads, rows)], [], budgets)
