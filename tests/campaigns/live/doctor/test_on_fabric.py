"""`ibpulse doctor` as it is run: on a fabric with each of the simulator's faults, beside a daemon, on sick devices."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ibpulse.simulate.faults import FAULTS
from ibpulse.simulate.tree import make_devices
from tests.fabrics import simulated
from tests.fusefabric.client import FuseFabric
from tests.running import Running, eventually

DEVICE = "mlx5_2"
# the check that names each fault, at which level, and what its sentence says
NAMED = {
    "idle-rail": ("balance", "WARN", "is idle"),
    "slow-rail": ("balance", "WARN", "is slow"),
    "link-flap": ("rails", "FAIL", "its link is DOWN"),
    "trained-down": ("rails", "WARN", "trained down"),
    "vanish": ("devices", "FAIL", "has no RDMA device"),
    "reset": ("counting", "WARN", "was reset"),
    "stuck": ("balance", "FAIL", "has stuck byte counters"),
    "refresh": ("resolution", "WARN", "refreshed only every 100 ms"),
    "bit-errors": ("saturation", "WARN", "has counters at their maximum: symbol_error"),
    "einval": ("rails", "FAIL", "is not sampled: counters/port_xmit_data"),
}
# the node is not to blame for these
OF_THE_FABRIC = {"congested"}
# what follows from a fault is a finding too
CONSEQUENCES = {"trained-down": [("balance", "WARN")]}
# A function without a device has no name of one.
CARD = make_devices(4)[2].pci_path.rpartition("/")[2]


@dataclass(frozen=True)
class Answer:
    """What one run of doctor said."""

    code: int
    document: dict[str, Any]

    def troubles(self) -> list[dict[str, str]]:
        return [finding for finding in self.document["findings"] if finding["level"] != "OK"]


def command(tree: Path, ring: Path, *flags: str) -> list[str]:
    settings = (f"--path.sysfs={tree}", f"--ring.dir={ring}", "--web.listen-address=127.0.0.1:0")
    return [sys.executable, "-m", "ibpulse", "doctor", *settings, *flags]


def ask(tree: Path, ring: Path, *flags: str, meanwhile: Callable[[], None] | None = None) -> Answer:
    with subprocess.Popen(command(tree, ring, "--format=json", *flags), stdout=subprocess.PIPE, text=True) as process:
        if meanwhile:
            meanwhile()
        out, _ = process.communicate(timeout=60)
    return Answer(process.returncode, json.loads(out))


@contextmanager
def in_memory() -> Iterator[Path]:
    """A directory on tmpfs if there is one, as a node has it."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="ibpulse-test-", dir=memory))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Simulation:
    """A simulated fabric of four rails and a management port, with a place for a ring that nobody writes."""

    tree: Path
    ring: Path

    def set(self, text: object) -> None:
        fresh = self.tree / "faults.new"
        fresh.write_text(json.dumps(text))
        fresh.rename(self.tree / "faults.json")
        # the fabric looks at the file every 250 ms
        time.sleep(0.6)


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    with (
        in_memory() as folder,
        simulated(folder / "sys", "constant", ports=4, rate="20GB/s") as tree,
    ):
        yield Simulation(tree, folder / "ring")


def reset_again_and_again(simulation: Simulation) -> Callable[[], None]:
    """Resets for as long as a look takes to begin and go on."""

    def reset() -> None:
        for _ in range(5):
            simulation.set({"reset": [DEVICE]})
            simulation.set({})

    return reset


@pytest.fixture
def faulty(simulation: Simulation, request: pytest.FixtureRequest) -> Iterator[Answer]:
    fault = request.param
    simulation.set({} if fault == "reset" else {fault: [DEVICE]})
    meanwhile = reset_again_and_again(simulation) if fault == "reset" else None
    yield ask(simulation.tree, simulation.ring, meanwhile=meanwhile)
    # a counter at its maximum stays there until it is cleared
    simulation.set({"reset": [DEVICE]} if fault == "bit-errors" else {})
    simulation.set({})


def test_every_fault_of_the_simulator_is_looked_for() -> None:
    assert set(NAMED) == set(FAULTS) - OF_THE_FABRIC


@pytest.mark.parametrize("faulty", sorted(OF_THE_FABRIC), indirect=True)
def test_what_the_fabric_does_is_no_finding(faulty: Answer) -> None:
    assert faulty.troubles() == []


@pytest.mark.parametrize(("faulty", "fault"), [(fault, fault) for fault in NAMED], indirect=["faulty"], ids=list(NAMED))
def test_a_fault_is_named_and_nothing_else(faulty: Answer, fault: str) -> None:
    topic, level, words = NAMED[fault]
    troubles = faulty.troubles()
    named = [(one["topic"], one["level"]) for one in troubles]
    assert named == [(topic, level), *CONSEQUENCES.get(fault, [])], troubles
    assert troubles[0]["subject"] == (CARD if fault == "vanish" else f"{DEVICE}:1")
    # measured on a machine that may be busy
    assert words in re.sub(r"\b(99|100)\.\d ms", "100 ms", troubles[0]["sentence"])
    assert faulty.document["verdict"] == level
    assert faulty.code == (1 if level == "FAIL" else 0)


def test_a_healthy_fabric_is_all_ok(simulation: Simulation) -> None:
    answer = ask(simulation.tree, simulation.ring, "--strict")
    assert answer.troubles() == []
    assert (answer.code, answer.document["verdict"]) == (0, "OK")
    assert answer.document["look"]["by_daemon"] is False


def test_page_and_document_say_the_same(simulation: Simulation) -> None:
    simulation.set({"link-flap": [DEVICE]})
    flags = ("--no-look", "--check=rails", "--check=devices")
    page = subprocess.run(
        command(simulation.tree, simulation.ring, *flags), stdout=subprocess.PIPE, text=True, check=False
    )
    answer = ask(simulation.tree, simulation.ring, *flags)
    simulation.set({})
    assert page.returncode == answer.code == 1
    unwrapped = " ".join(page.stdout.split())
    for finding in answer.document["findings"]:
        assert finding["sentence"] in unwrapped
        assert finding["subject"] in unwrapped
    assert unwrapped.endswith("verdict: FAIL (1 failure)")
    assert {finding["topic"] for finding in answer.document["findings"]} == {"devices", "rails"}


def test_doctor_sees_through_a_running_daemon_and_does_not_disturb_it(simulation: Simulation) -> None:
    with in_memory() as folder, Running(simulation.tree, folder / "ring") as daemon:
        port = daemon.url.rpartition(":")[2]
        simulation.set({"idle-rail": [DEVICE]})
        before = daemon.metrics()
        answer = ask(simulation.tree, folder / "ring", f"--web.listen-address=127.0.0.1:{port}")
        after = daemon.metrics()
        simulation.set({})
        assert [one["topic"] for one in answer.troubles()] == ["balance"]
        assert answer.document["look"]["by_daemon"] is True
        web = next(one for one in answer.document["findings"] if one["topic"] == "web")
        assert web["sentence"] == f"127.0.0.1:{port} is used by ibpulse."
        for name in ("ibpulse_sampler_restarts_total", "ibpulse_sampler_takeovers_total"):
            assert after.value(name) == before.value(name) == 0
        assert sum(after.find("ibpulse_sampler_read_errors_total").values()) == 0
        assert daemon.ask("/-/healthy").status_code == 200


def test_doctor_says_since_when_according_to_the_event_log_of_the_daemon(simulation: Simulation) -> None:
    with in_memory() as folder, Running(simulation.tree, folder / "ring") as daemon:
        begin = time.gmtime()
        for _ in range(3):
            simulation.set({"link-flap": ["mlx5_1"]})
            eventually(lambda: daemon.ask("/api/v1/ports").json()["ports"][1]["state"] == "DOWN")
            simulation.set({})
            eventually(lambda: daemon.ask("/api/v1/ports").json()["ports"][1]["state"] == "ACTIVE")
        simulation.set({"vanish": [DEVICE]})
        eventually(lambda: daemon.ask("/api/v1/events", kind="disappeared", last="1m").json()["events"])
        answer = ask(simulation.tree, folder / "ring")
        simulation.set({})
    gone, flaps = answer.troubles()
    assert (gone["topic"], gone["subject"]) == ("devices", CARD)
    said = gone["sentence"].partition(f" The daemon sampled {DEVICE}:1 until ")[2]
    assert time.strftime("%Y-%m-%d %H:%M:%S", begin) < said <= time.strftime("%Y-%m-%d %H:%M:%S UTC.", time.gmtime())
    assert (flaps["topic"], flaps["level"], flaps["subject"]) == ("events", "WARN", "mlx5_1:1")
    assert flaps["sentence"].startswith("went down 3 times in the last hour, last at ")


def test_watching_looks_again_until_it_is_stopped(simulation: Simulation) -> None:
    flags = ("--no-look", "--check=devices", "--watch=100ms", "--format=json")
    with subprocess.Popen(
        command(simulation.tree, simulation.ring, *flags), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.terminate()
    assert [one["verdict"] for one in told] == ["OK", "OK"]


needs_fuse = pytest.mark.needs("fuse")


@pytest.fixture(scope="module")
def fuse() -> Iterator[FuseFabric]:
    with (
        in_memory() as folder,
        FuseFabric(folder / "sys", "constant", {"rate_bytes_per_second": 20e9}, ports=4) as fabric,
    ):
        yield fabric


@needs_fuse
@pytest.mark.parametrize("files", [(), ("node_guid",)], ids=["counters", "node_guid"])
def test_a_device_that_hangs_is_named_and_holds_up_nothing(
    fuse: FuseFabric, tmp_path: Path, files: tuple[str, ...]
) -> None:
    fuse.set(DEVICE, hang_seconds=50.0, files=files)
    begin = time.monotonic()
    answer = ask(fuse.root, tmp_path / "ring")
    seconds = time.monotonic() - begin
    fuse.clear()
    assert [(one["topic"], one["level"], one["subject"]) for one in answer.troubles()] == [("devices", "FAIL", DEVICE)]
    # the hang lasts 50 s; nobody waited for its end
    assert seconds < 40.0
    sampled = {one["subject"] for one in answer.document["findings"] if one["topic"] == "resolution"}
    assert sampled == {"mlx5_0:1", "mlx5_1:1", "mlx5_3:1"}


@needs_fuse
def test_a_device_that_begins_to_hang_during_the_look_is_named(fuse: FuseFabric, tmp_path: Path) -> None:
    timer = threading.Timer(3.0, lambda: fuse.set(DEVICE, hang_seconds=50.0))
    timer.start()
    answer = ask(fuse.root, tmp_path / "ring")
    timer.cancel()
    fuse.clear()
    assert [(one["topic"], one["subject"]) for one in answer.troubles()] == [("devices", DEVICE)]


@needs_fuse
def test_counters_that_refuse_are_named_with_the_kernels_word(fuse: FuseFabric, tmp_path: Path) -> None:
    fuse.set(DEVICE, errno=errno.EINVAL)
    answer = ask(fuse.root, tmp_path / "ring")
    fuse.clear()
    sentences = [one["sentence"] for one in answer.troubles()]
    assert sentences == ["is not sampled: counters/port_xmit_data cannot be read: Invalid argument."]


@needs_fuse
def test_a_full_counter_is_named(fuse: FuseFabric, tmp_path: Path) -> None:
    fuse.set(DEVICE, value=65535, files=("symbol_error",))
    answer = ask(fuse.root, tmp_path / "ring", "--no-look")
    fuse.clear()
    assert [one["sentence"] for one in answer.troubles()] == ["has counters at their maximum: symbol_error."]


def test_a_device_that_comes_back_is_all_ok_again(simulation: Simulation) -> None:
    simulation.set({"vanish": [DEVICE]})
    simulation.set({})
    eventually((simulation.tree / "class/infiniband" / DEVICE).exists)
    assert ask(simulation.tree, simulation.ring).troubles() == []
