"""Installs and runs a version of ibpulse as a user does: this one, or the released one from the repository's history.

The released one is unpacked into a folder of its own and gets its own environment with its own requirements, which
needs Git, that commit in the history, and access to a package index, once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import processes
from bench.bench import MILLISECOND_NS, Bench
from bench.trees import write_tree

ROOT = Path(__file__).resolve().parent.parent
RELEASED_COMMIT = "dd895087de5a851c38ca1b124300a08af6cedb1b"
RELEASED_NAME = "0.1"
INSTALLED = ROOT / "build/ibpulse-0.1"
FILL = """
import sys
from pathlib import Path
from bench.history import filled_ring
filled_ring(Path(sys.argv[1]), *map(int, sys.argv[2:]))
"""
# of a daemon without settings; its ring is a little longer
DEFAULT_SECONDS, SPARE_SECONDS = 300, 2
SAMPLER_MODULE = b"ibpulse.sampler.process"


class NotInstalledError(Exception):
    """The released version could not be unpacked or installed; the text says why."""


@dataclass(frozen=True, slots=True)
class Version:
    """An installed version: its name, its source tree, and the Python of its environment."""

    name: str
    source: Path
    python: Path

    def environment(self) -> dict[str, str]:
        """The environment in which its programs find its own packages, and keep their bytecode as installed ones do."""
        own = {**os.environ, "PYTHONPATH": f"{self.source / 'exporter'}:{self.source}"}
        own.pop("PYTHONDONTWRITEBYTECODE", None)
        return own


@dataclass(frozen=True, slots=True)
class Served:
    """A running daemon of a version: its TCP port, its two processes, and the wall time at which it was started."""

    port: int
    main_pid: int
    sampler_pid: int
    started: float


def this_version() -> Version:
    """The version of this source tree, in the environment that runs the benchmarks."""
    return Version("this version", ROOT, Path(sys.executable))


def released_version() -> Version:
    """Version 0.1, unpacked and installed on first use.

    Raises:
        NotInstalledError: its commit is not in the history, or its requirements cannot be installed.
    """
    version = Version(RELEASED_NAME, INSTALLED, INSTALLED / ".venv/bin/python")
    if not (INSTALLED / "installed").exists():
        INSTALLED.mkdir(parents=True, exist_ok=True)
        archive = _succeed(["git", "-C", str(ROOT), "archive", RELEASED_COMMIT, "exporter", "bench", "requirements"])
        _succeed(["tar", "-x", "-C", str(INSTALLED)], archive)
        _succeed([sys.executable, "-m", "venv", str(INSTALLED / ".venv")])
        locked = str(INSTALLED / "requirements/run.txt")
        _succeed(
            [str(version.python), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", locked]
        )
        (INSTALLED / "installed").touch()
    return version


def _succeed(command: list[str], standard_input: bytes | None = None) -> bytes:
    """The standard output of a command that must succeed."""
    try:
        return subprocess.run(command, input=standard_input, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stderr", None) or str(error).encode()
        raise NotInstalledError(f"{command[0]} failed: {told.decode(errors='replace').strip()[-300:]}") from error


@contextmanager
def running_version(
    bench: Bench, version: Version, *, ports: int, history_seconds: int, interval_ms: int = 10
) -> Iterator[Served]:
    """`ibpulse serve` of a version with `ports` ports, whose ring begins with `history_seconds` of history.

    The ring keeps five minutes, or that many seconds if they are more.
    """
    folder, port = bench.new_folder("version"), processes.free_port()
    tree, ring = write_tree(folder / "sys", ports), folder / "ring"
    ring.mkdir()
    numbers, options = [interval_ms * MILLISECOND_NS, ports, history_seconds], [f"--sampler.interval={interval_ms}ms"]
    if history_seconds > DEFAULT_SECONDS:
        numbers.append(history_seconds + SPARE_SECONDS)
        options.append(f"--sampler.history={history_seconds}s")
    filled = [str(version.python), "-c", FILL, str(ring / "ring"), *map(str, numbers)]
    subprocess.run(filled, env=version.environment(), cwd=version.source, check=True)
    command = [
        *(str(version.python), "-m", "ibpulse", "serve", f"--path.sysfs={tree}", f"--ring.dir={ring}", *options),
        *(f"--web.listen-address=127.0.0.1:{port}", f"--capture.dir={folder / 'captures'}"),
    ]
    started = time.time()
    with processes.running(command, folder / "log", version.environment()) as process:
        processes.wait_for(lambda: process.poll() is not None or _is_ready(port), f"ibpulse serve of {version.name}")
        if process.poll() is not None:
            raise ChildProcessError(f"ibpulse serve of {version.name}: {(folder / 'log').read_text()[-2000:]}")
        yield Served(port, process.pid, _sampler_of(process.pid), started)


def _is_ready(port: int) -> bool:
    try:
        return bool(processes.get(port, "/-/ready"))
    except OSError:
        return False


def _sampler_of(main_pid: int) -> int:
    """The process that samples, a child of the main process.

    Raises:
        ChildProcessError: there is none.
    """
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == main_pid and SAMPLER_MODULE in (stat.parent / "cmdline").read_bytes():
                return int(stat.parent.name)
        except OSError:
            continue  # a process that just ended
    raise ChildProcessError(f"process {main_pid} has no sampler")
