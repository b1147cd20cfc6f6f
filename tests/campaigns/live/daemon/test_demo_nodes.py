"""`ibpulse demo --nodes`: real daemons on simulated nodes that share a job, each with a wall clock of its own."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from ibpulse.commands.demo_nodes import find_ports
from ibpulse.errors import ConfigError
from tests.running import Metrics, eventually

OFFSETS_MS = {"node1": 0.3, "node2": -37.4}
RATE = 20e9


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
    flags = [f"--clock-offset={name}={offset}ms" for name, offset in OFFSETS_MS.items()]
    log = tmp_path_factory.mktemp("demo") / "log"
    running = Demo(log, "--workload=square", "--period=200ms", f"--rate={RATE / 1e9:g}GB/s", *flags)
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


def series(url: str, port: str) -> dict[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """Times (ms by the node's clock) and rates (bytes per second) of the last seconds, by direction."""
    window = ask(url, "/api/v1/window", last="30s", port=port, resolution="10ms", statistic="mean")
    times = window["start_ms"] + window["resolution_ms"] * np.arange(window["points"])
    return {each["direction"]: (times, np.array(each["values"], dtype=float)) for each in window["series"]}


def edges(times: npt.NDArray[np.float64], rates: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The times (ms) at which a long burst begins: the first sample of it says how much of its interval was busy.

    The next sample has the rate of the burst, unless the first one was taken late.
    """
    part = rates / RATE
    steady = np.abs(part - 1) < 0.03
    first = np.flatnonzero((part[:-3] < 0.01) & (part[1:-2] < 1) & steady[2:-1] & (part[3:] > 0.5)) + 1
    found: npt.NDArray[np.float64] = times[first] - 10 * part[first]
    return found


def test_the_same_edge_is_shifted_by_the_difference_of_the_clocks(demo: Demo) -> None:
    urls = demo.urls()
    shift = OFFSETS_MS["node2"] - OFFSETS_MS["node1"]

    def differences() -> list[float]:
        ours, theirs = (edges(*series(url, "mlx5_1:1")["transmit"]) for url in urls.values())
        apart = theirs[None, :] - ours[:, None] - shift
        pairs = apart[np.abs(apart) < 60]
        # on a busy machine many edges are sampled late
        clear = len(pairs) >= 20 and np.subtract(*np.percentile(pairs, [60, 40])) < 0.5
        return [float(each) for each in pairs] if clear else []

    found = eventually(differences, 90, 1.0)
    assert np.median(found) == pytest.approx(0, abs=1), sorted(found)


def test_the_straggler_receives_before_it_transmits(demo: Demo) -> None:
    def before_bursts(url: str, direction: str) -> float:
        """The share of bursts before which something moves for a moment, up to 40 ms earlier."""
        both = series(url, "mlx5_1:1")
        times, rates = both[direction]
        begins = edges(*both["transmit" if direction == "receive" else "receive"])
        early = np.array([np.nanmax(rates[(times > begin - 40) & (times < begin)], initial=0) for begin in begins])
        # a burst that continues after a pause of the simulation begins nothing
        early = early[early < RATE / 4]
        return float(np.mean(early > RATE / 100)) if len(early) >= 10 else math.nan

    def is_seen() -> bool:
        shares = {
            (name, way): before_bursts(url, way) for name, url in demo.urls().items() for way in ("transmit", "receive")
        }
        # node2 is the straggler, and node1 receives from it
        late = shares["node2", "receive"] > 0.8 > 0.2 > shares["node2", "transmit"]
        return late and shares["node1", "transmit"] > 0.8 > 0.2 > shares["node1", "receive"]

    eventually(is_seen, 90, 1.0)


def test_one_rail_of_every_node_is_hot(demo: Demo) -> None:
    for url in demo.urls().values():
        metrics = Metrics.parse(httpx.get(url + "/metrics").text)
        hot, other = (
            sum(metrics.find("ibpulse_port_transmit_bytes_total", device=device).values())
            for device in ("mlx5_1", "mlx5_0")
        )
        assert hot == pytest.approx(other / 0.75, rel=0.02)


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


def test_a_port_that_is_in_use_or_impossible_is_refused_before_a_daemon_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use"):
            find_ports("127.0.0.1", port, 2)
    with pytest.raises(ConfigError, match="cannot listen on 127\\.0\\.0\\.1:65536"):
        find_ports("127.0.0.1", 65536, 2)
    assert len(set(find_ports("127.0.0.1", 0, 4))) == 4


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
