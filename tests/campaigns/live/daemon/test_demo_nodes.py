"""`ibpulse demo` as a process: nodes that share a job, of which one dies, and the end of all with the demo."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.running import eventually
from tests.smoke.parts import IBPULSE, Program


class Demo(Program):
    """`ibpulse demo` with two small nodes; `scratch` has their files."""

    def __init__(self, log: Path, *flags: str) -> None:
        super().__init__(log, (*IBPULSE, "demo", "--nodes=2", "--ports=2", "--web.listen-address=127.0.0.1:0", *flags))

    @property
    def nodes_file(self) -> Path:
        """The list of nodes, once it is written."""
        return Path(self.said(r"the nodes are listed in (\S+)"))

    @property
    def scratch(self) -> Path:
        return self.nodes_file.parent

    def processes(self) -> dict[int, bytes]:
        """Every process that runs on the files of this demo, with its words: simulator, daemons, samplers."""
        found, scratch = {}, str(self.scratch).encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue  # it has just ended
            if scratch in words:
                found[int(path.parent.name)] = words
        return found


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    running = Demo(tmp_path / "log", "--workload=square", "--clock-offset=node2=-37.4ms")
    try:
        running.said(r"(node2: http)")
        yield running
    finally:
        running.process.kill()
        for pid in running.processes():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(running.scratch, ignore_errors=True)


def ask(url: str, path: str) -> Any:
    return httpx.get(url + path, timeout=20).raise_for_status().json()


def test_all_nodes_have_the_job_one_that_dies_ends_no_other_and_all_end_with_the_demo(demo: Demo) -> None:
    targets = json.loads(demo.nodes_file.read_text())
    assert [target["labels"] for target in targets] == [
        {"node": name, "rack": "rack1", "leaf": "leaf1"} for name in ("node1", "node2")
    ]
    urls = [f"http://{target['targets'][0]}" for target in targets]
    for url in urls:
        eventually(lambda url=url: [job["job_id"] for job in ask(url, "/api/v1/jobs")["jobs"]] == ["1001"])
    for words in ("node2 computes 20 ms longer in every step; mlx5_1 is the hot rail of every node", "clock -37.4 ms"):
        assert words in demo.log.read_text()
    config = str(demo.scratch / "node1").encode()
    (victim,) = (pid for pid, words in demo.processes().items() if config in words and b"\0serve\0" in words)
    os.kill(victim, signal.SIGKILL)
    demo.said(r"(node1: its daemon ended \(exit status -9\))")
    assert httpx.get(urls[1] + "/-/healthy").status_code == 200
    assert demo.end(signal.SIGINT) == 0
    assert demo.processes() == {}
    assert not demo.scratch.exists()


def test_every_process_ends_when_the_demo_is_killed(demo: Demo) -> None:
    # the simulator, and two daemons with a sampler each
    eventually(lambda: len(demo.processes()) == 5)
    demo.end(signal.SIGKILL)
    eventually(lambda: not demo.processes())


def test_a_demo_that_cannot_be_simulated_says_why() -> None:
    words = ("demo", "--workload=idle", "--rate=1GB/s", "--web.listen-address=127.0.0.1:0")
    command = [sys.executable, "-m", "ibpulse", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert 'workload "idle" has no option "rate' in ended.stderr
    assert "the simulated fabric failed to start; see the message above" in ended.stderr
