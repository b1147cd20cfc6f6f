"""The cost of reading signals: the sampler with and without them, in turns."""

from __future__ import annotations

import time
from functools import partial

from bench.bench import MILLISECOND_NS, PORTS, Bench
from bench.cases.loops import COST, SETTLE_SECONDS
from bench.ratios import MIN_ROUNDS, Measured, Rounds, Watched, take_turns
from bench.report import Section, Table, microseconds, percent
from bench.sampler import running_sampler, watch
from ibpulse.core.signals import MAX_SIGNALS

WITHOUT, USUAL, OFTEN = "no signals", "every 100 ms", "every 10 ms"
# milliseconds between two readings of a port
SIGNALS = {WITHOUT: 0, USUAL: 100, OFTEN: 10}
LIMIT_SECONDS = 90.0
METHOD = f"""\
The sampler alone, {PORTS} ports with two byte counters and {MAX_SIGNALS} signals each, the most that a port can have,
in files. The samplers take turns in a random order; values are medians of the rounds, and a ratio is the median of the
ratios of the rounds to the sampler without signals."""


def run(bench: Bench) -> Section:
    """Measure at 10 ms and at 1 ms."""
    rounds = {interval_ms: _measure(bench, interval_ms) for interval_ms in (10, 1)}
    notes = [" and ".join(f"{len(found)} rounds every {ms} ms" for ms, found in rounds.items()) + "."]
    return Section("Signals", METHOD, [_table(ms, found) for ms, found in rounds.items()], notes, [])


def _measure(bench: Bench, interval_ms: int) -> Rounds:
    programs = {name: partial(_sample, bench, interval_ms, ms // interval_ms) for name, ms in SIGNALS.items()}
    watched = [Watched(USUAL, COST, WITHOUT)]
    return take_turns(programs, watched, bench.seconds(LIMIT_SECONDS), bench.rounds(MIN_ROUNDS))


def _sample(bench: Bench, interval_ms: int, signal_ticks: int) -> Measured:
    with running_sampler(bench.new_folder("sampler"), interval_ms * MILLISECOND_NS, PORTS, signal_ticks) as reader:
        time.sleep(SETTLE_SECONDS)
        found = watch(reader, bench.seconds(4.0))
    return {COST: found.cpu_ns_per_tick, "kept": found.kept, "late": found.late_ns(0.99)}


def _table(interval_ms: int, rounds: Rounds) -> Table:
    rows = [
        [
            name,
            microseconds(cost := rounds.middle(name, COST)),
            percent(cost / (interval_ms * MILLISECOND_NS)),
            percent(rounds.middle(name, "kept")),
            microseconds(rounds.middle(name, "late")),
            str(rounds.ratio(name, WITHOUT, COST)),
        ]
        for name in SIGNALS
    ]
    header = [f"samples every {interval_ms} ms, signals", COST, "of one core", "samples captured", "wake-up delay, p99"]
    return Table([*header, "÷ no signals"], rows)
