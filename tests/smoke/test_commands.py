"""The verbs as a user types them, one after the other, on real nodes."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ibpulse.commands import split_verb
from ibpulse.commands.parser import parse
from ibpulse.recordings import load
from tests.running import HANG_SECONDS, Running, eventually
from tests.smoke.conftest import IBPULSE, ROOT, get, ibpulse, plain_tree, processes, program, set_counters, simulated


def test_a_recording_is_reported_drawn_and_replayed(tmp_path: Path) -> None:
    tree, recording = tmp_path / "sys", tmp_path / "run.parquet"
    with simulated(tree, "--workload=square", "--rate=20GB/s", "--period=100ms", "--duty=0.5") as _:
        with Running(tree, tmp_path / "ring") as daemon:
            said = ibpulse("record", recording, "--duration=2s", f"--from={daemon.url}")
            assert str(recording) in said
    ports = [port.name for port in load(recording).meta.ports]
    assert ports == ["mlx5_0:1", "mlx5_1:1"]
    report = json.loads(ibpulse("report", recording, "--format=json"))
    assert [run["name"] for run in report["runs"]] == ["run"]
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
    assert processes(tmp_path) == []


def test_a_healthy_node_passes_the_doctor_and_a_broken_one_does_not(tmp_path: Path) -> None:
    tree = tmp_path / "sys"
    with simulated(tree, "--workload=constant", "--rate=20GB/s"):
        flags = (f"--path.sysfs={tree}", f"--ring.dir={tmp_path / 'ring'}", "--format=json")
        print(ibpulse("doctor", *flags, status=0))
        (tree / "faults.json").write_text('{"link-flap": ["mlx5_1"]}')
        print(ibpulse("doctor", *flags, status=1))
