"""`ibpulse gateway` as a process."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fabrics import simulated
from tests.gateway.gateway_process import GatewayProcess
from tests.running import Running, eventually


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A real node."""
    directory = tmp_path_factory.mktemp("node")
    with simulated(directory / "sys", "dense", ports=2) as tree, Running(tree, directory / "ring") as running:
        yield running


def test_it_serves_the_nodes_of_a_file_and_ends_at_a_signal(tmp_path: Path, daemon: Running) -> None:
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps([{"targets": [daemon.url], "labels": {"node": "gpu-1"}}]))
    with GatewayProcess(tmp_path, f"--nodes.sources={nodes}") as gateway:
        assert eventually(gateway.nodes).keys() == {"gpu-1"}
        eventually(lambda: gateway.nodes()["gpu-1"]["clock"])
        # without a user, captures are for nobody
        assert gateway.post("/api/v1/jobs/4711/captures", {}).status_code == 403
        assert gateway.stop() < 5
    assert "ERROR" not in gateway.log()


def test_captures_can_be_for_anyone(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.json"
    nodes.write_text("[]")
    with GatewayProcess(tmp_path, f"--nodes.sources={nodes}", "--capture.allow-unauthenticated=true") as gateway:
        assert gateway.post("/api/v1/jobs/4711/captures", {}).status_code == 404


def test_a_lookup_that_hangs_does_not_delay_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps([{"targets": ["gpu-1.invalid-but-slow.example:10055"]}]))
    hang = "import socket, time\nsocket.getaddrinfo = lambda *_, **__: time.sleep(3600)\n"
    (tmp_path / "sitecustomize.py").write_text(hang)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    with GatewayProcess(tmp_path, f"--nodes.sources={nodes}", "--web.listen-address=:0") as gateway:
        (name,) = eventually(gateway.nodes)
        eventually(lambda: gateway.nodes()[name]["problem"] == "no-answer", 60)
        assert gateway.stop() < 5


def test_the_demo_has_nodes_whose_clocks_are_measured(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path, "--demo=2") as gateway:

        def clocks() -> list[float] | None:
            known = [node["clock"]["offset_ms"] for node in gateway.nodes().values() if node["clock"]]
            return known if len(known) == 2 else None

        known = eventually(clocks, 120)
        assert known is not None
        said = [float(each) for each in re.findall(r"clock ([+-]?[0-9.]+) ms", gateway.log())]
        assert len(said) == 2
        for measured, true in zip(sorted(known), sorted(said), strict=True):
            assert abs(measured - true) < 5
