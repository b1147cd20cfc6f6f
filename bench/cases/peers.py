"""Measures Debian's node_exporter with only the InfiniBand collector, scraped without pause, over the same tree."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import time
from statistics import median

from bench import processes
from bench.bench import NS_PER_SECOND, PORTS, Bench
from bench.report import Section, Table, microseconds, percent
from bench.trees import COUNTERS, write_tree

PROGRAM = "prometheus-node-exporter"
METHOD = f"""\
node_exporter reads the files when it is scraped, and it reads all of them: {len(COUNTERS)} counters of each port and
the port's state. The maximum rate at which it can be scraped therefore limits its resolution. One client scrapes it
back to back over a single connection; {PORTS} ports; only its InfiniBand collector is enabled. It ignores symbolic
links, so its counters are plain files on tmpfs, which are about as fast to read as kernel files; on a real node, a
driver queries the device for each of them."""


def run(bench: Bench) -> Section:
    """Scrapes per second, CPU per scrape."""
    if not shutil.which(PROGRAM):
        return Section("node_exporter", f"{PROGRAM} is not installed on this machine: not measured.")
    folder, port = bench.new_folder("node-exporter"), processes.free_port()
    tree = write_tree(folder / "sys", PORTS, linked=False)
    command = [
        *(PROGRAM, f"--path.sysfs={tree}", f"--web.listen-address=127.0.0.1:{port}"),
        *("--collector.disable-defaults", "--collector.infiniband", "--web.disable-exporter-metrics"),
    ]
    with processes.running(command, folder / "log") as process:
        processes.wait_for(lambda: _answers(port), "node_exporter")
        cpu_ns, waits, samples = _scrape(port, process.pid, bench.seconds(10.0))
    per_scrape = cpu_ns / len(waits)
    rows = [
        ["scrapes per second", f"{len(waits) / sum(waits):.0f}"],
        ["a scrape takes (median)", microseconds(median(waits) * 1e9)],
        ["CPU per scrape", microseconds(per_scrape)],
        ["CPU per scrape and port", microseconds(per_scrape / PORTS)],
        ["InfiniBand samples per scrape", str(samples)],
        ["CPU if scraped every 10 ms", percent(per_scrape * 100 / NS_PER_SECOND, 1) + " of one core"],
    ]
    return Section("node_exporter", METHOD, [Table([_version(), ""], rows)])


def _answers(port: int) -> bool:
    try:
        return b"node_infiniband_port_data_transmitted_bytes_total{" in _get(_connect(port))
    except OSError:
        return False


def _scrape(port: int, pid: int, seconds: float) -> tuple[int, list[float], int]:
    connection, waits = _connect(port), []
    body = _get(connection)
    cpu_ns, end = processes.cpu_ns(pid), time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        body = _get(connection)
        waits.append(time.perf_counter() - begun)
    cpu_ns = processes.cpu_ns(pid) - cpu_ns
    return cpu_ns, waits, sum(line.startswith(b"node_infiniband_") for line in body.splitlines())


def _connect(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=30)


def _get(connection: http.client.HTTPConnection) -> bytes:
    connection.request("GET", "/metrics")
    return connection.getresponse().read()


def _version() -> str:
    answer = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    words = (answer.stdout + answer.stderr).split()
    return f"node_exporter {words[words.index('version') + 1]}"
