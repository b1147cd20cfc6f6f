"""`make stack`: the demo without containers, really run, and how its parts are found in compose.yaml."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests import ROOT
from tests.running import eventually

FOLDER = ROOT / "docker"
NODES = ("dense", "moe", "idle-rail", "idle")
PROGRAMS = ("prometheus", "prometheus-alertmanager")
NEEDS_PROGRAMS = pytest.mark.needs(*PROGRAMS)

# docker/ is no package: its files are scripts
sys.path.insert(0, str(FOLDER))
import faults  # noqa: E402
import services  # noqa: E402


@dataclass
class Running:
    """A running stack and what it printed."""

    process: subprocess.Popen[str]
    addresses: dict[str, str]
    scratch: Path

    def ask(self, name: str, path: str, **params: str) -> Any:
        answer = httpx.get(self.addresses[name] + path, params=params, timeout=20)
        answer.raise_for_status()
        return answer.json()


@pytest.fixture(scope="module")
def stack() -> Iterator[Running]:
    command = [sys.executable, FOLDER / "stack.py", "--free-ports", "--faults"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        assert process.poll() is None, "".join(lines)
        addresses = dict(re.findall(r"^  (\S+) +(http://127\.0\.0\.1:\d+)/$", "".join(lines), re.MULTILINE))
        (scratch,) = re.findall(r"^logs and data: (.+)$", "".join(lines), re.MULTILINE)
        yield Running(process, addresses, Path(scratch))
        process.send_signal(signal.SIGINT)
        process.wait(40)


@NEEDS_PROGRAMS
class TestStack:
    def test_prometheus_scrapes_the_gateway_which_knows_every_node(self, stack: Running) -> None:
        def states() -> dict[str, str]:
            query = 'ibpulse_gateway_nodes{job="ibpulse-gateway"} > 0'
            found = stack.ask("prometheus", "/api/v1/query", query=query)["data"]["result"]
            return {one["metric"]["state"]: one["value"][1] for one in found}

        # the rail of idle-rail that is idle is no problem of its node
        eventually(lambda: states() == {"up": "4"}, seconds=60, pause=0.5)
        nodes = {node["node"]: node for node in stack.ask("gateway", "/api/v1/nodes")["nodes"]}
        assert set(nodes) == set(NODES)
        assert nodes["idle-rail"]["labels"]["rack"] == "r2"

    def test_the_gateway_has_the_job_of_both_its_nodes(self, stack: Running) -> None:
        def jobs() -> dict[str, list[str]]:
            listed = stack.ask("gateway", "/api/v1/nodes")["nodes"]
            return {node["node"]: [job["job_id"] for job in node["jobs"] or ()] for node in listed}

        expected = {"moe": ["1001"], "idle-rail": ["1001"], "dense": [], "idle": []}
        eventually(lambda: jobs() == expected, seconds=60, pause=0.5)

    def test_prometheus_scrapes_every_node_has_the_rules_and_knows_alertmanager(self, stack: Running) -> None:
        def up() -> list[str]:
            found = stack.ask("prometheus", "/api/v1/query", query="sum(up{job='ibpulse'})")["data"]["result"]
            return [one["value"][1] for one in found]

        eventually(lambda: up() == ["4"], seconds=30, pause=0.5)
        groups = stack.ask("prometheus", "/api/v1/rules")["data"]["groups"]
        names = {rule["name"] for group in groups for rule in group["rules"]}
        assert "IBPulseRailIdle" in names

        def knows() -> bool:
            found = stack.ask("prometheus", "/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
            return [one["url"] for one in found] == [f"{stack.addresses['alertmanager']}/api/v2/alerts"]

        eventually(knows, seconds=30, pause=0.5)

    def test_an_alert_about_a_node_makes_that_node_alone_take_a_capture(self, stack: Running) -> None:
        labels = {"alertname": "IBPulseRailIdle", "instance": stack.addresses["moe"].removeprefix("http://")}
        alerts = f"{stack.addresses['alertmanager']}/api/v2/alerts"
        httpx.post(alerts, json=[{"labels": labels}], timeout=20).raise_for_status()

        def asked(node: str) -> list[str]:
            listed = stack.ask(node, "/api/v1/captures")
            return [one["name"] for one in (*listed["captures"], *listed["pending"])]

        eventually(lambda: asked("moe"), seconds=30, pause=0.5)
        assert any("IBPulseRailIdle" in name for name in asked("moe"))
        assert not any("IBPulseRailIdle" in name for node in ("dense", "idle") for name in asked(node))

    def test_nothing_is_left_when_it_is_stopped(self, stack: Running) -> None:
        stack.process.send_signal(signal.SIGINT)
        assert stack.process.wait(40) == 0
        assert not stack.scratch.exists()
        with pytest.raises(httpx.ConnectError):
            httpx.get(stack.addresses["prometheus"])


@NEEDS_PROGRAMS
def test_every_service_but_grafana_has_a_program() -> None:
    described = set(yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"])
    assert described - services.read_services(FOLDER / "compose.yaml", ["faults"]).keys() == {"grafana"}


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FileNotFoundError, match="prometheus is not installed; on Debian: apt-get install prometheus"):
        services.read_services(FOLDER / "compose.yaml")


def test_each_step_of_the_faults_is_told_to_its_fabric_and_all_are_healthy_at_the_end(tmp_path: Path) -> None:
    for node in NODES:
        (tmp_path / node).mkdir()
    stop = threading.Event()
    told: list[Any] = []

    class Watched(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            told.append(json.loads((tmp_path / "dense/faults.json").read_text()))
            if len(told) == 2:
                stop.set()
            return stop.is_set()

    slow = {"slow-rail": {"mlx5_2": 0.5}}
    steps = [
        faults.Step("dense", slow, 60, "slow"),
        faults.Step("dense", faults.HEALTHY, 60, "healthy"),
        faults.Step("idle-rail", {"workload": "idle"}, 60, "hangs"),
    ]
    faults.break_things(tmp_path, steps, Watched())
    assert told == [slow, {}]
    assert json.loads((tmp_path / "dense/faults.json").read_text()) == {}
    # the fault that gives this node its name lasts
    assert json.loads((tmp_path / "idle-rail/faults.json").read_text()) == {"idle-rail": ["mlx5_2"]}


@pytest.mark.parametrize("step", faults.STEPS, ids=lambda step: step.text)
def test_every_step_is_one_that_the_fabric_understands(step: Any) -> None:
    from ibpulse.workbench.simulate.fabric import parse_control

    assert step.node in NODES
    devices = {*(f"mlx5_{number}" for number in range(8)), "mlx5_an0"}
    parse_control(json.dumps({**faults.LASTING.get(step.node, {}), **step.control}), devices, "faults.json")
