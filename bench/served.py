"""Runs a daemon as a user does, and measures it from outside: by the kernel's counts and by its own answers."""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from prometheus_client.parser import text_string_to_metric_families

from bench import processes, viewers
from bench.bench import MILLISECOND_NS, NS_PER_SECOND, Bench
from bench.history import filled_ring
from bench.trees import write_tree

LATENESS = "ibpulse_sampler_lateness_seconds"
SKIPPED, AGGREGATED_UNTIL = "ibpulse_aggregator_skipped_seconds", "ibpulse_aggregated_until_timestamp_seconds"
COUNTED = ("ibpulse_sampler_ticks", "ibpulse_sampler_missed_ticks")
# of a daemon without settings; its ring is a little longer
DEFAULT_SECONDS, SPARE_SECONDS = 300, 2
SAMPLER_MODULE = b"ibpulse.agent.sampler.process"


@dataclass(frozen=True, slots=True)
class Served:
    """A running daemon: its TCP port, its two processes, and the wall time at which it was started."""

    port: int
    main_pid: int
    sampler_pid: int
    started: float


@contextmanager
def running_daemon(
    bench: Bench, *, ports: int, history_seconds: int, interval_ms: int = 10, signals: bool = True
) -> Iterator[Served]:
    """`ibpulse serve` with `ports` ports, whose ring begins with `history_seconds` of history.

    The ring keeps five minutes, or that many seconds if they are more.
    """
    folder, port = bench.new_folder("daemon"), processes.free_port()
    tree, ring = write_tree(folder / "sys", ports), folder / "ring"
    ring.mkdir()
    numbers, options = [interval_ms * MILLISECOND_NS, ports, history_seconds], [f"--sampler.interval={interval_ms}ms"]
    if history_seconds > DEFAULT_SECONDS:
        numbers.append(history_seconds + SPARE_SECONDS)
        options.append(f"--sampler.history={history_seconds}s")
    if signals:
        filled_ring(ring / "ring", *numbers).ring.close()
    else:
        filled_ring(ring / "ring", *numbers, signals_ns=0).ring.close()
        options.append("--sampler.signals=0s")
    command = [
        *(sys.executable, "-m", "ibpulse", "serve", f"--path.sysfs={tree}", f"--ring.dir={ring}", *options),
        *(f"--web.listen-address=127.0.0.1:{port}", f"--capture.dir={folder / 'captures'}"),
    ]
    started = time.time()
    with processes.running(command, folder / "log") as process:
        processes.wait_for(lambda: process.poll() is not None or _is_ready(port), "ibpulse serve")
        if process.poll() is not None:
            raise ChildProcessError(f"ibpulse serve: {(folder / 'log').read_text()[-2000:]}")
        yield Served(port, process.pid, _sampler_of(process.pid), started)


def _is_ready(port: int) -> bool:
    try:
        return bool(processes.get(port, "/-/ready"))
    except OSError:
        return False


def _sampler_of(main_pid: int) -> int:
    """The process that samples, a child of the main process.

    Raises:
        ChildProcessError: there is none.
    """
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == main_pid and SAMPLER_MODULE in (stat.parent / "cmdline").read_bytes():
                return int(stat.parent.name)
        except OSError:
            continue  # a process that just ended
    raise ChildProcessError(f"process {main_pid} has no sampler")


def first_sample_seconds(daemon: Served) -> float:
    """Seconds from the start of the daemon to the end of the first interval that it measured, from its raw samples.

    Raises:
        ValueError: it has measured none.
    """
    lines = processes.get(daemon.port, "/api/v1/window?last=10s&format=csv").decode().splitlines()[1:]
    for line in lines:
        instant_ms, *rates = line.split(",")
        if float(instant_ms) / 1e3 > daemon.started and any(rates):
            return float(instant_ms) / 1e3 - daemon.started
    raise ValueError("the daemon's window has no sample since it was started")


class CpuWatch:
    """Measures the processes of a daemon from its creation to `stop`."""

    def __init__(self, daemon: Served) -> None:
        self._pids = {"sampler": daemon.sampler_pid, "main": daemon.main_pid}
        self._begun_ns, self._used_ns = time.monotonic_ns(), self._used()

    def _used(self) -> dict[str, int]:
        return {name: processes.cpu_ns(pid) for name, pid in self._pids.items()}

    def stop(self) -> dict[str, float]:
        """Share of a core used by each process and by both since the creation."""
        elapsed, used = time.monotonic_ns() - self._begun_ns, self._used()
        shares = {name: (used[name] - self._used_ns[name]) / elapsed for name in self._pids}
        return {**shares, "both": sum(shares.values())}


def cpu_shares(daemon: Served, seconds: float) -> dict[str, float]:
    """Share of a core used by each process and by both, over this number of seconds."""
    watching = CpuWatch(daemon)
    time.sleep(seconds)
    return watching.stop()


def memory_bytes(daemon: Served) -> dict[str, float]:
    """Proportional set size of each process and of both, in bytes."""
    sizes = {
        "sampler": float(processes.pss_bytes(daemon.sampler_pid)),
        "main": float(processes.pss_bytes(daemon.main_pid)),
    }
    return {**sizes, "both": sum(sizes.values())}


def answer_seconds(daemon: Served, path: str, seconds: float, idle_share: float) -> float:
    """CPU time of the main process per answer, less what it uses without requests, from answers without pause."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    _ask(connection, path)
    answers, begun, cpu_ns = 0, time.monotonic(), processes.cpu_ns(daemon.main_pid)
    while time.monotonic() < begun + seconds:
        _ask(connection, path)
        answers += 1
    elapsed = time.monotonic() - begun
    used = (processes.cpu_ns(daemon.main_pid) - cpu_ns) / NS_PER_SECOND - idle_share * elapsed
    connection.close()
    return used / answers


def _ask(connection: http.client.HTTPConnection, path: str) -> None:
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise OSError(f"GET {path}: status {response.status}: {body[:200]!r}")


def answer_wait(daemon: Served, path: str, seconds: float) -> float:
    """How long a client waits for an answer: the median over answers without pause, in seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    waits, end = [], time.perf_counter() + seconds
    while not waits or time.perf_counter() < end:
        begun = time.perf_counter()
        _ask(connection, path)
        waits.append(time.perf_counter() - begun)
    connection.close()
    return median(waits)


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a viewer of the live stream received: samples, samples left out between them, and the age of the newest."""

    samples: int
    lost: int
    behind_seconds: float


def watch_stream(daemon: Served, seconds: float) -> Streamed:
    """Watch the live stream for this number of seconds; the age is the largest when a batch came."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    connection.request("GET", "/api/v1/stream")
    response, end = connection.getresponse(), time.monotonic() + seconds
    samples = lost = interval_ms = 0
    behind, expected_ms = 0.0, None
    while time.monotonic() < end:
        line = response.readline()
        if not line.startswith(b"data: {"):
            continue
        data = json.loads(line.removeprefix(b"data: "))
        interval_ms = data.get("interval_ms", interval_ms)
        if "megabytes_per_second" in data:
            count = len(data["megabytes_per_second"][0])
            lost += 0 if expected_ms is None else (data["start_ms"] - expected_ms) // interval_ms
            samples, expected_ms = samples + count, data["start_ms"] + count * interval_ms
            behind = max(behind, time.time() - expected_ms / 1e3)
    connection.close()
    return Streamed(samples, lost, behind)


@contextmanager
def scraped(daemon: Served, period: float) -> Iterator[None]:
    """A scraper that asks for `/metrics` once per period inside the block, the first time after half of it."""
    stop = threading.Event()

    def scrape() -> None:
        pause = period / 2
        while not stop.wait(pause):
            processes.get(daemon.port, "/metrics")
            pause = period

    scraper = threading.Thread(target=scrape)
    scraper.start()
    try:
        yield
    finally:
        stop.set()
        scraper.join()


@contextmanager
def watched(bench: Bench, daemon: Served, count: int) -> Iterator[None]:
    """Viewers of the live stream, inside the block."""
    log = bench.new_folder("viewers") / "log"
    with processes.running([sys.executable, viewers.__file__, str(daemon.port), str(count)], log):
        processes.wait_for(lambda: "watching" in log.read_text(), f"{count} viewers")
        yield


def own_account(daemon: Served) -> dict[str, float]:
    """From the daemon's `/metrics`: `series`, `kept` (fraction of samples captured), `late` (wake-up delay, p99, s).

    And how well the statistics keep up: `skipped` (s, left out) and `behind` (s, age of the newest aggregated sample).
    """
    page = processes.get(daemon.port, "/metrics").decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    ticks, missed = (families[name].samples[0].value for name in COUNTED)
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for sample in families[LATENESS].samples
        if sample.name == f"{LATENESS}_bucket"
    ]
    return {
        "series": sum(len(family.samples) for family in families.values()),
        "kept": ticks / (ticks + missed),
        "late": quantile_of_buckets(buckets, 0.99),
        "skipped": families[SKIPPED].samples[0].value,
        "behind": time.time() - families[AGGREGATED_UNTIL].samples[0].value,
    }


def quantile_of_buckets(buckets: list[tuple[float, float]], part: float) -> float:
    """A quantile of a cumulative histogram (upper bound, count), interpolated linearly within its bucket."""
    wanted, lower, below = part * buckets[-1][1], 0.0, 0.0
    for upper, count in buckets:
        if count >= wanted and count > below:
            return lower if upper == float("inf") else lower + (upper - lower) * (wanted - below) / (count - below)
        lower, below = upper, count
    return lower
