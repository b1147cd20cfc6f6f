"""What is found out of the machine: the real one, and trees that look like others."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ibpulse.agent.doctor import DoctorOptions
from ibpulse.agent.doctor.facts import WebPort
from ibpulse.agent.doctor.machine import find_space, find_web_holder, read_available, read_machine, ring_bytes
from ibpulse.core.ring.file import RingFile


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


def test_any_free_port_is_free() -> None:
    assert find_web_holder("203.0.113.9", 0) == WebPort("free")


@pytest.mark.parametrize("text", ["Healthy: the sampler", "Not healthy: the sampler"])
def test_ibpulse_is_known_by_its_answer(text: str) -> None:
    with answering(text) as port:
        assert find_web_holder("127.0.0.1", port) == WebPort("ibpulse")
        assert find_web_holder("", port) == WebPort("ibpulse")


def test_internal_errors_of_the_daemon_are_known_by_its_answer() -> None:
    # `/-/healthy` says how it begins, `/-/ready` which parts fail
    with answering("Healthy: sampling. Internal errors in plan and fabric; see the log.") as port:
        assert find_web_holder("127.0.0.1", port) == WebPort("ibpulse", "plan and fabric")


def test_another_program_is_another() -> None:
    with answering("hello") as port:
        assert find_web_holder("127.0.0.1", port) == WebPort("other")


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
    ring = RingFile.create(tmp_path / "ring", options.interval_ns, 12 * 100)
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


def test_a_ring_that_is_there_counts_as_room(tmp_path: Path) -> None:
    before = find_space(Path("/"), "ring.dir", tmp_path, 0).free_bytes
    (tmp_path / "ring").write_bytes(b"x" * 50_000_000)
    after = find_space(Path("/"), "ring.dir", tmp_path, 0).free_bytes
    assert before is not None
    assert after == pytest.approx(before, abs=40_000_000)


def test_available_memory_is_read(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   24106900 kB\n\n")
    assert read_available(tmp_path) == 24106900 * 1024
    (tmp_path / "proc/meminfo").write_text("MemTotal: 100 kB\n")
    assert read_available(tmp_path) is None
    assert read_available(tmp_path / "nowhere") is None


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    options = DoctorOptions(ring_dir=tmp_path, port=0, keep=(("capture.dir", tmp_path / "captures", 1000),))
    machine = read_machine(options, 8)
    assert machine.kernel
    assert machine.allowed_cpus
    assert [space.setting for space in machine.spaces] == ["ring.dir", "capture.dir"]
    assert machine.web == WebPort("free")
