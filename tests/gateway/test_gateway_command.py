"""`ibpulse gateway` as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from ibpulse.cli import main
from tests.running import Running, eventually


def start(directory: Path, *flags: str) -> tuple[subprocess.Popen[bytes], Path]:
    log = directory / "gateway.log"
    command = [sys.executable, "-m", "ibpulse", "gateway", "--web.listen-address=127.0.0.1:0", *flags]
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output), log


def address(log: Path) -> str:
    found = eventually(lambda: re.search(r"serving (http://[^ ]+)/\n", log.read_text()), 60)
    assert found is not None
    return found[1]


def stop(process: subprocess.Popen[bytes]) -> float:
    """End it; how long that took."""
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    return time.monotonic() - begin


def test_it_serves_the_nodes_of_a_file_and_ends_at_a_signal(tmp_path: Path, daemon: Running) -> None:
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps([{"targets": [daemon.url], "labels": {"node": "gpu-1"}}]))
    process, log = start(tmp_path, f"--nodes.sources={nodes}")
    try:
        url = address(log)
        found = eventually(lambda: httpx.get(f"{url}/api/v1/nodes").json()["nodes"])
        assert [node["node"] for node in found] == ["gpu-1"]
        eventually(lambda: httpx.get(f"{url}/api/v1/nodes").json()["nodes"][0]["clock"])
    finally:
        assert stop(process) < 5
    assert "ERROR" not in log.read_text()


def test_a_lookup_that_hangs_does_not_delay_its_end(tmp_path: Path) -> None:
    # a name server that never answers
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        nodes = tmp_path / "nodes.json"
        nodes.write_text(json.dumps([{"targets": ["gpu-1.invalid-but-slow.example:10055"]}]))
        hang = "import socket, time\nsocket.getaddrinfo = lambda *_, **__: time.sleep(3600)\n"
        (tmp_path / "sitecustomize.py").write_text(hang)
        log = tmp_path / "gateway.log"
        command = [sys.executable, "-m", "ibpulse", "gateway", f"--nodes.sources={nodes}"]
        paths = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--web.listen-address=:0"],
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": paths},
            )
        try:
            url = address(log).replace("localhost", "127.0.0.1")
            eventually(lambda: httpx.get(f"{url}/api/v1/nodes").json()["nodes"][0]["problem"] == "no-answer")
        finally:
            assert stop(process) < 5


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ([], "nodes.sources: no source of nodes; give one, like dns+NAME:PORT, or use --demo=8"),
        (["--nodes.sources=nodes.txt"], "nodes.sources: 'nodes.txt' is not a source of nodes"),
        (["--nodes.sources=a.json,a.json"], "nodes.sources: 'a.json' is given twice"),
        (["--demo=1"], "flag --demo: 1 is not possible; choose 2 to 64"),
        (["--demo=8", "--nodes.sources=a.json"], "flag --demo: cannot be combined with nodes.sources"),
    ],
)
def test_a_gateway_without_usable_nodes_says_so(
    capsys: pytest.CaptureFixture[str], flags: list[str], sentence: str
) -> None:
    assert main(["gateway", *flags], {}) == 2
    assert sentence in capsys.readouterr().err


def test_the_demo_has_nodes_whose_clocks_are_measured(tmp_path: Path) -> None:
    process, log = start(tmp_path, "--demo=2")
    try:
        url = address(log)

        def clocks() -> list[float] | None:
            nodes = httpx.get(f"{url}/api/v1/nodes").json()["nodes"]
            known = [node["clock"]["offset_ms"] for node in nodes if node["clock"]]
            return known if len(known) == 2 else None

        known = eventually(clocks, 60)
        assert known is not None
        log_text = log.read_text()
        said = [float(each) for each in re.findall(r"clock ([+-]?[0-9.]+) ms", log_text)]
        assert len(said) == 2
        for measured, true in zip(sorted(known), sorted(said), strict=True):
            assert abs(measured - true) < 5
    finally:
        stop(process)
