"""`ibpulse gateway` as a process: started, asked, measured, stopped."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson

from tests.running import HANG_SECONDS, eventually


@dataclass(frozen=True)
class Usage:
    """What a process uses: private and shared memory that is resident, and open files."""

    memory_bytes: int
    descriptors: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        status = Path(f"/proc/{pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return cls(1024 * int(found[1]), len(list(Path(f"/proc/{pid}/fd").iterdir())))


class GatewayProcess:
    """The gateway on a free loopback port; `auth` is a user of it, and `answers` all bodies that it sent.

    A `broken` one may log internal errors.
    """

    def __init__(self, directory: Path, *flags: str, auth: tuple[str, str] | None = None, broken: bool = False) -> None:
        self.log_path = directory / "gateway.log"
        self._command = [sys.executable, "-m", "ibpulse", "gateway", "--web.listen-address=127.0.0.1:0", *flags]
        self._auth = auth
        self._broken = broken
        self.url = ""
        self.answers: list[bytes] = []

    def __enter__(self) -> GatewayProcess:
        with self.log_path.open("wb") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)
        try:
            found = eventually(self._announced, 60)
        except BaseException:
            self._process.kill()
            raise
        self.url = found[1].replace("localhost", "127.0.0.1")
        self.client = httpx.Client(base_url=self.url, auth=self._auth, timeout=HANG_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.stop()

    def _announced(self) -> re.Match[str] | None:
        assert self._process.poll() is None, self.log()
        return re.search(r"serving (http://[^ ]+)/\n", self.log())

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def stop(self) -> float:
        """End it, once; the seconds that it took."""
        if self._process.returncode is not None:
            return 0.0
        begin = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(20) == 0, self.log()
        if not self._broken:
            assert "internal error" not in self.log(), self.log()
            assert "Traceback" not in self.log(), self.log()
        return time.monotonic() - begin

    def ask(self, path: str, status: int = 200, **params: Any) -> httpx.Response:
        """The answer at a path, which has this status."""
        answer = self.client.get(path, params=params)
        self.answers.append(answer.content)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:300])
        return answer

    def post(self, path: str, document: object) -> httpx.Response:
        answer = self.client.post(path, json=document)
        self.answers.append(answer.content)
        return answer

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The list of nodes by name."""
        return {node["node"]: node for node in self.ask("/api/v1/nodes").json()["nodes"]}

    def usage(self) -> Usage:
        return Usage.of(self.pid)


@dataclass
class StreamViewer:
    """Reads a stream in a thread, from an address of its own; the last event of each kind, and how many there were."""

    gateway: GatewayProcess
    path: str
    address: str = "127.0.0.1"
    last: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    problem: str = ""

    def __enter__(self) -> StreamViewer:
        self._ending = threading.Event()
        transport = httpx.HTTPTransport(local_address=self.address)
        self._client = httpx.Client(
            base_url=self.gateway.url, auth=self.gateway._auth, timeout=HANG_SECONDS, transport=transport
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(20)
        self._client.close()

    def _run(self) -> None:
        try:
            self._read()
        except httpx.HTTPError as error:
            self.problem = repr(error)

    def _read(self) -> None:
        with self._client.stream("GET", self.path) as answer:
            if answer.status_code != 200:
                self.problem = f"{answer.status_code} {answer.read()!r}"
                return
            kind = ""
            for line in answer.iter_lines():
                name, _, text = line.partition(": ")
                if name == "event":
                    kind = text
                elif name == "data":
                    self.gateway.answers.append(text.encode())
                    self.last[kind] = orjson.loads(text)
                    self.counts[kind] = self.counts.get(kind, 0) + 1
                if self._ending.is_set():
                    return
