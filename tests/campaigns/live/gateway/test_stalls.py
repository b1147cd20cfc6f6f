"""Eight real daemons and gateways in real time: a job stalls in each way, and what is told within which time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.gateway.gateways import program, running_gateway
from tests.grafana.servers import ALERTMANAGER, free_address
from tests.running import eventually
from tests.smoke.parts import program as server

NODES = tuple(f"node{number}" for number in range(1, 9))
IDLE: Mapping[str, object] = {"workload": "idle"}
# three times as long if the last step was whole
UNEXPLAINED_SECONDS, LATE_SECONDS = 7.0, 21.0
# as promised where three times the longest regular silence is at most 7 s
MAX_SECONDS = 10.0


@dataclass
class Cluster:
    """Eight nodes with one job, an Alertmanager, and what a gateway over them is started with."""

    scratch: Path
    directory: Path
    urls: Mapping[str, str]
    alertmanager: str
    flags: tuple[str, ...]
    figures: list[str] = field(default_factory=list)

    def tell(self, node: str, faults: Mapping[str, object]) -> None:
        """Set exactly these faults on a node."""
        path = self.scratch / "sys" / node / "faults.json"
        fresh = path.with_name("faults.new")
        fresh.write_text(json.dumps(faults))
        fresh.rename(path)

    def stall(self, cause: str, faults: Mapping[str, object], lead: float) -> float:
        """The node of the cause gets its faults, all others fall silent `lead` seconds later; returns when."""
        self.tell(cause, faults)
        time.sleep(lead)
        for node in NODES:
            if node != cause:
                self.tell(node, IDLE)
        return time.time()

    def freeze(self) -> float:
        """Stop the counters of all nodes at one instant; returns when."""
        os.kill(self.simulator(), signal.SIGSTOP)
        return time.time()

    def simulator(self) -> int:
        """The process that moves the counters of all nodes."""
        tree = os.fsencode(self.scratch / "sys")
        (found,) = (
            int(file.parent.name)
            for file in Path("/proc").glob("[0-9]*/cmdline")
            if {b"simulate", tree} <= set(file.read_bytes().split(b"\0"))
        )
        return found

    def heal(self) -> None:
        """All nodes carry their traffic again."""
        os.kill(self.simulator(), signal.SIGCONT)
        for node in NODES:
            self.tell(node, {})

    def settle(self) -> None:
        """Wait until every node knows the steps of the job, and the job has moved bytes for some time."""
        eventually(lambda: all(map(knows_steps, self.urls.values())), 120, 0.5)
        time.sleep(5)

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that fire; none while Alertmanager is down."""
        try:
            found: list[dict[str, Any]] = httpx.get(f"{self.alertmanager}/api/v2/alerts", timeout=5).json()
        except httpx.TransportError:
            return []
        return found

    @contextmanager
    def gateway(self, name: str) -> Iterator[str]:
        """A gateway that watches the job, once it does; yields its URL."""
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        with running_gateway(directory, *self.flags) as url:
            eventually(lambda: armed(url), 120, 0.5)
            yield url

    @contextmanager
    def alerting(self) -> Iterator[None]:
        """Alertmanager runs."""
        assert ALERTMANAGER
        address = self.alertmanager.removeprefix("http://")
        words = (ALERTMANAGER, f"--config.file={self.directory / 'alertmanager.yml'}", "--cluster.listen-address=")
        words += (f"--storage.path={self.directory / 'am'}", f"--web.listen-address={address}")
        with server(self.directory / "alertmanager.log", *words):
            yield


def ask(url: str, path: str) -> Any:
    return httpx.get(url + path, timeout=10).raise_for_status().json()


def armed(url: str) -> bool:
    """Whether a gateway watches the job, and has heard of it from every node."""
    watched = ask(url, "/api/v1/verdicts")["jobs"]
    jobs = ask(url, "/api/v1/jobs")["jobs"]
    return [job["armed"] for job in watched] == [True] and len(jobs[0]["nodes"]) == len(NODES)


def knows_steps(url: str) -> bool:
    """Whether a daemon knows how long its job is silent in each step."""
    jobs = ask(url, "/api/v1/silences")["jobs"]
    return bool(jobs) and jobs[0]["regular_ms"] is not None


def lasting(url: str) -> dict[str, Any] | None:
    """The stall that lasts."""
    stalls = [stall for job in ask(url, "/api/v1/verdicts")["jobs"] for stall in job["stalls"]]
    return next((stall for stall in stalls if stall["ended_ms"] is None), None)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A new one for each test: a job that fell silent three times for as long would seem to do so regularly."""
    directory = tmp_path
    receiver = {
        "route": {"receiver": "none", "group_wait": "0s", "group_interval": "1s"},
        "receivers": [{"name": "none"}],
    }
    (directory / "alertmanager.yml").write_text(yaml.safe_dump(receiver))
    demo = (
        "demo",
        f"--nodes={len(NODES)}",
        "--ports=2",
        "--capture.min-free=0B",
        "--capture.allow-unauthenticated=true",
    )
    with program(directory / "demo.log", *demo, "--web.listen-address=127.0.0.1:0"):
        log = directory / "demo.log"
        listed = eventually(lambda: found[1] if (found := re.search(r"listed in (\S+)", log.read_text())) else "", 120)
        eventually(lambda: f"{NODES[-1]}: http" in log.read_text(), 120)
        urls = dict(re.findall(r"(node\d): (http://[^/]+)/", log.read_text()))
        alertmanager = f"http://{free_address()}"
        flags = (f"--nodes.sources={listed}", f"--gateway.alertmanager-url={alertmanager}")
        flags += ("--gateway.alertmanager-labels=cluster=test", f"--gateway.unexplained-after={UNEXPLAINED_SECONDS:g}s")
        made = Cluster(Path(listed).parent, directory, urls, alertmanager, flags)
        yield made
        print("\n" + "\n".join(made.figures))


@dataclass
class Timeline:
    """When things first held, in seconds after the last byte."""

    since: float
    waiting: dict[str, Callable[[], Any]]
    seconds: dict[str, float] = field(default_factory=dict)

    def follow(self, longest: float = 60.0) -> None:
        """Ask until everything holds."""
        while waiting := {name: check for name, check in self.waiting.items() if name not in self.seconds}:
            for name, check in waiting.items():
                if check():
                    self.seconds[name] = time.time() - self.since
            assert time.time() - self.since < longest, f"still waiting for {', '.join(waiting)}: {self.seconds}"
            time.sleep(0.05)

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())


def captured(cluster: Cluster, since: float) -> bool:
    """Whether every node has or writes a capture of the stall."""
    for url in cluster.urls.values():
        listed = ask(url, "/api/v1/captures")
        captures = (*listed["captures"], *listed["pending"])
        if not any(each["reason"].startswith("stall") and each["trigger_ms"] / 1000 > since - 5 for each in captures):
            return False
    return True


def noted(cluster: Cluster, since: float) -> bool:
    """Whether every node has an event about the stall."""
    return all(
        any(
            event["kind"] == "job-stalled" and event["time_ms"] / 1000 > since
            for event in ask(url, "/api/v1/events")["events"]
        )
        for url in cluster.urls.values()
    )


STALLS = {
    # kind: the node of the cause, its faults, seconds until all others are silent
    "link": ("node2", {**IDLE, "link-flap": ["mlx5_1"]}, 0.0),
    "loss": ("node5", {**IDLE, "unanswered": ["mlx5_0"]}, 0.0),
    "node": ("node3", IDLE, 0.6),
    # the faults of nodes reach them up to 250 ms apart
    "together": ("", {}, 0.0),
}


@pytest.mark.needs("alertmanager")
@pytest.mark.parametrize("kind", STALLS)
def test_a_stall_is_told_in_time_and_ends_with_the_traffic(cluster: Cluster, kind: str) -> None:
    node, faults, lead = STALLS[kind]
    with cluster.alerting(), cluster.gateway("first") as url:
        cluster.settle()
        since = cluster.stall(node, faults, lead) if node else cluster.freeze()
        told = {
            "page": lambda: lasting(url),
            "captures": lambda: captured(cluster, since),
            "events": lambda: noted(cluster, since),
            "Alertmanager": cluster.alerts,
        }
        timeline = Timeline(since, told)
        timeline.follow()
        stall, alerts = lasting(url), cluster.alerts()
        assert stall, "it lasts"
        assert (stall["verdict"], [alert["annotations"]["verdict"] for alert in alerts]) == (kind, [kind])
        assert stall["nodes"] == [node] * bool(node)
        late = LATE_SECONDS if kind == "together" else 0.0
        assert timeline.seconds["page"] < MAX_SECONDS
        assert timeline.seconds["Alertmanager"] < MAX_SECONDS + late
        cluster.heal()
        healed = Timeline(time.time(), {"page": lambda: not lasting(url), "Alertmanager": lambda: not cluster.alerts()})
        healed.follow()
        cluster.figures.append(f"{kind}: {timeline}; after traffic returned: {healed}")


@pytest.mark.needs("alertmanager")
def test_a_restarted_gateway_and_a_second_one_tell_the_same_alert_once(cluster: Cluster) -> None:
    with cluster.alerting():
        with cluster.gateway("first") as url, cluster.gateway("second") as other:
            cluster.settle()
            cluster.stall("node3", IDLE, 0.6)
            stalls = [eventually(lambda url=each: lasting(url), 20) for each in (url, other)]
            eventually(cluster.alerts, 20)
            words = ("verdict", "sentence", "nodes", "rails")
            assert len({json.dumps([stall[word] for word in words]) for stall in stalls}) == 1
            (before,) = cluster.alerts()
        # both are gone; the stall lasts
        with cluster.gateway("third") as url:
            # the clocks are measured anew
            eventually(lambda: (stall := lasting(url)) and stall["nodes"] == ["node3"], 30)
            (after,) = cluster.alerts()
            assert after["fingerprint"] == before["fingerprint"]
            # without a gateway it ends by itself
            assert 0 < datetime.fromisoformat(after["endsAt"]).timestamp() - time.time() < 185
            cluster.heal()
            eventually(lambda: not cluster.alerts(), 30)


@pytest.mark.needs("alertmanager")
def test_an_alertmanager_that_was_down_is_told_when_it_is_back(cluster: Cluster) -> None:
    with cluster.gateway("fourth") as url:
        cluster.settle()
        cluster.stall("node3", IDLE, 0.6)
        eventually(lambda: lasting(url), 20)
        time.sleep(60)
        with cluster.alerting():
            timeline = Timeline(time.time(), {"alert after Alertmanager's start": cluster.alerts})
            timeline.follow()
            cluster.figures.append(f"Alertmanager down for a minute: {timeline}")
            cluster.heal()
            eventually(lambda: not cluster.alerts(), 30)


@pytest.mark.needs("alertmanager")
def test_a_node_that_is_gone_is_named(cluster: Cluster) -> None:
    group = daemon_of("node7")
    with cluster.alerting(), cluster.gateway("fifth") as url:
        cluster.settle()
        os.killpg(group, signal.SIGSTOP)
        try:
            since = cluster.stall("node7", IDLE, 0.6)
            timeline = Timeline(since, {"page": lambda: lasting(url), "Alertmanager": cluster.alerts})
            timeline.follow()
            stall = lasting(url)
            assert stall
            assert "node7" in (*stall["nodes"], *" ".join(stall["not_known"]).split())
            cluster.figures.append(f"a node gone: {stall['sentence']}; {timeline}")
        finally:
            os.killpg(group, signal.SIGCONT)
            cluster.heal()
        eventually(lambda: not cluster.alerts(), 60)


def daemon_of(node: str) -> int:
    """The process of a node's daemon, which leads a group with its sampler."""
    found = subprocess.run(["pgrep", "-o", "-f", f"serve --config.file=.*/{node}/"], capture_output=True, check=True)
    return int(found.stdout)
