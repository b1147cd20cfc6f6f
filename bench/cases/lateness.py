"""Wake-up delay and captured samples of the daemon's sampler, compared with the C program, idle and under load."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

from bench import clients, pairs, processes, reference
from bench.bench import PORTS, Bench
from bench.daemon import running_daemon
from bench.machine import stolen_seconds
from bench.report import Budget, Section, Table, microseconds, percent

CLIENTS = 20
LIMIT = 1.5
KEPT_LIMITS = {10: 0.999, 1: 0.99}
METHOD = f"""\
The whole daemon with {PORTS} ports and the C program run at the same time, with the same rule for late samples. Wake-up
delay is the time from the deadline of a sample to the beginning of its first read. The ratio is the median of the
ratios of the rounds. Under load, {CLIENTS} clients request 60 s windows of 6,000 points and scrape `/metrics`, each
without pause, from the same machine."""


def run(bench: Bench) -> Section:
    """Measure at 10 ms and at 1 ms, idle and under load."""
    program = reference.build(bench.new_folder("reference"))
    tables, notes, budgets = [], [], []
    for interval_ms, seconds in ((10, 5.0), (1, 4.0)):
        idle, loaded, note = _measure(bench, program, interval_ms, bench.seconds(seconds))
        tables.append(_table(interval_ms, idle, loaded))
        notes.append(note)
        budgets += [_lateness_budget(interval_ms, "idle", idle), _lateness_budget(interval_ms, "under load", loaded)]
        budgets.append(_kept_budget(interval_ms, loaded))
    return Section("Wake-up delay and samples captured", METHOD, tables, notes, budgets)


def _measure(bench: Bench, program: Path, interval_ms: int, seconds: float) -> tuple[pairs.Pairs, pairs.Pairs, str]:
    """Rounds with an idle daemon, rounds under load, and a sentence about the load."""
    with running_daemon(bench, "daemon", ports=PORTS, interval_ms=interval_ms, history_seconds=70) as daemon:
        arguments = (program, daemon.reader, interval_ms, seconds)
        idle = pairs.Pairs([pairs.measure(*arguments) for _ in range(bench.rounds(4))])
        log, stolen = bench.new_folder("clients") / "answers", stolen_seconds()
        command = [sys.executable, str(clients.__file__), str(daemon.port), str(CLIENTS)]
        with processes.running(command, log):
            loaded = pairs.Pairs([pairs.measure(*arguments) for _ in range(bench.rounds(6))])
        stolen = stolen_seconds() - stolen
    note = f"Every {interval_ms} ms under load: {_answers(log)}. The hypervisor took {stolen:.1f} s of CPU time."
    return idle, loaded, note


def _lateness_budget(interval_ms: int, when: str, rounds: pairs.Pairs) -> Budget:
    ratio = median(rounds.late_ratios())
    what = f"wake-up delay p99 every {interval_ms} ms, {when}"
    return Budget(what, f"≤ {LIMIT} × the C program", f"{ratio:.2f} ×", ratio <= LIMIT)


def _kept_budget(interval_ms: int, rounds: pairs.Pairs) -> Budget:
    sampler, c = rounds.kept()
    limit = KEPT_LIMITS[interval_ms]
    what = f"samples captured every {interval_ms} ms, under load"
    result = f"{percent(sampler / c)} ({percent(sampler)} against {percent(c)})"
    return Budget(what, f"≥ {percent(limit, 1)} of the C program's", result, sampler / c >= limit)


def _table(interval_ms: int, idle: pairs.Pairs, loaded: pairs.Pairs) -> Table:
    rows = []
    for when, rounds in (("idle", idle), ("under load", loaded)):
        ratios = rounds.late_ratios()
        told = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        for which, name, ratio in ((1, "C program", ""), (0, "daemon's sampler", told)):
            late = [microseconds(rounds.late_ns(part)[which]) for part in pairs.PARTS]
            rows.append([f"{name}, {when}", percent(rounds.kept()[which]), *late, ratio])
    return Table([f"every {interval_ms} ms", "samples captured", *pairs.PARTS, "ratio of p99"], rows)


def _answers(log: Path) -> str:
    found = json.loads(log.read_text())
    rates = [f"{what}: {count / found['seconds']:.1f}/s" for what, count in found["answers"].items()]
    return f"{CLIENTS} clients received {', '.join(rates)}"
