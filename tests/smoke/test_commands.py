"""The verbs as a user types them, one after the other, on real nodes."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ibpulse.core.recordings import load
from tests.running import HANG_SECONDS, Running, eventually
from tests.smoke.parts import IBPULSE, get, ibpulse, plain_tree, port_path, processes, program, simulated


def test_a_recording_is_reported_drawn_and_replayed(tmp_path: Path) -> None:
    tree, recording = tmp_path / "sys", tmp_path / "run.parquet"
    flags = ("--workload=square", "--rate=20GB/s", "--period=100ms", "--duty=0.5")
    with simulated(tree, *flags), Running(tree, tmp_path / "ring") as daemon:
        assert str(recording) in ibpulse("record", recording, "--duration=2s", f"--url={daemon.url}")
    assert [port.device for port in load(recording).meta.ports] == ["mlx5_0", "mlx5_1"]
    (found,) = json.loads(ibpulse("report", recording, "--format=json", "--resamples=100"))["recordings"]
    assert (found["name"], found["complete"], found["simulated"]) == ("run", True, True)
    ibpulse("render", recording, "-o", tmp_path / "rails.png")
    assert (tmp_path / "rails.png").read_bytes().startswith(b"\x89PNG")
    again = tmp_path / "again"
    with program(tmp_path / "replay.log", *IBPULSE, "replay", recording, again, "--loop"):
        eventually((again / "class/infiniband/mlx5_1/ports/1/counters/port_rcv_data").exists)
        with Running(again, tmp_path / "ring-of-replay") as daemon:
            for device in ("mlx5_0", "mlx5_1"):
                eventually(lambda device=device: daemon.metrics().port("transmit_bytes_total", device))


def test_the_demo_serves_and_leaves_nothing_behind(tmp_path: Path) -> None:
    words = ("demo", "--nodes=2", "--ports=2", "--web.listen-address=127.0.0.1:0")
    with program(tmp_path / "log", *IBPULSE, *words) as demo:
        nodes = Path(demo.said(r"the nodes are listed in (\S+)"))
        demo.said(r"(node2: http)")
        targets = {entry["labels"]["node"]: entry["targets"][0] for entry in json.loads(nodes.read_text())}
        assert targets.keys() == {"node1", "node2"}
        for target in targets.values():
            answer = eventually(lambda target=target: get(f"http://{target}/api/v1/jobs")["jobs"])
            assert [job["job_id"] for job in answer] == ["1001"]
        assert demo.end(signal.SIGINT) == 0
    assert not nodes.parent.exists()
    eventually(lambda: not processes(tmp_path))


def test_the_doctor_passes_a_healthy_node_and_names_a_broken_port(tmp_path: Path) -> None:
    tree = plain_tree(tmp_path / "sys")
    # the other checks judge how fast this machine is
    checks = [f"--check={name}" for name in ("tree", "devices", "rails", "files", "counting", "links", "space")]
    flags = (f"--path.sysfs={tree}", f"--ring.dir={tmp_path / 'ring'}", "--format=json", *checks)
    assert worst(ibpulse("doctor", *flags)).keys() == {"OK"}
    (port_path(tree, 1) / "counters/port_xmit_data").write_text("N/A (no PMA)\n")
    assert worst(ibpulse("doctor", *flags, "--no-look", status=1))["FAIL"] == {"mlx5_1:1"}


def worst(answer: str) -> dict[str, set[str]]:
    """What the findings of each level are about."""
    found: dict[str, set[str]] = {}
    for finding in json.loads(answer)["findings"]:
        found.setdefault(finding["level"], set()).add(finding["subject"])
    return found


@contextmanager
def terminal(directory: Path, words: tuple[object, ...]) -> Iterator[Tmux]:
    """A terminal that runs a command, then prints its exit status."""
    tmux = Tmux(directory / "tmux")
    # the size is that of a terminal, and the shell stays until its screen was read
    script = f'{shlex.join(map(str, words))}; echo "ended with $?"; exec sleep 1000'
    tmux.run("-u", "new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", script)
    try:
        yield tmux
    finally:
        tmux.run("kill-server")


@dataclass(frozen=True)
class Tmux:
    """A server of its own, with one pane."""

    socket: Path

    def run(self, *words: str) -> str:
        command = ["tmux", "-S", str(self.socket), "-f", "/dev/null", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_SECONDS).stdout

    def shows(self, *texts: str) -> None:
        """Wait until all of these are on the screen."""
        eventually(lambda: all(text in self.run("capture-pane", "-p") for text in texts))


@pytest.mark.needs("tmux")
def test_top_shows_the_rails_of_a_daemon(tmp_path: Path) -> None:
    daemon = Running(plain_tree(tmp_path / "sys"), tmp_path / "ring")
    with daemon, terminal(tmp_path, (*IBPULSE, "top", f"--url={daemon.url}")) as screen:
        screen.shows(daemon.url, "mlx5_0:1", "mlx5_1:1", "duty cycle")
        screen.run("send-keys", "q")
        screen.shows("ended with 0")
