"""Measures how the costs grow with the length of the history."""

from __future__ import annotations

import time

from bench.bench import PORTS, Bench
from bench.ratios import MIN_ROUNDS, Measured, take_turns
from bench.report import Panel, Picture, Section, Table, milliseconds, percent
from bench.served import answer_wait, cpu_shares, first_sample_seconds, memory_bytes, running_daemon

MINUTES = (5, 10, 20, 30, 60)
RECORD_BYTES, SAMPLES_PER_SECOND = 48, 100
SETTLE_SECONDS = 4.0
ANSWERS = {
    "/metrics": "/metrics",
    "60 s as NPY": "/api/v1/window?last=60s&format=npy",
    "all as NPY": "/api/v1/window?last={minutes}m&format=npy&max_points=6000",
}
METHOD = f"""\
A daemon with {PORTS} ports every 10 ms keeps 5 minutes to an hour of raw samples. *All* is a window of the whole
history in 6,000 points. Memory is PSS; the waits are those of one client."""


def run(bench: Bench) -> Section:
    """A daemon for each length, in turns."""
    turns = {str(minutes): lambda minutes=minutes: _measure(bench, minutes) for minutes in MINUTES}
    rounds = take_turns(turns, (), 0.0, bench.rounds(MIN_ROUNDS) // 2)
    rows = []
    for minutes in MINUTES:
        value = {name: rounds.middle(str(minutes), name) for name in ("both", "first sample", "memory", *ANSWERS)}
        ring = minutes * 60 * SAMPLES_PER_SECOND * PORTS * RECORD_BYTES
        rows.append(
            [
                f"{minutes} min",
                f"{ring / 1e6:.1f} MB",
                f"{value['memory'] / 1e6:.1f} MB",
                f"{value['first sample']:.2f} s",
                percent(value["both"]),
                *(milliseconds(value[name]) for name in ANSWERS),
            ]
        )
    header = ["history", "ring", "memory", "start to first sample", "CPU of both, of one core", *ANSWERS]
    panels = (
        Panel("memory, MB", {"": [rounds.middle(str(minutes), "memory") / 1e6 for minutes in MINUTES]}),
        Panel(
            "wait for an answer, ms",
            {name: [1e3 * rounds.middle(str(minutes), name) for minutes in MINUTES] for name in ANSWERS},
        ),
    )
    picture = Picture("growth-history", "minutes of history", MINUTES, panels)
    return Section("Growth with the history", METHOD, [Table(header, rows)], picture=picture)


def _measure(bench: Bench, minutes: int) -> Measured:
    with running_daemon(bench, ports=PORTS, history_seconds=60 * minutes) as daemon:
        first = first_sample_seconds(daemon)
        time.sleep(SETTLE_SECONDS)
        both = cpu_shares(daemon, 5.0)["both"]
        waits = {name: answer_wait(daemon, path.format(minutes=minutes), 1.0) for name, path in ANSWERS.items()}
        return {"first sample": first, "both": both, "memory": memory_bytes(daemon)["both"], **waits}
