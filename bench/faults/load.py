"""The load on the daemon, whose answers the invariants check: probes, scrapes, windows, a stream, captures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.faults.exported_rates import ExportedRates
from bench.faults.testbed import LASTING_JOBS, Testbed
from tests.running import Metrics

# longer than any bound of an invariant, so that a late answer is measured
TIMEOUT_SECONDS = 8.0
BEAT_SECONDS = 0.05
STALL_SECONDS = 0.25
MAX_AGE_SECONDS = 5.0


@dataclass(frozen=True)
class Probe:
    """An answer of /-/healthy: when it was asked, how long it took, and its status or the error."""

    at: float
    seconds: float
    answer: int | str


@dataclass(frozen=True)
class Aggregated:
    """Aggregation according to a scrape: the newest wall time, and the seconds skipped in this life of the daemon."""

    asked: float
    at: float
    wall: float
    until: float
    skipped: float
    life: int

    @property
    def age(self) -> float:
        """Age of the newest aggregated second in seconds, by the true wall clock."""
        return self.wall - self.until

    @property
    def is_fresh(self) -> bool:
        """Whether that age is one of a daemon that aggregates, with a wall clock that is right."""
        return -1.0 <= self.age <= MAX_AGE_SECONDS


@dataclass(frozen=True)
class Listed:
    """The jobs that last throughout the campaign, as far as they are listed as running, with their begins in ms."""

    at: float
    begins: Mapping[str, int | None]


@dataclass(frozen=True)
class Life:
    """A life of the daemon: seconds from its first scrape to its last, and how many of them no metric has."""

    seconds: float
    skipped_seconds: float


@dataclass
class Load:
    """Threads that send requests inside the block, and append their findings to the lists."""

    testbed: Testbed
    probes: list[Probe] = field(default_factory=list)
    aggregated: list[Aggregated] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)
    # answers that a client cannot use
    broken: list[tuple[float, str]] = field(default_factory=list)
    # spans in which the machine itself did not run this process, so they prove nothing against the daemon
    stalls: list[tuple[float, float]] = field(default_factory=list)
    # when the gateway was asked, and what was wrong with its answer; empty if nothing was
    gateway: list[tuple[float, str]] = field(default_factory=list)
    # when the alert that always fires led to a capture
    alert_captures: list[float] = field(default_factory=list)
    events: int = 0
    # each request over a new connection, as a probe's
    _client: httpx.Client = field(
        default_factory=lambda: httpx.Client(
            timeout=TIMEOUT_SECONDS, limits=httpx.Limits(max_keepalive_connections=0), trust_env=False
        )
    )
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rates = ExportedRates(self.testbed)

    def __enter__(self) -> Load:
        tasks = (
            (self._probe, 0.5),
            (self._scrape, 1.0),
            (self._read_window, 1.0),
            (self._list_jobs, 1.0),
            (self._watch, 1.0),
            (self._capture, 20.0),
            (self._alert, 5.0),
            (self._ask_gateway, 1.0),
        )
        for act, pause in tasks:
            self._threads.append(threading.Thread(target=self._repeat, args=(act, pause), daemon=True))
        self._threads.append(threading.Thread(target=self._note_stalls, daemon=True))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def summarize_lives(self) -> list[Life]:
        """How long each life of the daemon was observed to aggregate, and how much of that it skipped."""
        lives: dict[int, list[Aggregated]] = {}
        for one in self.aggregated:
            lives.setdefault(one.life, []).append(one)
        return [Life(mine[-1].at - mine[0].at, mine[-1].skipped) for mine in lives.values()]

    def _repeat(self, act: Callable[[str], None], pause: float) -> None:
        while not self._stop.wait(pause):
            try:
                act(self.testbed.service.url)
            except (httpx.HTTPError, httpx.InvalidURL):
                pass  # the probes report a daemon that does not answer
            except Exception as error:
                self.broken.append((time.monotonic(), f"{type(error).__name__}: {error}"))

    def _note_stalls(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(BEAT_SECONDS):
            now = time.monotonic()
            if now - before > BEAT_SECONDS + STALL_SECONDS:
                self.stalls.append((before, now + STALL_SECONDS))
            before = now

    def _probe(self, url: str) -> None:
        begun = time.monotonic()
        answer: int | str = "not listening"
        if url:
            try:
                answer = self._client.get(f"{url}/-/healthy").status_code
            except httpx.HTTPError as error:
                answer = repr(error)
        self.probes.append(Probe(begun, time.monotonic() - begun, answer))

    def _scrape(self, url: str) -> None:
        life, asked = len(self.testbed.service.all_pids), time.monotonic()
        answer = self._client.get(f"{url}/metrics")
        now = time.monotonic()
        if answer.status_code != 200 or life != len(self.testbed.service.all_pids):
            return
        metrics = Metrics.parse(answer.text)
        skipped = sum(
            value
            for (name, _), value in metrics.samples.items()
            if name.startswith("ibpulse_aggregator_") and name.endswith("_seconds_total")
        )
        for until in metrics.find("ibpulse_aggregated_until_timestamp_seconds").values():
            self.aggregated.append(Aggregated(asked, now, time.time(), until, skipped, life))
        self.rates.compare_scrape(now, metrics, life)

    def _read_window(self, url: str) -> None:
        query = {"last": "2s", "statistic": "mean", "uncertainty": "true"}
        answer = self._client.get(f"{url}/api/v1/window", params=query)
        if answer.status_code == 200:
            self.rates.compare_window(time.monotonic(), answer.json())

    def _list_jobs(self, url: str) -> None:
        asked = time.monotonic()
        answer = self._client.get(f"{url}/api/v1/jobs")
        if answer.status_code == 200:
            running = {job["job_id"]: job["began_ms"] for job in answer.json()["jobs"] if job["running"]}
            begins = {name: running[name] for name in sorted(LASTING_JOBS & running.keys())}
            self.listed.append(Listed(asked, begins))

    def _watch(self, url: str) -> None:
        with self._client.stream("GET", f"{url}/api/v1/stream") as answer:
            for line in answer.iter_lines():
                self.events += line.startswith("event:")
                if self._stop.is_set():
                    return

    def _capture(self, url: str) -> None:
        body: dict[str, Any] = {"reason": "campaign", "before": "2s", "after": "1s"}
        self._client.post(f"{url}/api/v1/captures", json=body)

    def _alert(self, url: str) -> None:
        alert = {"status": "firing", "fingerprint": "f00d", "labels": {"alertname": "Campaign"}}
        answer = self._client.post(f"{url}/api/v1/captures/alertmanager", json={"version": "4", "alerts": [alert]})
        if answer.status_code == 200 and answer.json()["capture"]:
            self.alert_captures.append(time.monotonic())

    def _ask_gateway(self, _url: str) -> None:
        asked, url = time.monotonic(), self.testbed.gateway.url
        wrong = ""
        try:
            jobs, nodes = (self._client.get(f"{url}/api/v1/{what}") for what in ("jobs", "nodes"))
            if jobs.status_code != 200 or nodes.status_code != 200:
                wrong = f"its jobs have status {jobs.status_code}, its nodes {nodes.status_code}"
            else:
                problems = {node["node"]: node["problem_text"] for node in nodes.json()["nodes"]}
                wrong = problems.get("control", "it does not list the control daemon")
        except httpx.HTTPError as error:
            wrong = repr(error)
        self.gateway.append((asked, wrong))
