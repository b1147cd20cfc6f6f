"""Exporters that read the counters when they are scraped, compared with this daemon, which samples all the time."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from bench import client_library_exporter, processes
from bench.bench import NS_PER_SECOND, PORTS, Bench
from bench.ratios import MIN_ROUNDS, Measured, Rounds, Watched, take_turns
from bench.report import Section, Table, microseconds, percent
from bench.served import cpu_shares, running_daemon
from bench.trees import COUNTERS, write_tree

NODE_EXPORTER, CLIENT_LIBRARY, IBPULSE = "node_exporter", "client library", "ibpulse"
PROGRAM = "prometheus-node-exporter"
SCRAPE, WAIT, SAMPLES, SHARE = "CPU of a scrape", "a scrape takes", "samples of a scrape", "share of a core"
SCRAPES_PER_SECOND = 100
LIMIT_SECONDS = 60.0
METHOD = f"""\
For a resolution of 10 ms, an exporter that reads when it is scraped would have to be scraped {SCRAPES_PER_SECOND} times
a second. {PORTS} ports; one client scrapes without pause. *node_exporter* with only its InfiniBand collector reads
{len(COUNTERS)} counters of each port and the port's state; *client library* reads the same in Python. The counters are
plain files on tmpfs; on a real node, a driver queries the device. *ibpulse* is the whole daemon, not scraped."""


def run(bench: Bench) -> Section:
    """Scrapes of both exporters and the cost of the daemon, in turns."""
    turns: dict[str, Callable[[], Measured]] = {
        IBPULSE: partial(_daemon, bench),
        CLIENT_LIBRARY: partial(_client, bench),
    }
    notes = []
    if shutil.which(PROGRAM):
        turns[NODE_EXPORTER] = partial(_node_exporter, bench)
        notes.append(f"This was {_version()}.")
    else:
        notes.append(f"{PROGRAM} is not installed on this machine: not measured.")
    names = [name for name in (CLIENT_LIBRARY, NODE_EXPORTER) if name in turns]
    watched = [Watched(name, SHARE, IBPULSE) for name in names]
    rounds = take_turns(turns, watched, bench.seconds(LIMIT_SECONDS), bench.rounds(MIN_ROUNDS))
    return Section(
        "Exporters that read when scraped", METHOD, [_table(rounds, names)], [f"{len(rounds)} rounds.", *notes]
    )


def _table(rounds: Rounds, names: list[str]) -> Table:
    rows = [
        [
            name,
            microseconds(rounds.middle(name, SCRAPE) * 1e9),
            microseconds(rounds.middle(name, WAIT) * 1e9),
            f"{rounds.middle(name, SAMPLES):.0f}",
            percent(rounds.middle(name, SHARE), 1),
            str(rounds.ratio(name, IBPULSE, SHARE)),
        ]
        for name in names
    ]
    rows.append([IBPULSE, "-", "-", "-", percent(rounds.middle(IBPULSE, SHARE), 1), "-"])
    return Table(["exporter", SCRAPE, WAIT, SAMPLES, "of one core for 10 ms", "÷ ibpulse"], rows)


def _daemon(bench: Bench) -> Measured:
    with running_daemon(bench, ports=PORTS, history_seconds=60) as daemon:
        time.sleep(bench.seconds(4.0))
        return {SHARE: cpu_shares(daemon, bench.seconds(5.0))["both"]}


def _client(bench: Bench) -> Measured:
    tree, port = write_tree(bench.new_folder("exporter") / "sys", PORTS, linked=False), processes.free_port()
    command = [sys.executable, client_library_exporter.__file__, str(tree), str(port)]
    return _scrape(bench, command, port, b"ib_port_xmit_data_total{")


def _node_exporter(bench: Bench) -> Measured:
    tree, port = write_tree(bench.new_folder("exporter") / "sys", PORTS, linked=False), processes.free_port()
    command = [
        *(PROGRAM, f"--path.sysfs={tree}", f"--web.listen-address=127.0.0.1:{port}"),
        *("--collector.disable-defaults", "--collector.infiniband", "--web.disable-exporter-metrics"),
    ]
    return _scrape(bench, command, port, b"node_infiniband_port_data_transmitted_bytes_total{")


def _scrape(bench: Bench, command: list[str], port: int, expected: bytes) -> Measured:
    """Scrape without pause an exporter that this command starts; `expected` is in its page."""

    def answers() -> bool:
        try:
            return expected in processes.get(port, "/metrics")
        except OSError:
            return False

    with processes.running(command, bench.new_folder("log") / "log") as process:
        processes.wait_for(answers, command[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        waits: list[float] = []
        body = b""
        cpu_ns, end = processes.cpu_ns(process.pid), time.perf_counter() + bench.seconds(2.0)
        while (begun := time.perf_counter()) < end:
            connection.request("GET", "/metrics")
            body = connection.getresponse().read()
            waits.append(time.perf_counter() - begun)
        cpu_ns = processes.cpu_ns(process.pid) - cpu_ns
    cost = cpu_ns / len(waits) / NS_PER_SECOND
    samples = sum(not line.startswith(b"#") for line in body.splitlines())
    return {SCRAPE: cost, WAIT: median(waits), SAMPLES: samples, SHARE: cost * SCRAPES_PER_SECOND}


def _version() -> str:
    answer = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    words = (answer.stdout + answer.stderr).split()
    return f"node_exporter {words[words.index('version') + 1]}"
