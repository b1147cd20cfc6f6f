"""The client side: mounts the fabric in a process of its own, switches faults, knows the truth, unmounts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.tree import Device, make_devices
from ibpulse.workbench.simulate.workloads import make_workload
from tests import ROOT
from tests.fusefabric.rule import Rule
from tests.truth import Truth, truth_of


def why_not() -> str:
    """Why no FUSE tree can be mounted here; empty when one can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is missing or closed to this user"
    if shutil.which("fusermount") is None:
        return "fusermount is missing (Debian package fuse3 or fuse)"
    try:
        # it loads libfuse, which may be missing
        import mfusepy  # noqa: F401
    except (ImportError, OSError) as error:
        return f"mfusepy does not load: {error}"
    return ""


def environment_without_coverage() -> dict[str, str]:
    """Without the variables that start coverage in a child: it would slow each read, and a killed child leaves junk."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")}
    return {**kept, "PYTHONPATH": f"{ROOT / 'exporter'}{os.pathsep}{ROOT}"}


class FuseFabric:
    """A mounted fabric: `root` stands for /sys. The schedule's clock is the monotonic clock, in ns."""

    def __init__(
        self,
        mountpoint: Path,
        workload: str = "constant",
        options: Mapping[str, Any] | None = None,
        *,
        ports: int = 8,
        seed: int = 0,
        management: bool = False,
        cgroup: Path | None = None,
    ) -> None:
        self.root = mountpoint
        self.start_ns = time.monotonic_ns()
        self.schedule = Schedule(make_workload(workload, **(options or {})), seed, ports, self.start_ns)
        self.devices: tuple[Device, ...] = make_devices(ports, management)
        arguments = [str(mountpoint), "--workload", workload, "--options", json.dumps(dict(options or {}))]
        arguments += ["--ports", str(ports), "--seed", str(seed), "--start-ns", str(self.start_ns)]
        arguments += ["--management"] if management else []
        self._arguments = [*arguments, "--cgroup", str(cgroup)] if cgroup else arguments
        self._server: subprocess.Popen[str] | None = None

    @property
    def wall_offset_ns(self) -> int:
        """Wall clock minus monotonic clock, now."""
        return time.time_ns() - time.monotonic_ns()

    def __enter__(self) -> FuseFabric:
        self.root.mkdir(parents=True, exist_ok=True)
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.fusefabric", *self._arguments],
            cwd=ROOT,
            env=environment_without_coverage(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server = self._running()
        self.thaw()
        try:
            server.stdin.close()
            server.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            server.kill()
            server.wait()
        finally:
            server.stdout.close()
            subprocess.run(["fusermount", "-u", "-z", str(self.root)], check=False, capture_output=True)

    def set(self, device: str, **rule: Any) -> int:
        """Gives the device this rule (see `Rule`) in place of the one it had; the monotonic ns from which it holds."""
        return self._ask({"device": device, "rule": Rule(**rule).to_json()})

    def clear(self) -> int:
        """Makes every device healthy and lets hung reads go; the monotonic ns from which that holds."""
        return self._ask({})

    def hung_reads(self, device: str) -> int:
        """How many reads of the device's files hang now."""
        return int(self._exchange({"hung_reads_of": device})["hung_reads"])

    def freeze(self) -> None:
        """Every access hangs from now on, as on a network file system whose server is gone."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Whatever hangs goes on."""
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Every access fails from now on."""
        server = self._running()
        server.kill()
        server.wait()

    def counter_path(self, device: str, name: str = "port_xmit_data") -> Path:
        """The path of a counter of port 1."""
        return self.root / "class/infiniband" / device / "ports/1/counters" / name

    def truth(self, begin_ns: int, end_ns: int, bin_ns: int = 10_000_000, **chosen: Any) -> Truth:
        """The truth of a healthy fabric between two monotonic instants; see `truth_of`."""
        return truth_of(self.schedule, begin_ns, end_ns, bin_ns, **chosen)

    def _ask(self, document: dict[str, Any]) -> int:
        return int(self._exchange(document)["at_ns"])

    def _exchange(self, document: dict[str, Any]) -> dict[str, Any]:
        server = self._running()
        server.stdin.write(json.dumps(document) + "\n")
        server.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._running().stdout.readline()
        answer = json.loads(line or '{"error": "the process of the FUSE fabric has ended"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _running(self) -> subprocess.Popen[str]:
        if self._server is None:
            raise RuntimeError("the FUSE fabric is not mounted: use it as a context manager")
        return self._server
