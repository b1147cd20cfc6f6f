"""A real `ibpulse serve` for the tests: started, asked, stopped. It asserts that no part of it failed inside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
from prometheus_client.parser import text_string_to_metric_families

T = TypeVar("T")
# how long anything may take before it counts as hung; no test measures time by it
HANG_SECONDS = 120.0


def eventually(check: Callable[[], T | None], seconds: float = HANG_SECONDS, pause: float = 0.1) -> T:
    """What `check` returns once it is true; fails with its last answer when it never is."""
    deadline = time.monotonic() + seconds
    while not (answer := check()):
        assert time.monotonic() < deadline, f"still {answer!r} after {seconds} s"
        time.sleep(pause)
    return answer


def end(process: subprocess.Popen[bytes], *signals: int) -> int:
    """End a program by signals, and by force if it does not end; its exit status."""
    try:
        for number in signals:
            process.send_signal(number)
        return process.wait(HANG_SECONDS)
    finally:
        process.kill()


@dataclass
class Metrics:
    """Samples of one scrape by name and labels."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Metrics:
        found = cls()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.samples[sample.name, frozenset(sample.labels.items())] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float:
        """The one sample with this name and exactly these labels."""
        return self.samples[name, frozenset(labels.items())]

    def find(self, name: str, **labels: str) -> dict[frozenset[tuple[str, str]], float]:
        """All samples with this name whose labels include these."""
        wanted = set(labels.items())
        return {key: value for (have, key), value in self.samples.items() if have == name and wanted <= key}

    def owners(self) -> dict[str, set[str]]:
        """The devices of each job."""
        found: dict[str, set[str]] = {}
        for labels in self.find("ibpulse_port_job_info"):
            words = dict(labels)
            found.setdefault(words["job_id"], set()).add(words["device"])
        return found

    def port(self, name: str, device: str, port: str = "1", **labels: str) -> float:
        """A sample of a port."""
        return self.value(f"ibpulse_port_{name}", device=device, port=port, **labels)


class Running:
    """`ibpulse serve` over a tree, on a free loopback port."""

    def __init__(
        self,
        tree: Path,
        ring_dir: Path,
        *flags: str,
        interval: str = "10ms",
        needs_ports: bool = True,
        capture_rules: str = "none",
        under: Sequence[str] = (),
        python: str | Path = sys.executable,
    ) -> None:
        self.log_path = ring_dir.with_name(ring_dir.name + ".log")
        self._command = [
            *under,
            *(str(python), "-m", "ibpulse", "serve"),
            *(f"--path.sysfs={tree}", f"--ring.dir={ring_dir}", f"--sampler.interval={interval}"),
            "--web.listen-address=127.0.0.1:0",
            *(f"--capture.dir={ring_dir.with_name('captures')}", f"--capture.rules={capture_rules}"),
            *flags,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._needs_ports = needs_ports
        # whether the daemon may report internal errors in its log
        self.may_fail_inside = False
        self.url = ""
        # how to ask: verify and auth, where access control wants more than an address
        self.http: dict[str, Any] = {}

    def __enter__(self) -> Running:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the daemon and wait until it is ready and has counted its first second."""
        try:
            self.launch()
            eventually(lambda: self.ask("/-/ready").status_code == 200)
            if self._needs_ports:
                eventually(lambda: self.metrics().find("ibpulse_port_transmit_bytes_total"))
        except BaseException:
            self.stop(signal.SIGKILL)
            raise

    def launch(self) -> None:
        """Start the daemon and wait until it says where it listens."""
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        self.url = eventually(self._announced)

    def _announced(self) -> str:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        found = re.search(r"https?://127\.0\.0\.1:\d+", self.log())
        return found.group() if found else ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def sampler_pids(self) -> list[int]:
        """Processes whose parent is the daemon."""
        return [
            int(pid) for file in Path(f"/proc/{self.pid}/task").glob("*/children") for pid in file.read_text().split()
        ]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop the daemon; its exit status."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        status = end(process, number)
        assert self.may_fail_inside or "internal error" not in self.log(), self.log()
        return status

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def ask(self, path: str, **params: Any) -> httpx.Response:
        return httpx.get(self.url + path, params=params, timeout=HANG_SECONDS, **{"verify": False, **self.http})

    def metrics(self) -> Metrics:
        return Metrics.parse(self.ask("/metrics").text)

    def window(self, last: str, ports: Sequence[str] = (), **params: Any) -> dict[str, list[float | None]]:
        """Mean rates of each series, named `mlx5_0:1 transmit`; those of single samples in a short window."""
        asked = {"last": last, "port": list(ports), "format": "json", "statistic": "mean", **params}
        answer = self.ask("/api/v1/window", **asked)
        assert answer.status_code == 200, answer.text
        return {f"{series['port']} {series['direction']}": series["values"] for series in answer.json()["series"]}
