"""The cost of one sample: the sampler, the C program, and loops in Python from the smallest to the usual."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import reference
from bench.bench import MILLISECOND_NS, PORTS, Bench
from bench.ratios import MIN_ROUNDS, Measured, Rounds, Watched, repeat
from bench.report import Budget, Section, Table, microseconds, percent
from bench.sampler import SamplerRun, running_sampler, watch

C, SMALLEST, SAMPLER, NAIVE, MONEO = "C program", "smallest loop", "ibpulse's sampler", "naive loop", "Moneo's loop"
COST = "CPU per sample"
WATCHED = (Watched(SAMPLER, COST, SMALLEST), Watched(SAMPLER, COST, C))
SETTLE_SECONDS = 0.5
LIMIT_SECONDS = {10: 150.0, 1: 60.0}
MIN_LIMIT, C_LIMIT = 1.3, 1.5
METHOD = f"""\
{PORTS} ports, two counters each. CPU time is the kernel's count while the program samples, including sleeping and
waking, divided by the number of samples. The C program, the smallest loop and the sampler run at the same time, each a
third of an interval after the other; a ratio wider than ±5 % is marked.

- *C program*: sleeps, reads with `pread`, and stores the same records as the sampler.
- *Smallest loop*: Python that sleeps and reads, `int(os.pread(...))`, and does nothing else.
- *Naive loop*: opens, reads and closes each file, and then sleeps for the interval.
- *Moneo's loop*: as the network exporter of Azure's Moneo 0.3.5 does it every 100 ms: seven files of each port that
  stay open, read as text, a gauge of the client library for each."""


def run(bench: Bench) -> Section:
    """Measure at 10 ms all programs, and at 1 ms those with deadlines."""
    program = reference.build(bench.new_folder("reference"))
    every_10ms = _measure(bench, program, 10, (C, SMALLEST, SAMPLER, NAIVE, MONEO))
    every_1ms = _measure(bench, program, 1, (C, SMALLEST, SAMPLER))
    budgets = [
        budget
        for interval_ms, rounds in ((10, every_10ms), (1, every_1ms))
        for budget in (
            _budget(rounds, interval_ms, SMALLEST, MIN_LIMIT),
            _budget(rounds, interval_ms, C, C_LIMIT),
        )
    ]
    tables = [
        _table(10, every_10ms, (C, SMALLEST, SAMPLER, NAIVE, MONEO)),
        _table(1, every_1ms, (C, SMALLEST, SAMPLER)),
    ]
    notes = [f"{len(every_10ms)} rounds every 10 ms, {len(every_1ms)} every 1 ms."]
    return Section("One sample", METHOD, tables, notes, budgets)


def _measure(bench: Bench, program: Path, interval_ms: int, names: tuple[str, ...]) -> Rounds:
    interval_ns, seconds = interval_ms * MILLISECOND_NS, bench.seconds(4.0)

    def measure() -> dict[str, Measured]:
        with (
            running_sampler(bench.new_folder("sampler"), interval_ns, PORTS) as reader,
            ThreadPoolExecutor() as threads,
        ):
            time.sleep(SETTLE_SECONDS)
            c = threads.submit(reference.run, program, interval_ns, seconds, PORTS, interval_ns // 3)
            smallest = threads.submit(reference.run_smallest, interval_ns, seconds, PORTS, 2 * interval_ns // 3)
            sampler = watch(reader, seconds)
            found = {C: _of_c(c.result()), SMALLEST: _of_loop(smallest.result()), SAMPLER: _of_sampler(sampler)}
        if NAIVE in names:
            found[NAIVE] = _of_loop(reference.run_naive(interval_ns, seconds / 2, PORTS))
            found[MONEO] = _of_loop(reference.run_moneo(interval_ns, seconds / 2, PORTS))
        return found

    return repeat(measure, WATCHED, bench.seconds(LIMIT_SECONDS[interval_ms]), bench.rounds(MIN_ROUNDS))


def _of_sampler(found: SamplerRun) -> Measured:
    return {COST: found.cpu_ns_per_tick, "kept": found.kept}


def _of_c(found: reference.ReferenceRun) -> Measured:
    return {COST: found.cpu_ns_per_tick, "kept": found.kept}


def _of_loop(found: dict[str, float]) -> Measured:
    return {COST: found["cpu_ns_per_tick"], "kept": found["ticks"] / found["wanted"]}


def _budget(rounds: Rounds, interval_ms: int, against: str, limit: float) -> Budget:
    ratio = rounds.ratio(SAMPLER, against, COST)
    what = f"CPU of one sample, {PORTS} ports × 2 counters, every {interval_ms} ms"
    return Budget(what, f"≤ {limit} × the {against}", str(ratio), ratio.value <= limit)


def _table(interval_ms: int, rounds: Rounds, names: tuple[str, ...]) -> Table:
    rows = []
    for name in names:
        cost = rounds.middle(name, COST)
        share = percent(cost / (interval_ms * MILLISECOND_NS))
        kept = percent(rounds.middle(name, "kept"))
        rows.append(
            [name, microseconds(cost), share, kept, *(str(rounds.ratio(name, to, COST)) for to in (C, SMALLEST))]
        )
    header = [f"every {interval_ms} ms", COST, "of one core", "samples captured", "÷ C program", "÷ smallest loop"]
    return Table(header, rows)
