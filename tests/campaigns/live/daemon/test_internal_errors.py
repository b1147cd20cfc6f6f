"""An exception in a part of the daemon ends neither sampling nor serving: it is counted, logged once, and retried."""

from __future__ import annotations

import html
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ibpulse.doctor.facts import WebPort
from ibpulse.doctor.machine_facts import find_web_holder
from ibpulse.internal_errors import PARTS
from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from tests.running import Running, eventually

ERRORS = "ibpulse_internal_errors_total"
NOT_UTF8 = os.fsdecode(b"mlx5_\xff")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three devices of plain files, whose counters stand still."""
    root = tmp_path / "sys"
    for number in range(3):
        add_device(root, f"mlx5_{number}")
    return root


def add_device(root: Path, name: str, port: int = 1) -> None:
    folder = root / "class/infiniband" / name / f"ports/{port}"
    (folder / "counters").mkdir(parents=True)
    for file, text in {
        "counters/port_xmit_data": "1000",
        "counters/port_rcv_data": "2000",
        "counters/symbol_error": "0",
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "400 Gb/sec (4X NDR)",
        "link_layer": "InfiniBand",
    }.items():
        (folder / file).write_text(f"{text}\n")


def running(tree: Path, ring: Path, *flags: str) -> Running:
    return Running(tree, ring, "--slow.interval=1s", *flags, needs_ports=False)


def sampled(daemon: Running) -> set[str]:
    """The ports with samples in the last half second."""
    return {name.partition(" ")[0] for name, values in daemon.window("500ms").items() if any_known(values)}


def any_known(values: list[float | None]) -> bool:
    return any(value is not None for value in values)


def notices(daemon: Running) -> str:
    return "\n".join(daemon.ask("/api/v1/ports").json()["notices"])


def errors(daemon: Running) -> dict[str, int]:
    """The internal errors of every part."""
    return {dict(labels)["part"]: int(count) for labels, count in daemon.metrics().find(ERRORS).items()}


THREE = {"mlx5_0:1", "mlx5_1:1", "mlx5_2:1"}


def test_every_part_has_a_series_from_the_start(tree: Path, tmp_path: Path) -> None:
    with running(tree, tmp_path / "ring") as daemon:
        eventually(lambda: sampled(daemon) == THREE)
        assert errors(daemon) == dict.fromkeys(PARTS, 0)


UNUSABLE = {
    (NOT_UTF8, 1): r"mlx5_\xff: ignored, because its name is not UTF-8",
    ("w31", 999): "w31: port 999 is ignored, because port numbers end at 255",
    ("m" * 200, 1): "its name has 200 bytes, too many for the ring",
}


@pytest.mark.parametrize("at_start", [True, False], ids=["at the start", "while running"])
def test_ports_that_cannot_be_sampled_are_said_and_the_others_are_sampled(
    tree: Path, tmp_path: Path, *, at_start: bool
) -> None:
    def add_unusable() -> None:
        for device, port in UNUSABLE:
            add_device(tree, device, port)

    if at_start:
        add_unusable()
    with running(tree, tmp_path / "ring") as daemon:
        eventually(lambda: sampled(daemon) == THREE)
        if not at_start:
            add_unusable()
        for notice in UNUSABLE.values():
            eventually(lambda notice=notice: notice in notices(daemon))
        eventually(lambda: sampled(daemon) == THREE)
        eventually(lambda: daemon.metrics().value("ibpulse_fabric_notices") >= len(UNUSABLE))
        assert errors(daemon) == dict.fromkeys(PARTS, 0)


@pytest.fixture
def small_tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system for a ring with three ports and little else."""
    if os.geteuid():
        pytest.skip("needs root to mount a small tmpfs")
    folder = tmp_path / "ring"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no space on the file system."""
    with (folder / "filler").open("ab", buffering=0) as file:
        while shutil.disk_usage(folder).free:
            file.write(bytes(4096))


def test_a_full_ring_directory_and_a_device_that_vanishes_end_nothing(tree: Path, small_tmpfs: Path) -> None:
    daemon = running(tree, small_tmpfs)
    devices = tree / "class/infiniband"
    daemon.may_fail_inside = True
    with daemon:
        eventually(lambda: sampled(daemon) == THREE)
        fill(small_tmpfs)
        (devices / "mlx5_2").rename(tree / "mlx5_2")
        eventually(lambda: sampled(daemon) == THREE - {"mlx5_2:1"})
    # the disk is still full
    with daemon:
        eventually(lambda: sampled(daemon) == THREE - {"mlx5_2:1"})
        for number in range(3, 20):
            add_device(tree, f"mlx5_{number}")
        eventually(lambda: "has no space for port" in notices(daemon))
        eventually(lambda: sampled(daemon) == THREE - {"mlx5_2:1"})
        (small_tmpfs / "filler").unlink()
        (tree / "mlx5_2").rename(devices / "mlx5_2")
        eventually(lambda: sampled(daemon) >= {*THREE, "mlx5_3:1"})


def test_a_plan_that_cannot_be_written_is_said_and_written_later(tree: Path, tmp_path: Path) -> None:
    """A directory is in the way of the new plan."""
    daemon = running(tree, tmp_path / "ring")
    daemon.may_fail_inside = True
    obstacle = tmp_path / "ring" / "plan-0.json.new"
    with daemon:
        eventually(lambda: sampled(daemon) == THREE)
        obstacle.mkdir()
        add_device(tree, "mlx5_3")
        eventually(lambda: errors(daemon)["plan"] >= 2)
        sentence = f"the sampler's plan {tmp_path}/ring/plan-0.json cannot be written: Is a directory"
        assert sentence in notices(daemon)
        assert "Internal errors in plan; see the log." in daemon.ask("/-/ready").text
        assert sentence in html.unescape(daemon.ask("/").text)
        assert find_web_holder("127.0.0.1", httpx.URL(daemon.url).port or 0) == WebPort("ibpulse", "plan")
        assert daemon.log().count(sentence) == 1
        assert sampled(daemon) >= THREE
        obstacle.rmdir()
        eventually(lambda: sampled(daemon) == {*THREE, "mlx5_3:1"})
        failed = errors(daemon)
    assert {part for part, count in failed.items() if count} == {"plan"}
    assert f"there were internal errors: plan {failed['plan']}" in daemon.log()


def test_a_damaged_ring_withdraws_the_statistics_and_nothing_else(tree: Path, tmp_path: Path) -> None:
    """Something wrote into the table of slots: no number of bytes per count is as high as that of a port."""
    daemon = running(tree, tmp_path / "ring", "--slow.interval=10m")
    daemon.may_fail_inside = True
    with daemon:
        eventually(lambda: sampled(daemon) == THREE)
        ring = RingFile(tmp_path / "ring" / "ring")
        damaged = at.slot_at(ring.slots()["mlx5_1:1"]) + at.S_SCALE
        scale, ring.words[damaged] = ring.words[damaged], at.ABSENT
        eventually(lambda: errors(daemon)["aggregation"] >= 2)
        eventually(lambda: not daemon.metrics().find("ibpulse_sampler_ticks_total"))
        assert "OverflowError" in notices(daemon)
        assert daemon.log().count("internal error in aggregation") == 1
        assert daemon.ask("/-/healthy").status_code == 200
        ring.words[damaged] = scale
        ring.close()
        eventually(lambda: daemon.metrics().find("ibpulse_port_transmit_bytes_total"))


UNEXPECTED = """
import sys
from ibpulse.cli import main
from ibpulse.web.auth import reload

read_config = reload.read_config

def read_or_fail(path):
    if "unexpected" in path.read_text():
        raise RuntimeError("unexpected")
    return read_config(path)

reload.read_config = read_or_fail
sys.exit(main(sys.argv[1:]))
"""


class RunningWithFault(Running):
    """A daemon whose reader of the web configuration has a fault."""

    def __init__(self, tree: Path, ring_dir: Path, *flags: str) -> None:
        super().__init__(tree, ring_dir, "--slow.interval=1s", *flags, needs_ports=False)
        self._command = [sys.executable, "-c", UNEXPECTED, *self._command[self._command.index("serve") :]]
        self.may_fail_inside = True


def test_a_fault_in_the_reader_of_the_web_configuration_ends_nothing(tree: Path, tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text("http_server_config: {http2: false}\n")
    daemon = RunningWithFault(tree, tmp_path / "ring", f"--web.config.file={config}")
    with daemon:
        eventually(lambda: sampled(daemon) == THREE)
        config.write_text("unexpected: true\n")
        eventually(lambda: errors(daemon)["web"] >= 1)
        assert sampled(daemon) == THREE


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
