"""Measures the cost of the whole daemon: CPU and memory of both processes, idle and scraped."""

from __future__ import annotations

import time

from bench import processes
from bench.bench import PORTS, Bench
from bench.daemon import Daemon, running_daemon
from bench.report import Budget, Section, Table, percent

SCRAPE_SECONDS = 15.0
WINDOWS = 20
CPU_LIMIT = 0.01
PSS_LIMIT_BYTES = 90e6
METHOD = f"""\
`ibpulse serve` with {PORTS} ports every 10 ms and five minutes of history. CPU time of both processes is the kernel's
count; memory is PSS, which divides shared pages (including the ring) among the processes that share them. Wide windows
are {WINDOWS} windows of 60 s, alternating JSON and NPY."""


def run(bench: Bench) -> Section:
    """Measure idle, then scraped every 15 s, then after wide windows."""
    with running_daemon(bench, "daemon", ports=PORTS, history_seconds=300) as daemon:
        time.sleep(3.0)
        idle = _cpu_shares(daemon, bench.seconds(20.0), scrape=False)
        scraped = _cpu_shares(daemon, 4 * bench.seconds(SCRAPE_SECONDS), scrape=True)
        memory = [("after the scrapes", _memory(daemon))]
        for number in range(WINDOWS):
            daemon.get(f"/api/v1/window?last=60s&format={('json', 'npy')[number % 2]}")
        memory.append(("after wide windows", _memory(daemon)))
    cpu_rows = [_cpu_row("not scraped", idle), _cpu_row("scraped every 15 s", scraped)]
    total, pss = sum(scraped), max(sum(both) for _, both in memory)
    budgets = [
        Budget(f"whole daemon, {PORTS} ports every 10 ms", "≤ 1 % of one core", percent(total), total <= CPU_LIMIT),
        Budget("memory of both processes (PSS)", "≤ 90 MB", f"{pss / 1e6:.1f} MB", pss <= PSS_LIMIT_BYTES),
    ]
    tables = [
        Table(["CPU, of one core", "sampler", "main process", "both"], cpu_rows),
        Table(["memory (PSS)", "sampler", "main process", "both"], [_memory_row(*row) for row in memory]),
    ]
    return Section("The whole daemon", METHOD, tables, (), budgets)


def _cpu_shares(daemon: Daemon, seconds: float, *, scrape: bool) -> tuple[float, float]:
    """Share of a core used by the sampler and the main process."""
    pids = (daemon.sampler_pid, daemon.main_pid)
    begun, before = time.monotonic_ns(), [processes.cpu_ns(pid) for pid in pids]
    end = time.monotonic() + seconds
    period = seconds / 4 if scrape else seconds
    while (left := end - time.monotonic()) > 0:
        if scrape:
            daemon.get("/metrics")
        time.sleep(min(period, left))
    elapsed = time.monotonic_ns() - begun
    sampler, main = (processes.cpu_ns(pid) - cpu for pid, cpu in zip(pids, before, strict=True))
    return sampler / elapsed, main / elapsed


def _memory(daemon: Daemon) -> tuple[int, int]:
    return processes.pss_bytes(daemon.sampler_pid), processes.pss_bytes(daemon.main_pid)


def _cpu_row(when: str, shares: tuple[float, float]) -> list[str]:
    return [when, *(percent(share) for share in (*shares, sum(shares)))]


def _memory_row(when: str, sizes: tuple[int, int]) -> list[str]:
    return [when, *(f"{size / 1e6:.1f} MB" for size in (*sizes, sum(sizes)))]
