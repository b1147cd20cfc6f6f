"""Measures how the costs grow as the sampling interval gets shorter, and whether everything keeps up at 1 ms."""

from __future__ import annotations

import time

from bench.bench import PORTS, Bench
from bench.ratios import MIN_ROUNDS, Measured, take_turns
from bench.report import Panel, Picture, Section, Table, microseconds, milliseconds, percent
from bench.served import answer_wait, cpu_shares, memory_bytes, own_account, running_daemon, scraped, watch_stream

INTERVALS_MS = (10, 5, 2, 1)
SETTLE_SECONDS = 4.0
WATCH_SECONDS = 5.0
WINDOW = "/api/v1/window?last=60s&max_points=6000&format="
ANSWERS = {"/metrics": "/metrics", "60 s as JSON": f"{WINDOW}json", "60 s as NPY": f"{WINDOW}npy"}
METHOD = f"""\
A daemon with {PORTS} ports reads them every 10 ms to every 1 ms. CPU and memory are those of both processes, not
scraped. Then it is scraped every second, and a viewer of the live stream counts the samples that its batches leave out,
and how old the newest one is at most. A window of 60 s has 6,000 points; samples captured and the wake-up delay are
those of the whole time."""


def run(bench: Bench) -> Section:
    """A daemon for each interval, in turns."""
    turns = {str(interval): lambda interval=interval: _measure(bench, interval) for interval in INTERVALS_MS}
    rounds = take_turns(turns, (), 0.0, bench.rounds(MIN_ROUNDS) // 2)

    def middle(interval: int, name: str) -> float:
        return rounds.middle(str(interval), name)

    costs = [
        [
            f"{interval} ms",
            microseconds(middle(interval, "sampler") * interval * 1e6),
            *(percent(middle(interval, name)) for name in ("sampler", "main")),
            f"{middle(interval, 'memory') / 1e6:.1f} MB",
            percent(middle(interval, "kept")),
            microseconds(middle(interval, "late") * 1e9),
        ]
        for interval in INTERVALS_MS
    ]
    keeping_up = [
        [
            f"{interval} ms",
            f"{max(rounds.values(str(interval), 'skipped')):.0f} s",
            f"{middle(interval, 'behind'):.2f} s",
            f"{max(rounds.values(str(interval), 'lost')):.0f} of {middle(interval, 'streamed'):,.0f}",
            f"{middle(interval, 'stream behind'):.2f} s",
            *(milliseconds(middle(interval, name)) for name in ANSWERS),
        ]
        for interval in INTERVALS_MS
    ]
    tables = [
        Table(
            ["every", "CPU per sample", "sampler, of one core", "main process", "memory", "captured", "delay p99"],
            costs,
        ),
        Table(
            ["every", "seconds skipped", "age in `/metrics`", "left out by the stream", "age in the stream", *ANSWERS],
            keeping_up,
        ),
    ]
    cpu = {name: [100 * middle(interval, name) for interval in INTERVALS_MS] for name in ("sampler", "main")}
    panels = (
        Panel("CPU, % of a core", cpu),
        Panel("memory, MB", {"": [middle(interval, "memory") / 1e6 for interval in INTERVALS_MS]}),
        Panel("wait for an answer, ms", {name: [1e3 * middle(one, name) for one in INTERVALS_MS] for name in ANSWERS}),
    )
    picture = Picture("growth-interval", "sampling interval, ms", INTERVALS_MS, panels)
    return Section("Growth with the sampling rate", METHOD, tables, picture=picture)


def _measure(bench: Bench, interval_ms: int) -> Measured:
    running = running_daemon(bench, ports=PORTS, history_seconds=300, interval_ms=interval_ms)
    with running as daemon:
        time.sleep(SETTLE_SECONDS)
        shares = cpu_shares(daemon, 5.0)
        memory = memory_bytes(daemon)["both"]
        with scraped(daemon, 1.0):
            streamed = watch_stream(daemon, WATCH_SECONDS)
            waits = {name: answer_wait(daemon, path, 1.0) for name, path in ANSWERS.items()}
        account = own_account(daemon)
    return {
        **shares,
        **waits,
        **account,
        "memory": memory,
        "streamed": streamed.samples,
        "lost": streamed.lost,
        "stream behind": streamed.behind_seconds,
    }
