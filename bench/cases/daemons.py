"""What a node pays for the whole daemon: this version, compared with version 0.1 and the C program."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import processes, reference
from bench.bench import MILLISECOND_NS, PORTS, Bench
from bench.ratios import LEAST_ROUNDS, Measured, Rounds, Watched, repeat, take_turns
from bench.released import NotInstalledError, Served, Version, released_version, running_version, this_version
from bench.report import Budget, Section, Table, microseconds, milliseconds, percent
from bench.served import (
    CpuWatch,
    answer_seconds,
    first_sample_seconds,
    memory_bytes,
    own_account,
    scraped,
    watched,
)

THIS, RELEASED, C = "this version", "0.1", "C program"
NOT_SCRAPED, EVERY_15S, EVERY_1S, ONE_VIEWER, TEN_VIEWERS = (
    "not scraped",
    "scraped every 15 s",
    "scraped every 1 s",
    "scraped every 1 s, one viewer",
    "scraped every 1 s, ten viewers",
)
CPU_CASES = (NOT_SCRAPED, EVERY_15S, EVERY_1S, ONE_VIEWER, TEN_VIEWERS)
PROCESSES = ("sampler", "main", "both")
WINDOW = "/api/v1/window?last=60s&format="
ANSWERS = {"`/metrics`": "/metrics", "window as NPY": f"{WINDOW}npy", "window as JSON": f"{WINDOW}json"}
TOTAL, MAIN, NPY = f"{EVERY_15S}: both", f"{EVERY_15S}: main", "window as NPY"
WATCHED = tuple(Watched(THIS, quantity, RELEASED) for quantity in (TOTAL, MAIN, NPY))
HISTORY_SECONDS = 300
SETTLE_SECONDS = 4.0
# unscraped, statistics are computed every five seconds, so each span is a multiple of that
SPAN_SECONDS = 5.0
LIMIT_SECONDS = 360.0
WINDOWS = 20
INTERVAL_NS = 10 * MILLISECOND_NS
# the C program wakes between two samples of the daemons
C_PHASE_NS = 6 * MILLISECOND_NS
CPU_LIMIT, TOTAL_LIMIT, MAIN_LIMIT, NPY_LIMIT, METRICS_LIMIT, C_AIM = 0.01, 0.6, 0.5, 0.6, 1.0, 3.0
PSS_LIMIT_BYTES, FIRST_SAMPLE_LIMIT_SECONDS = 80e6, 1.5
METHOD = f"""\
`ibpulse serve` on a node with {PORTS} ports, every 10 ms, with five minutes of history; nothing else is set. Version
0.1 is the code that was released, with the libraries of that time. Values are medians of rounds; a ratio is the median
of the ratios of the rounds, with its 95 % interval. Rounds are repeated until the intervals of the budgets are within
±5 %, or time is up; a ratio that is still wider is marked.

- *CPU*, the kernel's count for both processes: both versions and the C program run at the same time, and so share what
  the machine does; all of them are scraped or watched in the same way at the same time. The viewers are those of the
  live page.
- *Server time*, CPU of the main process per answer: one client asks without pause, each version in turn.
- *Memory and start*: one version at a time, started anew. Memory is PSS, which divides shared pages, including the
  ring, among the processes that share them, after {WINDOWS} windows of 60 s."""


def run(bench: Bench) -> Section:
    """Measure both versions and the C program; without version 0.1, this version and the C program."""
    versions, notes = {THIS: this_version()}, []
    try:
        versions[RELEASED] = released_version()
    except NotInstalledError as error:
        notes.append(f"Version 0.1 could not be installed here, so nothing is compared with it: {error}.")
    compared = RELEASED in versions
    starts = {name: partial(_start, bench, version) for name, version in versions.items()}
    alone = take_turns(starts, (), 0.0, bench.rounds(LEAST_ROUNDS) // 2 + 1)
    with ExitStack() as running:
        daemons = {
            name: running.enter_context(running_version(bench, version, ports=PORTS, history_seconds=HISTORY_SECONDS))
            for name, version in versions.items()
        }
        measure = partial(_round, bench, daemons, reference.build(bench.new_folder("reference")))
        limit = bench.seconds(LIMIT_SECONDS)
        together = repeat(measure, WATCHED if compared else (), limit, bench.rounds(LEAST_ROUNDS))
    notes.insert(0, f"{len(together)} rounds of CPU and answers, {len(alone)} of memory and start.")
    tables = _tables(alone, together, compared)
    return Section("What a node pays", METHOD, tables, notes, _budgets(alone, together, compared))


def _start(bench: Bench, version: Version) -> Measured:
    """Start, memory and size of one daemon that runs alone."""
    with running_version(bench, version, ports=PORTS, history_seconds=HISTORY_SECONDS) as daemon:
        first = first_sample_seconds(daemon)
        time.sleep(SETTLE_SECONDS)
        for number in range(WINDOWS):
            processes.get(daemon.port, f"{WINDOW}{('json', 'npy')[number % 2]}")
        memory = {f"memory: {name}": size for name, size in memory_bytes(daemon).items()}
        return {"first sample": first, "series": own_account(daemon)["series"], **memory}


def _round(bench: Bench, daemons: Mapping[str, Served], program: Path) -> dict[str, Measured]:
    """CPU in every case, and answers, of daemons that run at the same time."""
    found: dict[str, dict[str, float]] = {name: {} for name in daemons}

    def watch(case: str, seconds: float) -> None:
        watching = {name: CpuWatch(daemon) for name, daemon in daemons.items()}
        time.sleep(seconds)
        for name, one in watching.items():
            found[name].update({f"{case}: {process}": share for process, share in one.stop().items()})

    with ExitStack() as asked, ThreadPoolExecutor() as threads:
        watch(NOT_SCRAPED, 2 * SPAN_SECONDS)
        for daemon in daemons.values():
            asked.enter_context(scraped(daemon, 15.0))
        beside = threads.submit(reference.run, program, INTERVAL_NS, 3 * SPAN_SECONDS, PORTS, C_PHASE_NS)
        watch(EVERY_15S, 3 * SPAN_SECONDS)
        share_of_c = beside.result().cpu_ns_per_tick / INTERVAL_NS
    with ExitStack() as asked:
        for daemon in daemons.values():
            asked.enter_context(scraped(daemon, 1.0))
        watch(EVERY_1S, SPAN_SECONDS)
        for case, viewers in ((ONE_VIEWER, 1), (TEN_VIEWERS, 10)):
            with ExitStack() as viewed:
                for daemon in daemons.values():
                    viewed.enter_context(watched(bench, daemon, viewers))
                watch(case, SPAN_SECONDS)
    for answer, path in ANSWERS.items():
        for name in random.sample(list(daemons), len(daemons)):
            found[name][answer] = answer_seconds(daemons[name], path, 1.0, found[name][f"{NOT_SCRAPED}: main"])
    for name, daemon in daemons.items():
        found[name].update(own_account(daemon))
    return {**found, C: {TOTAL: share_of_c}}


def _tables(alone: Rounds, together: Rounds, compared: bool) -> list[Table]:
    def row(rounds: Rounds, what: str, quantity: str, show: Callable[[float], str]) -> list[str]:
        cells = [what, show(rounds.middle(THIS, quantity))]
        if compared:
            cells += [show(rounds.middle(RELEASED, quantity)), str(rounds.ratio(THIS, RELEASED, quantity))]
        return cells

    names = [THIS, *(["version 0.1", "this ÷ 0.1"] if compared else [])]
    cpu = [
        row(together, f"{case}, {process}", f"{case}: {process}", percent)
        for case in CPU_CASES
        for process in PROCESSES
    ]
    others = [
        *(row(alone, f"memory, {process}", f"memory: {process}", _megabytes) for process in PROCESSES),
        row(alone, "time series", "series", lambda value: f"{value:,.0f}"),
        row(alone, "start to first sample", "first sample", lambda value: f"{value:.2f} s"),
        row(together, "samples captured", "kept", percent),
        row(together, "wake-up delay, p99", "late", lambda value: microseconds(value * 1e9)),
        *(row(together, f"server time of {name}", name, milliseconds) for name in ANSWERS),
    ]
    return [Table(["CPU, of one core", *names], cpu), Table(["", *names], others)]


def _budgets(alone: Rounds, together: Rounds, compared: bool) -> list[Budget]:
    def against(what: str, quantity: str, limit: float) -> Budget:
        told = f"≤ {limit:g} × version 0.1"
        if not compared:
            return Budget(what, told, "-", None)
        ratio = together.ratio(THIS, RELEASED, quantity)
        return Budget(what, told, str(ratio), ratio.value <= limit)

    total, c_ratio = together.middle(THIS, TOTAL), together.ratio(THIS, C, TOTAL)
    memory, first = (alone.middle(THIS, quantity) for quantity in ("memory: both", "first sample"))
    node = f"{PORTS} ports every 10 ms, {EVERY_15S}"
    return [
        against(f"whole daemon, {node}", TOTAL, TOTAL_LIMIT),
        Budget(f"whole daemon, {node}", "≤ 1 % of one core", percent(total), total <= CPU_LIMIT),
        Budget(f"whole daemon, {node}", f"≤ {C_AIM:g} × the C program (aim)", str(c_ratio), c_ratio.value <= C_AIM),
        against(f"main process, {node}", MAIN, MAIN_LIMIT),
        Budget("memory of both processes (PSS)", "≤ 80 MB", _megabytes(memory), memory <= PSS_LIMIT_BYTES),
        Budget("start to first sample", "≤ 1.5 s", f"{first:.2f} s", first <= FIRST_SAMPLE_LIMIT_SECONDS),
        against(f"window of 60 s × {PORTS} ports as NPY, server time", NPY, NPY_LIMIT),
        against("`/metrics`, server time", "`/metrics`", METRICS_LIMIT),
    ]


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.1f} MB"
