"""A disk that hangs delays nothing else, and no thread that waits for it keeps the daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fabrics import simulated
from tests.running import Running, eventually

CAPTURES = "/api/v1/captures"
NAME = "20251121T000003.030Z-a-1f6c0a2e.parquet"
# what reads and writes the directory of captures never returns, as on a network file system without its server
HUNG = """
import os, sys
from ibpulse.cli import main
from ibpulse.agent.flightrecorder.store import CaptureStore

def hang(*_):
    os.read(os.pipe()[0], 1)

CaptureStore.prepare = CaptureStore.scan = CaptureStore.open = hang
sys.exit(main(sys.argv[1:]))
"""


class RunningOnHungDisk(Running):
    """A daemon whose directory of captures is on a disk that hangs."""

    def __init__(self, tree: Path, ring_dir: Path) -> None:
        super().__init__(tree, ring_dir)
        module = self._command.index("serve")
        self._command = [sys.executable, "-c", HUNG, *self._command[module:]]


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    with simulated(tmp_path / "sys", "constant", ports=2, rate="20GB/s") as made:
        yield made


def test_a_daemon_starts_serves_and_ends_while_the_disk_of_captures_hangs(tmp_path: Path, tree: Path) -> None:
    with RunningOnHungDisk(tree, tmp_path / "ring") as daemon:
        before = daemon.metrics().port("transmit_bytes_total", "mlx5_1")
        eventually(lambda: daemon.metrics().port("transmit_bytes_total", "mlx5_1") > before)
        assert daemon.ask("/api/v1/window", last="1s").status_code == 200
        assert daemon.stop() == 0
    assert " stopped\n" in daemon.log()


def test_a_thread_that_reads_the_web_configuration_does_not_keep_the_daemon(tmp_path: Path, tree: Path) -> None:
    """A pipe in place of the file that is read again hangs as a disk would."""
    web, pipe = tmp_path / "web.yml", tmp_path / "pipe"
    web.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    with Running(tree, tmp_path / "ring", f"--web.config.file={web}") as daemon:
        os.mkfifo(pipe)
        pipe.rename(web)

        def other_end() -> int | None:
            """The end of the pipe to write to, once the daemon has opened the other one; it then waits for a byte."""
            try:
                return os.open(web, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                return None

        descriptor = eventually(other_end)
        try:
            assert daemon.ask(CAPTURES).status_code == 200
            assert daemon.stop() == 0
        finally:
            os.close(descriptor)
    assert " stopped\n" in daemon.log()


LAST_RESORT = """
import os
from contextlib import closing
from ibpulse.agent import daemon

daemon.STOP_SECONDS = 0.5
with closing(daemon.LastResort()) as last_resort:
    last_resort.arm(7)
    {}
if last_resort._timer:
    last_resort._timer.join()
"""


@pytest.mark.parametrize(("then", "code"), [("os.read(os.pipe()[0], 1)", 7), ("pass", 0)])
def test_a_process_that_stops_too_slowly_is_ended_and_no_other(then: str, code: int) -> None:
    command = [sys.executable, "-c", LAST_RESORT.format(then)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == code, ended.stderr
    assert ("stopping takes longer than 0.5 s" in ended.stderr) == bool(code)
