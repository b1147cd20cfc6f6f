"""The real program under the conditions of its container: the wheel, no privilege, a read-only root, 128 MiB."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ibpulse.core.recordings import load
from ibpulse.core.ring.layout import RECORD_WORDS, WORD
from tests.campaigns.live.docker.container import (
    MEMORY_BYTES,
    USER,
    Container,
    MemoryLimit,
    docker_run,
)
from tests.running import Metrics, eventually

pytestmark = pytest.mark.needs("containers")
FLAGS = ("--capture.dir=/var/lib/ibpulse/captures", "--capture.allow-unauthenticated=true")


@pytest.fixture(scope="module")
def container(memory: Path, tree: Path, installed: Path, dependencies: Path) -> Iterator[Container]:
    run = docker_run(memory / "one", tree, *FLAGS)
    with MemoryLimit() as limit, Container(memory / "one", [installed, dependencies], limit, run) as container:
        yield container


def test_it_runs_as_65532_without_any_capability_and_cannot_gain_one(container: Container) -> None:
    status = container.status()
    assert status["Uid"].split() == [str(USER)] * 4
    assert status["Gid"].split() == [str(USER)] * 4
    assert status["Groups"] == ""
    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"


def test_its_root_and_its_view_of_the_host_are_read_only(container: Container) -> None:
    mounts = {place: options.split(",") for place, options in container.mounts().items()}
    writable = {place for place, options in mounts.items() if "ro" not in options}
    # what /proc lets 65532 without a capability write is its own
    assert writable == {"/run/ibpulse", "/var/lib/ibpulse", "/proc"}
    assert {"/", "/host/sys"} <= mounts.keys()


def test_it_has_a_network_of_its_own_and_is_process_1(container: Container) -> None:
    assert Path(f"/proc/{container.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    assert container.status()["NSpid"].split()[1:] == ["1"]


def test_there_is_no_shell(container: Container) -> None:
    root = Path(f"/proc/{container.pid}/root")
    assert sorted(path.name for path in (root / "usr/bin").iterdir() if "python" not in path.name) == ["setpriv"]
    assert not (root / "bin").exists()


def test_it_samples_every_port_at_the_rate_that_is_there(container: Container) -> None:
    metrics = eventually(lambda: found if _observed(found := container.metrics(), "mlx5_7") > 5 else None, seconds=60)
    for device in (f"mlx5_{number}" for number in range(8)):
        mean = metrics.port("transmit_utilization_seconds_total", device) / _observed(metrics, device)
        # over some seconds: the simulated counters of a busy machine are late, and then catch up
        assert mean * metrics.port("rate_bytes_per_second", device) == pytest.approx(20e9, rel=0.3)
    assert metrics.value("ibpulse_node_rails") == 8


def _observed(metrics: Metrics, device: str) -> float:
    return metrics.port("observed_seconds_total", device)


def test_it_is_healthy_and_ready_and_serves_the_page(container: Container) -> None:
    assert [container.ask(path)[0] for path in ("/-/healthy", "/-/ready", "/")] == [200, 200, 200]


def test_a_gateway_needs_nothing_but_the_network(container: Container) -> None:
    words = ("gateway", "--nodes.sources=dns+127.0.0.1:10055", "--web.listen-address=:10056")
    command = container.beside(*words, user=USER)
    # a session, because nsenter passes no signal on
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as gateway:
        assert gateway.stderr is not None

        def answer() -> str:
            try:
                return container.ask("/-/ready", port=10056)[1]
            except subprocess.CalledProcessError:
                assert gateway.poll() is None
                return ""

        try:
            eventually(lambda: answer() == "Ready: 1 of 1 nodes answer.\n", seconds=60, pause=0.5)
        finally:
            os.killpg(gateway.pid, signal.SIGTERM)
        log = gateway.stderr.read()
    assert " WARNING " not in log
    assert log.endswith(" stopped\n")


def test_it_stays_within_128_mib(container: Container) -> None:
    assert container.limit.limit_bytes() == MEMORY_BYTES
    assert container.limit.kills() == 0
    assert 0 < container.limit.peak_bytes() <= MEMORY_BYTES


def test_it_stops_cleanly_on_sigterm_and_a_kill_keeps_the_history(
    memory: Path, tree: Path, installed: Path, dependencies: Path
) -> None:
    packages, run = [installed, dependencies], docker_run(memory / "two", tree, *FLAGS)
    with MemoryLimit() as limit, Container(memory / "two", packages, limit, run) as container:
        time.sleep(2)
        now_ms = time.time_ns() // 1_000_000
        # ended a while before the kill: the newest ticks may not have been in an answer yet
        window = f"/api/v1/window?from={now_ms - 1200}&to={now_ms - 500}&port=mlx5_0:1&direction=transmit"
        before = container.json(window)
        assert any(before["series"][0]["values"])
        assert container.stop(signal.SIGKILL) != 0
        container.start()
        after = container.json(window)
        assert (after["start_ms"], after["series"]) == (before["start_ms"], before["series"])
        assert container.stop(signal.SIGTERM) == 0


def test_it_captures_when_alertmanager_says_so_and_stays_within_128_mib(container: Container, memory: Path) -> None:
    alert = {"status": "firing", "labels": {"alertname": "IBPulseRailIdle", "instance": "127.0.0.1:10055"}}
    alert |= {
        "annotations": {},
        "startsAt": "2026-01-01T00:00:00Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "fingerprint": "a",
    }
    notification = {"version": "4", "groupKey": "{}", "status": "firing", "receiver": "node", "truncatedAlerts": 0}
    notification |= {
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "",
        "alerts": [alert],
    }
    status, text = container.ask("/api/v1/captures/alertmanager", "POST", json.dumps(notification))
    assert status < 300, text
    (listed,) = eventually(lambda: container.json("/api/v1/captures")["captures"], seconds=60, pause=1)
    assert listed["reason"] == "IBPulseRailIdle"
    # 8 ports, 10 ms, 5 minutes of history, the usual window; the ring is in the same memory
    assert container.limit.limit_bytes() == MEMORY_BYTES
    assert container.limit.shared_bytes() > 8 * 5 * 60 * 100 * RECORD_WORDS * WORD
    assert container.limit.kills() == 0
    capture = load(memory / "one/state/captures" / listed["name"])
    assert (len(capture.meta.ports), capture.ticks) == (8, 7000)
    after = capture.cut(6000, 7000)
    # a simulated machine writes its counters late now and then, and the sampler of a busy one misses a tick
    assert np.isfinite(after.bytes_per_second).mean() > 0.8
    moved = np.nansum(after.bytes_per_second * after.seconds, axis=2)
    np.testing.assert_allclose(moved / after.seconds.sum(axis=2), 20e9, rtol=0.1)
