"""What is found out of the machine, the real one and others, and what doctor says of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ibpulse.agent.doctor import DoctorOptions, Level, examine
from ibpulse.agent.doctor.facts import Facts, Folders, Mount, Space, WebPort
from ibpulse.agent.doctor.machine import (
    find_space,
    find_traps,
    find_web_holder,
    parse_cpus,
    parse_version,
    read_machine,
    ring_bytes,
)
from ibpulse.base.clocks import ClockState
from ibpulse.core.model import ByteSource, SamplerHealth
from ibpulse.core.ring.file import RingFile
from tests.doctor.making import assert_only, make_facts, make_port, sentences, troubles
from tests.tables import for_each


@contextmanager
def answering(text: str) -> Iterator[int]:
    """A web server that answers every question with this text; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_free_address_is_free() -> None:
    port = free_port()
    assert find_web_holder("127.0.0.1", port) == WebPort("free")
    assert find_web_holder("", port) == WebPort("free")
    assert find_web_holder("::1", port).holder in ("free", "refused")


@pytest.mark.parametrize(
    ("text", "holder"),
    [
        ("Healthy: the sampler", WebPort("ibpulse")),
        ("Not healthy: the sampler", WebPort("ibpulse")),
        # `/-/healthy` says how it begins, `/-/ready` which parts fail
        (
            "Healthy: sampling. Internal errors in plan and fabric; see the log.",
            WebPort("ibpulse", "plan and fabric"),
        ),
        ("hello", WebPort("other")),
    ],
)
def test_ibpulse_is_known_by_its_answer(text: str, holder: WebPort) -> None:
    with answering(text) as port:
        assert find_web_holder("127.0.0.1", port) == find_web_holder("", port) == holder


def test_a_program_that_speaks_no_http_is_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            listener.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        assert find_web_holder("127.0.0.1", listener.getsockname()[1]) == WebPort("other")


@pytest.mark.real("network")  # to listen there is refused at once
def test_an_address_of_another_machine_is_refused() -> None:
    assert find_web_holder("203.0.113.9", 10055) == WebPort("refused", "Cannot assign requested address")


def test_the_room_of_the_ring_is_what_it_takes(tmp_path: Path) -> None:
    options = DoctorOptions(interval_ns=10_000_000, history_ns=10_000_000_000)
    ring = RingFile.create(tmp_path / "ring", options.interval_ns, 12 * 100, signal_capacity=120)
    try:
        for name in ("mlx5_0:1", "mlx5_1:1"):
            ring.assign(name, 4, 1)
        used = (tmp_path / "ring").stat().st_blocks * 512
    finally:
        ring.close()
    assert ring_bytes(options, 2) == pytest.approx(used, rel=0.05)


def test_room_is_looked_for_where_the_directory_would_be_made(tmp_path: Path) -> None:
    space = find_space(Path("/"), "ring.dir", tmp_path / "a" / "b", 1000)
    assert (space.setting, space.needed_bytes, space.writable) == ("ring.dir", 1000, True)
    assert space.free_bytes
    assert space.type


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    options = DoctorOptions(ring_dir=tmp_path, port=0, keep=(("capture.dir", tmp_path / "captures", 1000),))
    machine = read_machine(options, 8)
    assert machine.kernel
    assert machine.allowed_cpus
    assert [space.setting for space in machine.spaces] == ["ring.dir", "capture.dir"]
    assert machine.web == WebPort("free")


# what doctor says

RING = Space("ring.dir", "/run/ibpulse", 12_000_000, 10**9, True, "tmpfs")
CAPTURES = Space("capture.dir", "/captures", 5 * 10**8, 10**8, True, "ext4")
NOT_ASKED: dict[str, Any] = {"no_sampling": "sampling was not requested", "options": {"sample": False}}
FIXTURE = {"mount": Mount("/", "ext4", False)}
EFA = replace(
    make_port("rdmap0", identity={"driver": "efa"}),
    source=ByteSource("hw_bytes", ("/a",), ("/b",), 1, refresh_seconds=0.014),
)


@for_each([("6.8.0-45-generic", (6, 8)), ("4.18.0-553.el8", (4, 18)), ("7.3", (7, 3)), ("rolling", None)])
def test_a_release_has_a_version(release: str, version: tuple[int, int] | None) -> None:
    assert parse_version(release) == version


@for_each([("4.4.0", ["Before Linux 4.5"]), ("5.15.0", []), ("5.16.0", ["Since Linux 5.16,"]), ("strange", [])])
def test_known_problems_of_a_kernel_are_those_of_its_version(release: str, begins: list[str]) -> None:
    found = find_traps(make_facts(machine={"kernel": release}))
    assert [" ".join(trap.sentence.split()[:3]) for trap in found] == begins


@for_each([("6.14.9", True), ("6.15.0", False)])
def test_a_pods_view_on_an_old_kernel_can_crash_it(release: str, expected: bool) -> None:
    port = make_port("mlx5_0", source=None, problem="no file of this port counts bytes.")
    facts = make_facts(
        [port],
        tree={"folders": {port.id: Folders()}, "shared": ("mlx5_0",)},
        machine={"kernel": release},
        no_sampling="no port has byte counters",
    )
    assert any("crash the kernel" in finding.sentence for finding in troubles(facts)) is expected


@for_each([("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("a-b,2", {2}), ("1-x", set())])
def test_a_list_of_cpus_is_read(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus


def pinned(cpu: int, actual: str, **machine: object) -> Facts:
    health = SamplerHealth(cpu_requested=str(cpu), cpu_actual=actual)
    return make_facts(options={"cpu": cpu}, sampling={"health": health}, machine=machine)


def placed(space: Space, **changes: Any) -> Facts:
    return make_facts(machine={"spaces": (space,)}, **changes)


def served(holder: str, reason: str = "", **changes: Any) -> Facts:
    return make_facts(machine={"web": WebPort(holder, reason)}, **changes)


@for_each(
    {
        "WARN clock : The wall clock is not synchronised. ~ chrony": make_facts(
            machine={"clock": ClockState(False, 16)}
        ),
        "WARN clock : The wall clock was stepped 1 time while doctor was running.": make_facts(
            sampling={"clock_steps": 1}
        ),
        "WARN cpu : The sampler's cgroup has a quota of 0.2 CPUs and has been throttled in 7 periods.": make_facts(
            sampling={"quota_cpus": 0.2, "throttled_periods": 7}
        ),
        "WARN cpu : The sampler's cgroup has a quota of 0.2 CPUs.": make_facts(
            sampling={"quota_cpus": 0.2, "throttled_periods": None}
        ),
        "WARN cpu : The sampler's cgroup has a quota of 1.5 CPUs.": make_facts(
            machine={"quota_cpus": 1.5}, **NOT_ASKED
        ),
        "WARN scheduler : sampler.scheduler=fifo was refused; the sampler runs as other. ~ CAP_SYS_NICE": make_facts(
            sampling={"health": SamplerHealth(scheduler_requested="fifo", scheduler_actual="other")}
        ),
        "WARN scheduler : The sampler's timers may fire up to 50 µs late (timer slack).": make_facts(
            sampling={"timer_slack_ns": 50_000}
        ),
        "WARN affinity sampler.cpu: 9 is not a CPU that this process may use": pinned(9, "9"),
        "WARN affinity sampler.cpu: 2 is not a CPU that this process may use": pinned(2, ""),
        "WARN affinity sampler.cpu: 9 is not local to any rail. ~ Choose one of 0-3.": pinned(
            9, "9", allowed_cpus=frozenset(range(16))
        ),
        "WARN space ring.dir: /run/ibpulse is not writable for this user.": placed(replace(RING, writable=False)),
        "FAIL space ring.dir: needs 12 MB, but /run/ibpulse has only 5 MB free.": placed(
            replace(RING, free_bytes=5_000_000)
        ),
        "WARN space ring.dir: needs 1 TB of memory": placed(replace(RING, needed_bytes=10**12, free_bytes=None)),
        "WARN space ring.dir: /run/ibpulse is on ext4, not in memory.": placed(replace(RING, type="ext4")),
        (
            "WARN space capture.dir: /captures has 100 MB free, but capture.min-free reserves 500 MB. "
            "~ No capture is written. Sampling and metrics are not affected."
        ): placed(CAPTURES),
        "WARN space capture.dir: /captures is not writable for this user. ~ No capture is written.": placed(
            replace(CAPTURES, writable=False)
        ),
        "WARN web daemon: the daemon at :10055 has internal errors in plan": served("ibpulse", "plan and fabric"),
        "FAIL web web.listen-address: cannot listen on :10055: another program uses it.": served("other"),
        "FAIL web web.listen-address: cannot listen on :10055: Permission denied.": served(
            "refused", "Permission denied"
        ),
    }.items()
)
def test_a_fault_of_the_machine_is_the_only_finding(line: str, facts: Facts) -> None:
    assert_only(facts, line)


@for_each(
    [
        ("clock", ": The state of the kernel's clock is not accessible.", make_facts(machine={"clock": None})),
        ("scheduler", ": sampler.scheduler is other; not tested without sampling.", make_facts(**NOT_ASKED)),
        ("affinity", ": The sampler is not pinned to a CPU; the rails are on NUMA node 0.", make_facts()),
        ("affinity", "sampler.cpu: 2 is available to the sampler and local to a rail.", pinned(2, "2")),
        # a simulated fabric may have its ring on disk, and captures may lie there
        ("space", "ring.dir: needs 12 MB", placed(replace(RING, type="ext4"), tree=FIXTURE)),
        ("space", "capture.dir: has enough", placed(replace(RING, setting="capture.dir", type="ext4"))),
        # the running daemon may write where doctor may not
        ("space", "ring.dir: needs", placed(replace(RING, writable=False), sampling={"by_daemon": True})),
        ("web", "web.listen-address: :10055 is used by ibpulse.", served("ibpulse")),
        (
            "web",
            "web.listen-address: :10055 is in use, probably by the daemon that runs here.",
            served("other", sampling={"by_daemon": True}),
        ),
        ("web", "web.listen-address: :10055 could not be checked in time.", make_facts(machine={"web": None})),
    ]
)
def test_a_machine_without_a_fault_is_described(check: str, sentence: str, facts: Facts) -> None:
    (found,) = sentences(facts, check)
    assert found.startswith(sentence)
    assert troubles(facts) == []


def test_cached_counters_are_a_known_problem_that_is_handled() -> None:
    assert any("refreshes one clock tick after" in text for text in sentences(make_facts([EFA]), "kernel"))


def test_the_machine_is_not_judged_over_a_fixture() -> None:
    (quota,) = examine(make_facts(tree=FIXTURE, machine={"clock": None}, sampling={"quota_cpus": 0.2}), ["cpu"])
    assert (quota.level, quota.advice) == (Level.SKIP, "")
    assert quota.meaning.startswith("Not judged: ")
    assert "0.2 CPUs" in quota.sentence
