"""What a node pays for the whole daemon, compared with the C program."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from bench import processes, reference
from bench.bench import MILLISECOND_NS, PORTS, Bench
from bench.ratios import MIN_ROUNDS, Measured, Rounds, Watched, repeat, take_turns
from bench.report import Budget, Section, Table, microseconds, milliseconds, percent
from bench.served import (
    CpuWatch,
    Served,
    answer_seconds,
    cpu_shares,
    first_sample_seconds,
    memory_bytes,
    own_account,
    running_daemon,
    scraped,
    watched,
)

DAEMON, WITHOUT, C = "ibpulse", "ibpulse without signals", "C program"
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
TOTAL, NPY = f"{EVERY_15S}: both", "window as NPY"
WATCHED = (Watched(DAEMON, TOTAL, C), Watched(WITHOUT, TOTAL, C))
HISTORY_SECONDS = 300
SETTLE_SECONDS = 4.0
# unscraped, statistics are computed every five seconds, so each span is a multiple of that
SPAN_SECONDS = 5.0
LIMIT_SECONDS = 360.0
WINDOWS = 20
INTERVAL_NS = 10 * MILLISECOND_NS
# the C program wakes between two samples of the daemon
C_PHASE_NS = 6 * MILLISECOND_NS
C_BUDGETS = ((WITHOUT, "whole daemon without signals", 2.7), (DAEMON, "whole daemon with signals", 3.5))
MAX_NPY_SECONDS, MAX_SERIES = 2.3e-3, 1250
MAX_PSS_BYTES, MAX_FIRST_SAMPLE_SECONDS = 90e6, 1.5
METHOD = f"""\
`ibpulse serve` with {PORTS} ports, every 10 ms, and five minutes of history. Values are medians of rounds; a ratio is
the median of the ratios of the rounds, with its 95 % interval, marked if it is wider than ±5 %.

- *CPU*, the kernel's count for both processes, at the same time as the C program, which reads the same files. The
  viewers are those of the live page.
- *Server time*, CPU of the main process per answer: one client asks without pause.
- *Memory and start*: of a daemon started anew, with compiled modules, as PSS, which divides shared pages, after
  {WINDOWS} windows of 60 s."""


def run(bench: Bench) -> Section:
    """Measure the daemon and the C program."""
    # the first start compiles the modules
    _start(bench)
    alone = take_turns({DAEMON: partial(_start, bench)}, (), 0.0, bench.rounds(MIN_ROUNDS) // 2 + 1)
    program = reference.build(bench.new_folder("reference"))
    size = {"ports": PORTS, "history_seconds": HISTORY_SECONDS}
    with running_daemon(bench, **size) as daemon, running_daemon(bench, **size, signals=False) as without:
        measure = partial(_round, bench, daemon, without, program)
        together = repeat(measure, WATCHED, bench.seconds(LIMIT_SECONDS), bench.rounds(MIN_ROUNDS))
    notes = [f"{len(together)} rounds of CPU and answers, {len(alone)} of memory and start."]
    return Section("What a node pays", METHOD, _tables(alone, together), notes, _budgets(alone, together))


def _start(bench: Bench) -> Measured:
    """Start, memory and size of one daemon that runs alone."""
    with running_daemon(bench, ports=PORTS, history_seconds=HISTORY_SECONDS) as daemon:
        first = first_sample_seconds(daemon)
        time.sleep(SETTLE_SECONDS)
        for number in range(WINDOWS):
            processes.get(daemon.port, f"{WINDOW}{('json', 'npy')[number % 2]}")
        memory = {f"memory: {name}": size for name, size in memory_bytes(daemon).items()}
        return {"first sample": first, "series": own_account(daemon)["series"], **memory}


def _round(bench: Bench, daemon: Served, without: Served, program: Path) -> dict[str, Measured]:
    """CPU in every case, and answers."""
    found: dict[str, float] = {}

    def watch(case: str, seconds: float) -> None:
        watching = CpuWatch(daemon)
        time.sleep(seconds)
        found.update({f"{case}: {process}": share for process, share in watching.stop().items()})

    watch(NOT_SCRAPED, 2 * SPAN_SECONDS)
    with scraped(daemon, 15.0), scraped(without, 15.0), ThreadPoolExecutor() as threads:
        together = threads.submit(reference.run, program, INTERVAL_NS, 3 * SPAN_SECONDS, PORTS, C_PHASE_NS)
        beside = threads.submit(cpu_shares, without, 3 * SPAN_SECONDS)
        watch(EVERY_15S, 3 * SPAN_SECONDS)
        share_of_c = together.result().cpu_ns_per_tick / INTERVAL_NS
    with scraped(daemon, 1.0):
        watch(EVERY_1S, SPAN_SECONDS)
        for case, viewers in ((ONE_VIEWER, 1), (TEN_VIEWERS, 10)):
            with watched(bench, daemon, viewers):
                watch(case, SPAN_SECONDS)
    for answer, path in ANSWERS.items():
        found[answer] = answer_seconds(daemon, path, 1.0, found[f"{NOT_SCRAPED}: main"])
    return {
        DAEMON: found | own_account(daemon),
        WITHOUT: {f"{EVERY_15S}: {process}": share for process, share in beside.result().items()},
        C: {TOTAL: share_of_c},
    }


def _tables(alone: Rounds, together: Rounds) -> list[Table]:
    cpu = [
        [f"{case}, {process}", percent(together.middle(DAEMON, f"{case}: {process}"))]
        for case in CPU_CASES
        for process in PROCESSES
    ]
    cpu += [
        [f"{EVERY_15S}, {process}, without signals", percent(together.middle(WITHOUT, f"{EVERY_15S}: {process}"))]
        for process in PROCESSES
    ]
    others = [
        *([f"memory, {process}", _megabytes(alone.middle(DAEMON, f"memory: {process}"))] for process in PROCESSES),
        ["time series", f"{alone.middle(DAEMON, 'series'):,.0f}"],
        ["start to first sample", f"{alone.middle(DAEMON, 'first sample'):.2f} s"],
        ["samples captured", percent(together.middle(DAEMON, "kept"))],
        ["wake-up delay, p99", microseconds(together.middle(DAEMON, "late") * 1e9)],
        *([f"server time of {name}", milliseconds(together.middle(DAEMON, name))] for name in ANSWERS),
    ]
    return [Table(["CPU", "of one core"], cpu), Table(["", DAEMON], others)]


def _budgets(alone: Rounds, together: Rounds) -> list[Budget]:
    npy = together.middle(DAEMON, NPY)
    memory, first, series = (alone.middle(DAEMON, quantity) for quantity in ("memory: both", "first sample", "series"))
    return [
        *(
            Budget(
                f"{what}, {PORTS} ports every 10 ms, {EVERY_15S}",
                f"≤ {limit:g} × the C program",
                str(ratio := together.ratio(name, C, TOTAL)),
                ratio.value <= limit,
            )
            for name, what, limit in C_BUDGETS
        ),
        Budget("memory of both processes (PSS)", "≤ 90 MB", _megabytes(memory), memory <= MAX_PSS_BYTES),
        Budget("start to first sample", "≤ 1.5 s", f"{first:.2f} s", first <= MAX_FIRST_SAMPLE_SECONDS),
        Budget(
            f"window of 60 s × {PORTS} ports as NPY",
            "≤ 2.3 ms of server time",
            milliseconds(npy),
            npy <= MAX_NPY_SECONDS,
        ),
        Budget("time series of the node", f"≤ {MAX_SERIES:,}", f"{series:,.0f}", series <= MAX_SERIES),
    ]


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.1f} MB"
