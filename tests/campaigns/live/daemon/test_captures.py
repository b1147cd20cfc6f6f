"""The flight recorder of a running daemon: alerts of a real Alertmanager, recorders at work, and kills."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import bcrypt
import duckdb
import httpx
import pandas as pd
import pytest

from ibpulse.errors import RecordingError
from ibpulse.recordings import Recording, load
from tests.campaigns.live.daemon.alerting import alerting
from tests.fabrics import simulated
from tests.running import Running, eventually

PATH = "/api/v1/captures"
OPEN = "--capture.allow-unauthenticated=true"
SECOND_NS = 10**9
PASSWORD = "correct horse"


def tell(tree: Path, **document: object) -> None:
    """Put a new control file into the place of the old one."""
    fresh = tree / "faults.new"
    fresh.write_text(json.dumps({name.replace("_", "-"): value for name, value in document.items()}))
    fresh.rename(tree / "faults.json")


def captures(daemon: Running) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.ask(PATH).json()["captures"]
    return found


def ask_for(daemon: Running, **body: Any) -> httpx.Response:
    return httpx.post(daemon.url + PATH, json=body, timeout=20)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    with simulated(tmp_path / "sys", "expert-parallel", ports=4) as made:
        yield made


def test_a_flap_is_in_captures_and_recordings_and_is_replayed(tmp_path: Path, tree: Path) -> None:
    node, remote, again = (tmp_path / f"{name}.parquet" for name in ("node", "remote", "again"))
    with Running(
        tree, tmp_path / "ring", OPEN, f"--capture.dir={tmp_path / 'captures'}", "--capture.min-free=0B"
    ) as daemon:
        recorders = record(node, f"--path.sysfs={tree}"), record(remote, f"--from={daemon.url}")
        for path in (node, remote):
            wait_for_seconds(path, 4)
        tell(tree, link_flap=["mlx5_1"])
        for path in (node, remote):
            wait_for_event(path, "link-down")
        tell(tree)
        for path in (node, remote):
            wait_for_event(path, "link-up")
        finish(*recorders)
        name = ask_for(daemon, reason="flap", before="60s", after="1s").json()["name"]
        eventually(lambda: name in {capture["name"] for capture in captures(daemon)})
        # the event is there before the capture is listed
        events = daemon.ask("/api/v1/events", kind="capture").json()["events"]
    assert [event["details"]["name"] for event in events] == [name]
    for path in (node, remote, tmp_path / "captures" / name):
        assert links_of(path) == ["ACTIVE", "DOWN", "ACTIVE"]
        changes = [event.kind for event in load(path).meta.events if event.kind in ("link-down", "link-up")]
        assert changes == ["link-down", "link-up"]
    replay = start("replay", str(node), str(tmp_path / "replayed"), "--delay=10s")
    eventually((tmp_path / "replayed/class/infiniband/mlx5_3").exists)
    recorder = record(again, f"--path.sysfs={tmp_path / 'replayed'}")
    wait_for_event(again, "link-up")
    finish(recorder)
    finish(replay)
    assert links_of(again) == ["ACTIVE", "DOWN", "ACTIVE"]


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "ibpulse", *words])


def record(path: Path, source: str) -> subprocess.Popen[bytes]:
    return start("record", str(path), source)


def growing(path: Path) -> Recording | None:
    """What a recording holds so far."""
    with suppress(RecordingError):
        return load(path)
    return None


def wait_for_seconds(path: Path, seconds: int) -> None:
    eventually(lambda: (found := growing(path)) and found.end_ns - found.start_ns >= seconds * SECOND_NS, 60)


def wait_for_event(path: Path, kind: str) -> None:
    eventually(lambda: (found := growing(path)) and kind in {event.kind for event in found.meta.events}, 60)


def finish(*processes: subprocess.Popen[bytes]) -> None:
    """Stop them; what they write is complete."""
    for process in processes:
        process.send_signal(signal.SIGINT)
    assert [process.wait(60) for process in processes] == [0] * len(processes)


def links_of(path: Path) -> list[str]:
    """The states of the link that flapped, one after the other."""
    recording = load(path)
    spans = recording.states.spans("mlx5_1:1", 0, recording.ticks)
    assert recording.states.edges(["mlx5_0:1"], 0, recording.ticks) == []
    # a reading between two writes of the simulator sees the physical state change before or after the logical one
    return [state for state, _ in groupby(span.state.state for span in spans if span.state)]


@pytest.mark.needs("prometheus", "alertmanager")
def test_an_alert_freezes_the_seconds_before_it(tmp_path: Path, tree: Path) -> None:
    users = tmp_path / "web.yml"
    users.write_text(f"basic_auth_users: {{ops: {bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}}}\n")
    flags = (f"--web.config.file={users}", "--capture.before=5s", "--capture.after=1s", "--slow.interval=1s")
    daemon = Running(tree, tmp_path / "ring", *flags)
    daemon.launch()
    expression = 'ibpulse_port_up{device="mlx5_3"} == 0'
    try:
        with alerting(tmp_path, daemon.url, expression, "ops", PASSWORD):
            time.sleep(8)
            tell(tree, link_flap=["mlx5_3"])
            told_ns = time.time_ns()
            name = eventually(lambda: next((file.name for file in (tmp_path / "captures").glob("*.parquet")), ""), 60)
            assert "-lost-" in name
            # Alertmanager repeats itself every second
            time.sleep(5)
        assert httpx.get(daemon.url + PATH).status_code == 401
        listing = httpx.get(daemon.url + PATH, auth=("ops", PASSWORD)).json()
        assert [each["name"] for each in listing["captures"]] == [name]
        path = tmp_path / "downloaded.parquet"
        path.write_bytes(httpx.get(f"{daemon.url}{PATH}/{name}", auth=("ops", PASSWORD)).content)
    finally:
        daemon.stop()
    check_alert(path, told_ns)


def check_alert(path: Path, told_ns: int) -> None:
    """The file says why it is there, and shows the rail before and after it was lost."""
    meta = load(path).meta
    assert meta.labels["alertname"] == "Lost"
    assert (meta.labels["device"], meta.labels["severity"], meta.labels["trigger"]) == (
        "mlx5_3",
        "page",
        "alertmanager",
    )
    assert meta.trigger_ns is not None
    assert told_ns <= meta.trigger_ns <= told_ns + 10 * SECOND_NS
    frame = pd.read_parquet(path)
    times = frame["time"].astype("int64")
    assert times.min() <= meta.trigger_ns - 4.9 * SECOND_NS
    assert times.max() >= meta.trigger_ns + 0.9 * SECOND_NS
    lost = frame[(frame["device"] == "mlx5_3") & (times > meta.trigger_ns)]
    assert lost["transmit_bytes_per_second"].max() == 0
    with duckdb.connect() as database:
        found = database.execute(
            f"SELECT device, avg(transmit_bytes_per_second) FROM '{path}' "
            f"WHERE epoch_ns(time) < {told_ns} - 500000000 GROUP BY device ORDER BY device"
        ).fetchall()
    assert [device for device, _ in found] == [f"mlx5_{number}" for number in range(4)]
    assert all(rate > 5e9 for _, rate in found)


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


def test_a_kill_at_any_point_leaves_whole_files_alone(tmp_path: Path, tree: Path) -> None:
    directory = tmp_path / "captures"
    daemon = Running(tree, tmp_path / "ring", OPEN, "--capture.before=30s", "--capture.after=1s")
    whole: set[str] = set()
    for attempt in range(4):
        daemon.start()
        for number in range(3):
            assert ask_for(daemon, labels={"number": str(number)}, after="50ms").status_code == 202
        time.sleep(0.15 + 0.3 * attempt)
        daemon.signal(signal.SIGSTOP)
        children = daemon.sampler_pids()
        daemon.stop(signal.SIGKILL)
        # a writer that was at work ends its file by itself
        eventually(lambda children=children: not any(map(is_running, children)), 60)
        before, whole = whole, {file.name for file in directory.glob("*.parquet")}
        assert before <= whole
        for name in whole - before:
            assert load(directory / name).meta.source == "capture"
    daemon.start()
    assert {each["name"] for each in captures(daemon)} == whole
    assert daemon.stop() == 0
    assert whole
