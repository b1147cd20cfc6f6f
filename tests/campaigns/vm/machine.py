"""The running machine: QEMU without privileges, its console, and commands run in it. It knows nothing of ibpulse."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.campaigns.vm.build import Image
from tests.campaigns.vm.guest.agent import PORT as AGENT_PORT

# The unpacked image may fill half of it, and its archive lies beside it until then.
MEMORY_MEBIBYTES = 2048
# Boots take 6 s; a host whose cores are busy needs a multiple.
BOOT_SECONDS = 120
LIFETIME_SECONDS = 1200
CONSOLE_LINES = 200
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command in the machine left: exit status and output."""

    status: int
    stdout: str
    stderr: str


class Machine:
    """A context manager: the machine runs inside the `with` block. Names of TCP ports are those inside the machine."""

    def __init__(self, image: Image, ports: Sequence[int] = ()) -> None:
        """Prepare to boot `image` and to forward `ports` of the machine to loopback ports of the host."""
        self._image = image
        self._host_ports = dict(zip((AGENT_PORT, *ports), _find_free_ports(1 + len(ports)), strict=True))
        self._console: deque[str] = deque(maxlen=CONSOLE_LINES)

    def __enter__(self) -> Self:
        """Boot, and return as soon as commands can be run."""
        with tempfile.NamedTemporaryFile(prefix="ibpulse-vm-") as archive:
            _concatenate(self._image.archives, Path(archive.name))
            self._process = subprocess.Popen(
                self._command(archive.name),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            self._reader = threading.Thread(target=self._read_console, name="vm console", daemon=True)
            self._reader.start()
            try:
                self.wait_until(self._answers, "the machine has booted", BOOT_SECONDS)
            except BaseException:
                self._end()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def address(self, port: int) -> str:
        """HTTP address, on this host, of a forwarded port."""
        return f"http://127.0.0.1:{self._host_ports[port]}"

    def console(self) -> str:
        """The last lines of the machine's console."""
        return "".join(self._console)

    def run(self, command: str, *, timeout_seconds: float = 60, check: bool = True) -> Outcome:
        """Outcome of a shell command that was run to its end, as root. With `check`, a failure fails the test."""
        request = {"do": "run", "command": command, "timeout_seconds": timeout_seconds}
        outcome = Outcome(**self._ask(request, timeout_seconds + 30))
        assert outcome.status is not None, f"{command!r} did not end within {timeout_seconds} s: {outcome.stdout}"
        assert not check or outcome.status == 0, f"{command!r} failed with {outcome}"
        return outcome

    def start(self, arguments: Sequence[str], log_path: str) -> Program:
        """A program that was started as root and goes on running; its output goes to `log_path` in the machine."""
        answer = self._ask({"do": "start", "arguments": list(arguments), "log": log_path}, 30)
        return Program(self, answer["pid"], log_path)

    def poll(self, pid: int) -> int | None:
        """Exit status of a started program, negative for a signal; None while it runs."""
        status: int | None = self._ask({"do": "poll", "pid": pid}, 30)["status"]
        return status

    def wait_until(self, holds: Callable[[], object], what: str, timeout_seconds: float = 240) -> None:
        """Return once `holds` is true; the machine's end or the lapse of time fails the test with the console's end."""
        deadline = time.monotonic() + timeout_seconds
        while not holds():
            assert self._process.poll() is None, f"the machine ended before {what}:\n{self.console()}"
            assert time.monotonic() < deadline, f"not within {timeout_seconds} s: {what}\n{self.console()}"
            time.sleep(0.3)

    def _command(self, archive: str) -> list[str]:
        forwards = [f"hostfwd=tcp:127.0.0.1:{host}-10.0.2.15:{guest}" for guest, host in self._host_ports.items()]
        kernel_line = "console=ttyS0 quiet panic=-1 reboot=t mitigations=off tsc=reliable"
        return [
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            # One processor: with two, this QEMU's emulation sometimes lets one see the other's half-patched code.
            *("-machine", "pc", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", str(MEMORY_MEBIBYTES)),
            *("-kernel", str(self._image.kernel), "-initrd", archive, "-serial", "stdio"),
            *("-append", f"{kernel_line} machine_lifetime={LIFETIME_SECONDS}"),
            *("-netdev", ",".join(["user", "id=host", "restrict=on", *forwards])),
            *("-device", "virtio-net-pci,netdev=host,romfile="),
        ]

    def _read_console(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._console.append(line.decode(errors="replace").replace("\r", ""))
            log.debug("%s", self._console[-1].rstrip())

    def _answers(self) -> bool:
        try:
            # Before the machine listens, QEMU takes the connection and lets it hang.
            return bool(self._ask({"do": "run", "command": "true", "timeout_seconds": 10}, 2))
        except (OSError, ValueError):
            return False

    def _ask(self, request: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
        address = ("127.0.0.1", self._host_ports[AGENT_PORT])
        with socket.create_connection(address, timeout=timeout_seconds) as connection:
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                answer: dict[str, Any] = json.loads(answers.readline())
        assert "fault" not in answer, f"the machine could not {request}: {answer['fault']}"
        return answer

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was started in the machine."""

    machine: Machine
    pid: int
    log_path: str

    def output(self) -> str:
        """What it has written so far, to standard output and standard error."""
        return self.machine.run(f"cat {self.log_path}").stdout

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.machine.poll(self.pid) is None

    def wait(self, timeout_seconds: float = 240) -> int:
        """Its exit status, once it has ended."""
        self.machine.wait_until(lambda: not self.is_running(), f"program {self.pid} has ended", timeout_seconds)
        status = self.machine.poll(self.pid)
        assert status is not None
        return status

    def kill(self) -> None:
        """End it with SIGKILL, whatever its state."""
        self.machine.run(f"kill -KILL {self.pid} || true")
        self.wait()

    def stop(self, timeout_seconds: float = 30) -> int:
        """Its exit status, after SIGTERM."""
        self.machine.run(f"kill -TERM {self.pid} || true")
        return self.wait(timeout_seconds)


def _find_free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _concatenate(parts: Sequence[Path], target: Path) -> None:
    with target.open("wb") as whole:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, whole)
