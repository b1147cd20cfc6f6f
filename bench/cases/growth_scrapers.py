"""Measures how the costs grow with the number of scrapers."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from statistics import median

import numpy as np

from bench import scrapers
from bench.bench import PORTS, Bench
from bench.ratios import Measured, Rounds
from bench.report import Panel, Picture, Section, Table, milliseconds, percent
from bench.served import Served, cpu_shares, running_daemon

SIZES = (1, 2, 5, 10, 20, 50)
ALONE = "0"
SETTLE_SECONDS = 4.0
SPAN_SECONDS = 5.0
METHOD = f"""\
1 to {SIZES[-1]} scrapers ask one daemon with {PORTS} ports for `/metrics`, each once a second and evenly spread; the
first one that asks has the new seconds aggregated."""


def run(bench: Bench) -> Section:
    """Scrape one daemon by more and more scrapers."""
    rounds = Rounds()
    with running_daemon(bench, ports=PORTS, history_seconds=300) as daemon:
        time.sleep(SETTLE_SECONDS)
        for _ in range(bench.rounds(3)):
            order = random.sample(SIZES, len(SIZES))
            rounds.add({ALONE: _main_share(daemon), **{str(count): _scrape(daemon, count) for count in order}})
    rows = [[ALONE, percent(rounds.middle(ALONE, "main")), "-", "-", "-"]]
    for count in map(str, SIZES):
        main, usual, late, sampler = (rounds.middle(count, name) for name in ("main", "p50", "p99", "sampler"))
        rows.append([count, percent(main), milliseconds(usual), milliseconds(late), percent(sampler)])
    table = Table(["scrapers", "main process, of one core", "wait p50", "wait p99", "sampler, of one core"], rows)
    panels = (
        Panel("main process, % of a core", {"": [100 * rounds.middle(str(count), "main") for count in SIZES]}),
        Panel(
            "wait for a scrape, ms",
            {name: [1e3 * rounds.middle(str(count), name) for count in SIZES] for name in ("p50", "p99")},
        ),
    )
    picture = Picture("growth-scrapers", "scrapers, each once a second", SIZES, panels)
    return Section("Growth with the scrapers", METHOD, [table], picture=picture)


def _main_share(daemon: Served) -> Measured:
    return cpu_shares(daemon, SPAN_SECONDS)


def _scrape(daemon: Served, count: int) -> Measured:
    command = [sys.executable, scrapers.__file__, str(daemon.port), str(count), str(SPAN_SECONDS + 1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        time.sleep(0.5)
        shares = cpu_shares(daemon, SPAN_SECONDS)
        told, _ = process.communicate()
    waits = json.loads(told)
    return {**shares, "p50": median(waits), "p99": float(np.quantile(waits, 0.99))}
