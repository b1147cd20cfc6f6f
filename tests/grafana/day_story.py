"""`python -m tests.grafana.day_story`: a day of twelve nodes in minutes, on a real Prometheus and Alertmanager.

Jobs start and end, a link flaps, a card dies, a rail trains down, a job hangs, a node is drained, pods are
replaced, and a rack loses power. The alerts must be those of `day_story.yaml`: these labels, from when to when, and
whether Alertmanager notifies anyone. The table of thresholds shortens the durations of the rules; nothing else is
changed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.fabrics import simulated
from tests.grafana.fleets import FLAGS, SHORT
from tests.grafana.servers import Servers, running_servers
from tests.running import Running, eventually

EXPECTED = Path(__file__).with_name("day_story.yaml")
OVERRIDES = SHORT | {
    "down_window": "30s",
    "trained_down_for": "5s",
    "rail_slow_for": "30s",
    "missing_for": "30s",
    "maintenance": "ibpulse_story_drained == 1",
}
SECONDS = 260
# samples of a rule that a busy machine evaluates late
GAP_SECONDS = 5
# jobs of one node each, and two of which steps are found, which needs samples of 10 ms
JOBS = {"usual-1": "100", "usual-2": "100", "ends": "200", "flap": "300", "dead-card": "400", "trained-down": "500"}
JOBS |= {"hang": "600", "drained": "700", "rollout": "800", "rack-1": "900", "rack-2": "900", "idle": ""}
FAST = ("ends", "hang")


@dataclass(frozen=True, slots=True)
class Span:
    """When an alert fired, in seconds of the story, and its labels."""

    alert: str
    labels: Mapping[str, str]
    begin: float
    end: float

    def __str__(self) -> str:
        named = ", ".join(f"{name}={self.labels[name]}" for name in ("node", "device", "job_id") if name in self.labels)
        return f"{self.alert} {named} ({self.labels['severity']}): {self.begin:.0f} to {self.end:.0f} s"


class Story:
    """The nodes with their jobs, below servers that see them as a PodMonitor would."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory, self.drained = directory, ""
        self.targets = directory / "targets.json"
        self.pods = dict.fromkeys(JOBS, 1)
        self.trees: dict[str, Path] = {}
        self.daemons: dict[str, Running] = {}
        for node in JOBS:
            self._start(node, stack)
        for daemon in self.daemons.values():
            daemon.wait_until_counting()

    def _start(self, node: str, stack: ExitStack) -> None:
        own, interval = self.directory / node, "10ms" if node in FAST else "50ms"
        own.mkdir()
        workload = "dense" if JOBS[node] else "idle"
        self.trees[node] = stack.enter_context(simulated(own / "sys", workload, interval=interval, ports=2))
        (own / "jobs").mkdir(mode=0o755)
        self.work(node, JOBS[node])
        daemon = Running(self.trees[node], own / "ring", *FLAGS, f"--jobs.owners-dir={own / 'jobs'}", interval=interval)
        daemon.launch()
        stack.callback(daemon.stop)
        self.daemons[node] = daemon

    def work(self, node: str, job: str) -> None:
        """Let a node have this job, or none."""
        for old in (self.directory / node / "jobs").iterdir():
            old.unlink()
        if job:
            (self.directory / node / "jobs" / f"{job}.json").write_text(json.dumps({"id": job, "scheduler": "slurm"}))

    def suffer(self, node: str, faults: object) -> None:
        """Set exactly these faults."""
        fresh = self.trees[node] / "faults.new"
        fresh.write_text(json.dumps(faults))
        fresh.replace(self.trees[node] / "faults.json")

    def list_targets(self) -> None:
        """List the exporters with the labels that a PodMonitor gives them."""
        entries = [
            {
                "targets": [daemon.url.removeprefix("http://")],
                "labels": {
                    "job": "monitoring/ibpulse",
                    "namespace": "monitoring",
                    "container": "ibpulse",
                    "endpoint": "metrics",
                    "pod": f"ibpulse-{node}-{self.pods[node]}",
                    "instance": node,
                    "node": node,
                },
            }
            for node, daemon in self.daemons.items()
        ]
        fresh = self.targets.with_suffix(".new")
        fresh.write_text(json.dumps(entries))
        fresh.replace(self.targets)

    def replace_pod(self, node: str) -> None:
        """End the exporter of a node, and start another one, with another pod's name and address."""
        self.daemons[node].stop()
        self.daemons[node].launch()
        self.pods[node] += 1
        self.list_targets()

    def drain(self, node: str) -> None:
        """Declare a node to be in maintenance, or none."""
        self.drained = node

    @contextmanager
    def maintenance(self) -> Iterator[str]:
        """The address of an exporter of nodes in maintenance."""
        story = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                names = [story.drained] if story.drained else []
                body = "".join(f'ibpulse_story_drained{{node="{name}"}} 1\n' for name in names).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()

    def plot(self) -> list[tuple[int, str, list[Callable[[], None]]]]:
        """What happens when, in order."""
        suffer, work, drain, kill, replace = self.suffer, self.work, self.drain, self._kill, self.replace_pod
        idle, vanished = {"workload": "idle"}, {"vanish": ["mlx5_1"]}
        return [
            (20, "job 200 ends", [partial(work, "ends", ""), partial(suffer, "ends", idle)]),
            (30, "a link goes down", [partial(suffer, "flap", {"link-flap": ["mlx5_1"]})]),
            (40, "a card dies", [partial(suffer, "dead-card", vanished)]),
            (50, "a rail trains down", [partial(suffer, "trained-down", {"trained-down": ["mlx5_1"]})]),
            (
                60,
                "the link is up again, and job 600 hangs",
                [partial(suffer, "flap", {}), partial(suffer, "hang", idle)],
            ),
            (75, "a node is drained", [partial(drain, "drained")]),
            (85, "its card is taken out", [partial(suffer, "drained", vanished)]),
            (90, "a pod is replaced", [partial(replace, "rollout")]),
            (100, "the drained node is switched off", [partial(kill, "drained")]),
            (120, "a rack loses power", [partial(kill, "rack-1"), partial(kill, "rack-2")]),
            (130, "job 201 starts", [partial(work, "ends", "201"), partial(suffer, "ends", {})]),
            (145, "the drained node is on again", [partial(suffer, "drained", {}), partial(replace, "drained")]),
            (170, "the rack is on again", [partial(replace, "rack-1"), partial(replace, "rack-2")]),
            (190, "the drained node is in use again", [partial(drain, "")]),
            (200, "all is repaired", [self._repair]),
        ]

    def _kill(self, node: str) -> None:
        self.daemons[node].stop(signal.SIGKILL)

    def _repair(self) -> None:
        for node in ("dead-card", "trained-down", "hang"):
            self.suffer(node, {})


def spans_of(servers: Servers, begun: float) -> list[Span]:
    """When which alerts fired; two spans with a short gap between them are one."""
    params = {"start": f"{begun - 60}", "end": f"{begun + SECONDS}", "step": "1"}
    found = []
    for series in servers.ask("query_range", query='ALERTS{alertstate="firing"}', **params)["result"]:
        times = [at - begun for at, _ in series["values"]]
        edges = [0, *(n for n in range(1, len(times)) if times[n] - times[n - 1] > GAP_SECONDS), len(times)]
        labels = {name: text for name, text in series["metric"].items() if name not in ("__name__", "alertstate")}
        found += [Span(labels["alertname"], labels, times[first], times[end - 1]) for first, end in pairwise(edges)]
    return sorted(found, key=lambda span: span.begin)


def watch_notified(servers: Servers, seconds: float, seen: set[tuple[str, str]]) -> None:
    """Add the alerts that Alertmanager does not suppress, by name and node, for some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for alert in httpx.get(f"http://{servers.alertmanager}/api/v2/alerts", timeout=20).json():
            if alert["status"]["state"] == "active":
                seen.add((alert["labels"]["alertname"], alert["labels"].get("node", "")))
        time.sleep(max(0.0, min(1.0, end - time.monotonic())))


def compare(expected: list[dict[str, Any]], spans: list[Span], notified: set[tuple[str, str]]) -> list[str]:
    """Each difference as a sentence."""
    wrong, left = [], list(spans)
    for row in expected:
        matching = [s for s in left if s.alert == row["alert"] and row["labels"].items() <= s.labels.items()]
        named = f"{row['alert']} {row['labels']}"
        if len(matching) != 1:
            wrong.append(f"{named}: fired {len(matching)} times")
            left = [span for span in left if span not in matching]
            continue
        (span,) = matching
        left.remove(span)
        for word, value in (("from", span.begin), ("to", span.end)):
            if not row[word][0] <= value <= row[word][1]:
                wrong.append(f"{named}: {word} {value:.0f} s, not {row[word][0]} to {row[word][1]} s")
        if ((span.alert, span.labels.get("node", "")) in notified) != row.get("notified", True):
            wrong.append(f"{named}: notified is not {row.get('notified', True)}")
    return wrong + [f"not expected: {span}" for span in left]


def main() -> int:
    """Play the story, and compare."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    expected = yaml.safe_load(EXPECTED.read_text())
    with tempfile.TemporaryDirectory(prefix="ibpulse-day-", dir="/dev/shm") as folder, ExitStack() as stack:
        story = Story(Path(folder), stack)
        story.list_targets()
        scrapes: list[Mapping[str, Any]] = [
            {"job_name": "pods", "file_sd_configs": [{"files": [str(story.targets)], "refresh_interval": "1s"}]},
            {"job_name": "drained", "static_configs": [{"targets": [stack.enter_context(story.maintenance())]}]},
        ]
        servers = stack.enter_context(running_servers(Path(folder), [], OVERRIDES, scrapes, window="20s"))
        steps = 'count_over_time(job_id:ibpulse_step_period_seconds:median{job_id=~"200|600"}[2m]) > 20'
        eventually(lambda: len(servers.ask("query", query=steps)["result"]) == 2, 240.0, 1.0)
        begun, notified = time.time(), set[tuple[str, str]]()
        for second, text, acts in story.plot():
            watch_notified(servers, begun + second - time.time(), notified)
            say(f"{time.time() - begun:5.0f} s  {text}")
            for act in acts:
                act()
        watch_notified(servers, begun + SECONDS - time.time(), notified)
        spans = spans_of(servers, begun)
    say("")
    for span in spans:
        say(f"{span}{'' if (span.alert, span.labels.get('node', '')) in notified else ', nobody notified'}")
    wrong = compare(expected, spans, notified)
    say("\n" + ("as expected" if not wrong else "\n".join(wrong)))
    return 1 if wrong else 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
