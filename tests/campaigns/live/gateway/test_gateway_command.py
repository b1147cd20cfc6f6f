"""`ibpulse gateway` as a process: host names whose lookups hang, and its demo."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.running import eventually
from tests.smoke.parts import IBPULSE, get, program

# no address, which would have to be looked up
GATEWAY = (*IBPULSE, "gateway", "--web.listen-address=:0")
SERVING = r"serving (http://[^ ]+)/\n"


def nodes(url: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = get(f"{url}/api/v1/nodes")["nodes"]
    return listed


def test_a_lookup_that_hangs_does_not_delay_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "nodes.json"
    listed.write_text(json.dumps([{"targets": ["gpu-1.invalid-but-slow.example:10055"]}]))
    hang = "import socket, time\nsocket.getaddrinfo = lambda *_, **__: time.sleep(3600)\n"
    (tmp_path / "sitecustomize.py").write_text(hang)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    with program(tmp_path / "log", *GATEWAY, f"--nodes.sources={listed}") as gateway:
        url = gateway.said(SERVING).replace("localhost", "127.0.0.1")
        eventually(lambda: [node["problem"] for node in nodes(url)] == ["no-answer"])


def test_the_demo_has_nodes_whose_clocks_are_measured(tmp_path: Path) -> None:
    with program(tmp_path / "log", *GATEWAY, "--demo=2") as gateway:
        url = gateway.said(SERVING).replace("localhost", "127.0.0.1")
        clocks = eventually(lambda: sorted_clocks(url))
        said = sorted(float(each) for each in re.findall(r"clock ([+-]?[0-9.]+) ms", gateway.log.read_text()))
    assert len(said) == 2
    for clock, true in zip(clocks, said, strict=True):
        assert abs(clock["offset_ms"] - true) <= clock["uncertainty_ms"]


def sorted_clocks(url: str) -> list[dict[str, float]]:
    """The clocks of both nodes by their offset, or nothing while one is unknown."""
    known = [node["clock"] for node in nodes(url) if node["clock"]]
    return sorted(known, key=lambda clock: clock["offset_ms"]) if len(known) == 2 else []
