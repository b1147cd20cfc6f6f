"""Measures the samples that many busy clients cost, compared with an idle daemon beside the loaded one."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from statistics import median

from bench import clients, processes
from bench.bench import PORTS, Bench
from bench.daemon import Daemon, running_daemon
from bench.report import Budget, Section, Table, percent
from ibpulse.core.ring import layout as at

CLIENTS, ROUNDS, ROUND_SECONDS = 64, 5, 20.0
PATHS = ("/metrics", "/api/v1/window?last=10s&max_points=500")
MAX_LOST = 0.005
METHOD = f"""\
Two daemons sample {PORTS} ports every 10 ms. {CLIENTS} clients with niceness 19 request `/metrics` and windows of 10 s
of one of them over persistent connections, each without pause; the other answers nobody. Samples lost is the
difference between the samples that the two took, as a share of those of the idle one."""


def run(bench: Bench) -> Section:
    """Measure some rounds of load."""
    with ExitStack() as stack:
        loaded, idle = (
            stack.enter_context(running_daemon(bench, name, ports=PORTS, history_seconds=15))
            for name in ("loaded", "idle")
        )
        rounds = [_measure(bench, loaded, idle) for _ in range(bench.rounds(ROUNDS))]
    lost = [1 - ours / theirs for ours, theirs in rounds]
    table = Table(
        ["round", "samples per port, loaded", "idle", "lost"],
        [
            [str(number), str(one[0]), str(one[1]), percent(part)]
            for number, (one, part) in enumerate(zip(rounds, lost, strict=True), 1)
        ],
    )
    middle = median(lost)
    what = f"samples lost beside {CLIENTS} busy clients, median"
    return Section("Clients", METHOD, [table], (), [Budget(what, "≤ 0.5 %", percent(middle), middle <= MAX_LOST)])


def _measure(bench: Bench, loaded: Daemon, idle: Daemon) -> tuple[int, int]:
    """Samples per port that the loaded and the idle daemon took in one round."""
    command = ["nice", "-n", "19", sys.executable, str(clients.__file__), str(loaded.port), str(CLIENTS), *PATHS]
    with processes.running(command, bench.new_folder("clients") / "answers"):
        time.sleep(1.0)
        before = _samples(loaded), _samples(idle)
        time.sleep(bench.seconds(ROUND_SECONDS))
        after = _samples(loaded), _samples(idle)
    return after[0] - before[0], after[1] - before[1]


def _samples(daemon: Daemon) -> int:
    return daemon.reader.ring.words[at.lane_at(0) + at.L_TICKS]
