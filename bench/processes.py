"""Starts and stops processes, and reads their costs from the kernel."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process, including ended ones, in ns (clock_getcpuclockid(3))."""
    scheduled = 2
    return time.clock_gettime_ns((~pid << 3) | scheduled)


def pss_bytes(pid: int) -> int:
    """Proportional set size: memory of a process with shared pages divided by their users (proc(5), smaps_rollup)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{pid}/smaps_rollup has no line Pss")


def free_port() -> int:
    """A free TCP port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str, timeout: float = 30.0) -> bytes:
    """The body of a response of a server on the loopback interface, on a connection of its own.

    Raises:
        OSError: there is no answer, or its status is not 200.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    except http.client.HTTPException as error:
        raise OSError(f"GET {path}: {error!r}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise OSError(f"GET {path}: status {response.status}: {body[:200]!r}")
    return body


@contextmanager
def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, inherited: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs inside the block, in this environment or that of the caller; its output goes to `log`.

    It inherits these descriptors.
    """
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=environment, pass_fds=inherited) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Return once the condition holds.

    Raises:
        TimeoutError: it did not hold in time.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: still waiting after {seconds:.0f} s")
        time.sleep(0.02)


@contextmanager
def compete() -> Iterator[None]:
    """Two processes that compute without pause."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
