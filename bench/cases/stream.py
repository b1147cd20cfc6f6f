"""Measures the cost of a viewer of the live stream, and whether ten viewers and frequent scrapes delay the sampler."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from statistics import median

from bench import pairs, processes, reference, viewers
from bench.bench import PORTS, Bench
from bench.daemon import Daemon, running_daemon
from bench.report import Budget, Section, Table, microseconds, percent

VIEWERS = (0, 1, 10)
MOST = VIEWERS[-1]
COST_LIMIT, FIRST_COST_LIMIT = 0.005, 0.004
LATE_LIMIT = 1.5
KEPT_LIMIT = 0.999
SCRAPE_SECONDS = 1.0
METHOD = f"""\
{PORTS} ports, every 10 ms, batches every 200 ms. The viewers are a single process that reads and discards all events. A
viewer costs the CPU time of the main process with {MOST} viewers, minus that without, divided by {MOST}; the first one,
which starts the shared work, is listed separately. Then the C program runs next to the daemon with {MOST} viewers and
one client that scrapes every second."""


def run(bench: Bench) -> Section:
    """Measure the cost by number of viewers, then wake-up delay and captured samples compared with the C program."""
    program = reference.build(bench.new_folder("reference"))
    with running_daemon(bench, "daemon", ports=PORTS, history_seconds=70) as daemon:
        time.sleep(2.0)
        shares: dict[int, list[float]] = {count: [] for count in VIEWERS}
        for _ in range(bench.rounds(3)):
            for count in VIEWERS:
                shares[count].append(_main_share(bench, daemon, count, bench.seconds(20.0)))
        cost = {count: median(found) for count, found in shares.items()}
        rounds, rate = _beside(bench, program, daemon)
    each = (cost[MOST] - cost[0]) / MOST
    first = cost[1] - cost[0]
    late, (kept, c_kept) = median(rounds.late_ratios()), rounds.kept()
    budgets = [
        Budget(f"a viewer of the stream, of {MOST}", "≤ 0.5 % of one core", percent(each, 3), each <= COST_LIMIT),
        Budget("the first viewer of the stream", "≤ 0.4 % of one core", percent(first, 3), first <= FIRST_COST_LIMIT),
        Budget(
            f"wake-up delay p99, {MOST} viewers, scraped every 1 s",
            "≤ 1.5 × the C program",
            f"{late:.2f} ×",
            late <= LATE_LIMIT,
        ),
        Budget(
            f"samples captured, {MOST} viewers, scraped every 1 s",
            "≥ 99.9 % of the C program's",
            f"{percent(kept / c_kept)} ({percent(kept)} against {percent(c_kept)})",
            kept / c_kept >= KEPT_LIMIT,
        ),
    ]
    rows = [[str(count), percent(cost[count], 3)] for count in VIEWERS]
    tables = [Table(["viewers", "main process, of one core"], rows), _lateness(rounds)]
    return Section("The live stream", METHOD, tables, [f"A viewer received {rate / 1e3:.1f} kB/s."], budgets)


def _main_share(bench: Bench, daemon: Daemon, count: int, seconds: float) -> float:
    """Fraction of a core used by the main process with this number of viewers."""
    if not count:
        return _share(daemon, seconds)
    log = bench.new_folder("viewers") / "log"
    with processes.running(_command(daemon, count), log):
        processes.wait_for(lambda: "watching" in log.read_text(), f"{count} viewers")
        return _share(daemon, seconds)


def _share(daemon: Daemon, seconds: float) -> float:
    begun, cpu_ns = time.monotonic_ns(), processes.cpu_ns(daemon.main_pid)
    time.sleep(seconds)
    return (processes.cpu_ns(daemon.main_pid) - cpu_ns) / (time.monotonic_ns() - begun)


def _beside(bench: Bench, program: Path, daemon: Daemon) -> tuple[pairs.Pairs, float]:
    """Rounds with the C program under viewers and scrapes, and the bytes per second received by one viewer."""
    log, stop = bench.new_folder("viewers") / "log", threading.Event()
    scraper = threading.Thread(target=_scrape, args=(daemon, stop))
    with processes.running(_command(daemon, MOST), log):
        processes.wait_for(lambda: "watching" in log.read_text(), "the viewers")
        scraper.start()
        try:
            found = pairs.Pairs(
                [pairs.measure(program, daemon.reader, 10, bench.seconds(10.0)) for _ in range(bench.rounds(6))]
            )
        finally:
            stop.set()
            scraper.join()
    told = json.loads(log.read_text().splitlines()[-1])
    return found, told["bytes"] / told["seconds"] / MOST


def _scrape(daemon: Daemon, stop: threading.Event) -> None:
    while not stop.wait(SCRAPE_SECONDS):
        daemon.get("/metrics")


def _command(daemon: Daemon, count: int) -> list[str]:
    return [sys.executable, str(viewers.__file__), str(daemon.port), str(count)]


def _lateness(rounds: pairs.Pairs) -> Table:
    rows = []
    for which, name in ((1, "C program"), (0, "daemon's sampler")):
        late = [microseconds(rounds.late_ns(part)[which]) for part in pairs.PARTS]
        rows.append([name, percent(rounds.kept()[which]), *late])
    return Table([f"with {MOST} viewers", "samples captured", *pairs.PARTS], rows)
