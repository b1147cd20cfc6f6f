"""A daemon that can open no file, and what it does at its start so that it needs none later."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from ibpulse.core.ring.file import RingFile
from tests.fabrics import add_device
from tests.running import Running, eventually


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three devices of plain files, whose counters stand still."""
    root = tmp_path / "sys"
    for number in range(3):
        add_device(root, f"mlx5_{number}")
    return root


def running(tree: Path, ring: Path, *flags: str) -> Running:
    return Running(tree, ring, "--slow.interval=1s", *flags, needs_ports=False)


def sampled(daemon: Running) -> set[str]:
    """The ports with samples in the last half second."""
    return {name.partition(" ")[0] for name, values in daemon.window("500ms").items() if any_known(values)}


def any_known(values: list[float | None]) -> bool:
    return any(value is not None for value in values)


THREE = {"mlx5_0:1", "mlx5_1:1", "mlx5_2:1"}


def test_a_daemon_without_free_descriptors_goes_on_and_recovers(tree: Path, tmp_path: Path) -> None:
    daemon = running(tree, tmp_path / "ring")
    daemon.may_fail_inside = True
    with daemon:
        eventually(lambda: sampled(daemon) == THREE)
        soft, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        # what is open stays open, and nothing else can be opened
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (3, hard))
        add_device(tree, "mlx5_3")
        eventually(lambda: "internal error in fabric: OSError: [Errno 24] Too many open files" in daemon.log())
        ring = RingFile(tmp_path / "ring" / "ring", writable=False)
        begun = ring.latest_tick()
        eventually(lambda: ring.latest_tick() > begun + 300)
        ring.close()
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (soft, hard))
        eventually(lambda: sampled(daemon) == {*THREE, "mlx5_3:1"})
        # that nothing could be opened said nothing about the ports
        events = daemon.ask("/api/v1/events", last="1h").json()["events"]
        assert {event["kind"] for event in events} == {"started", "appeared"}


def test_the_daemon_raises_its_own_limit_of_open_files(tree: Path, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with running(tree, tmp_path / "ring") as daemon:
            most = 2048 if hard == resource.RLIM_INFINITY else min(2048, hard)
            assert resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)[0] == most
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_nothing_is_imported_after_the_start(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import needs a descriptor, and there may be none."""
    imports, site = tmp_path / "imports", tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import os, sys\n"
        f"file = os.open({str(imports)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
        "write, pid = os.write, os.getpid()\n"
        "sys.addaudithook(lambda event, args: event == 'import' and write(file, f'{pid} {args[0]}\\n'.encode()))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    daemon = running(tree, tmp_path / "ring", "--analysis.traffic-window=10s")
    daemon.launch()
    begun = len(imports.read_text().splitlines())
    daemon.wait_until_counting()
    for path in ("/", "/metrics", "/nowhere", "/api/v1/ports", "/api/v1/captures", "/api/v1/summary?last=10s"):
        daemon.ask(path)
    # the first search for a step
    eventually(lambda: daemon.metrics().find("ibpulse_node_step_period_score"), 60.0)
    for form in ("json", "csv", "npy", "grafana"):
        daemon.ask("/api/v1/window", last="500ms", format=form)
    pid = daemon.pid
    daemon.stop()
    late = [line.split()[1] for line in imports.read_text().splitlines()[begun:] if line.startswith(f"{pid} ")]
    assert late == []
