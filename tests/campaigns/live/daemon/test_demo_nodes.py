"""`ibpulse demo --nodes`: real daemons on simulated nodes that share a job, each with a wall clock of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.running import eventually


class Demo:
    """`ibpulse demo` with two small nodes."""

    def __init__(self, log: Path, *flags: str) -> None:
        self.log_path = log
        given = ["--nodes=2", "--ports=2", "--web.listen-address=127.0.0.1:0", *flags]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ibpulse", "demo", *given], stdout=output, stderr=output
            )
        listed = eventually(lambda: self._said(r"the nodes are listed in (\S+)") or self._ended(), 60)
        self.nodes_file = Path(listed)
        self.scratch = self.nodes_file.parent

    def _said(self, pattern: str) -> str:
        found = re.search(pattern, self.log())
        return found[1] if found else ""

    def _ended(self) -> str:
        assert self.process.poll() is None, self.log()
        return ""

    def log(self) -> str:
        return self.log_path.read_text()

    def wait_until_serving(self) -> None:
        eventually(lambda: self._said(r"(node2: http)") or self._ended(), 60)

    def urls(self) -> dict[str, str]:
        """The address of each node, from the file for Prometheus's file_sd."""
        targets = json.loads(self.nodes_file.read_text())
        return {target["labels"]["node"]: f"http://{target['targets'][0]}" for target in targets}

    def processes(self) -> list[int]:
        """Every process of this demo that runs on its files: simulator, daemons, samplers."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.scratch).encode() in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                pass  # it has just ended
        return found

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    log = tmp_path_factory.mktemp("demo") / "log"
    running = Demo(log, "--workload=square", "--clock-offset=node2=-37.4ms")
    try:
        running.wait_until_serving()
        yield running
    finally:
        if running.process.poll() is None:
            running.end(signal.SIGTERM)


def ask(url: str, path: str, **params: Any) -> Any:
    answer = httpx.get(url + path, params=params, timeout=20)
    assert answer.status_code == 200, answer.text
    return answer.json()


def has_job(url: str) -> bool:
    return [job["job_id"] for job in ask(url, "/api/v1/jobs")["jobs"]] == ["1001"]


def test_all_nodes_have_the_job_and_names_of_their_own(demo: Demo) -> None:
    targets = json.loads(demo.nodes_file.read_text())
    assert [target["labels"] for target in targets] == [
        {"node": name, "rack": "rack1", "leaf": "leaf1"} for name in ("node1", "node2")
    ]
    for url in demo.urls().values():
        eventually(partial(has_job, url))
    assert "node2 computes 20 ms longer in every step; mlx5_1 is the hot rail of every node" in demo.log()
    assert "node2: http://127.0.0.1:" in demo.log()
    assert "clock -37.4 ms" in demo.log()


def test_a_node_that_dies_does_not_end_the_others_and_all_end_with_the_demo(demo: Demo) -> None:
    urls = demo.urls()
    config = str(demo.scratch / "node1").encode()
    (victim,) = (
        pid
        for pid in demo.processes()
        if config in (line := Path(f"/proc/{pid}/cmdline").read_bytes()) and b"\0serve\0" in line
    )
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: "node1: its daemon ended (exit status -9)" in demo.log())
    assert httpx.get(urls["node2"] + "/-/healthy").status_code == 200
    assert demo.end(signal.SIGINT) == 0
    assert demo.processes() == []
    assert not demo.scratch.exists()


def test_every_process_ends_when_the_demo_is_killed(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "log", "--workload=idle")
    try:
        demo.wait_until_serving()
        # the simulator, and two daemons with a sampler each
        eventually(lambda: len(demo.processes()) == 5)
        demo.end(signal.SIGKILL)
        eventually(lambda: not demo.processes())
    finally:
        demo.process.kill()
        for pid in demo.processes():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(demo.scratch)
