"""The testbed of a campaign: an exact fabric, a daemon on it, its directories, and its wall clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.faults.liar import Liar
from bench.faults.service import Service
from bench.processes import free_port, pss_bytes
from ibpulse.base.errors import RingError
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from tests.fusefabric.client import FuseFabric, environment_without_coverage

PORTS = 4
# every sample of a port has this rate or less
HEIGHT = 20e9
WAVE: dict[str, Any] = {"rate_bytes_per_second": HEIGHT, "period_ns": 200_000_000, "duty": 0.4}
WINDOW_SECONDS = 10
HISTORY_SECONDS = 60
# 400 days
UPTIME_SECONDS = 34_560_000
FLAGS = (
    f"--sampler.history={HISTORY_SECONDS}s",
    "--analysis.traffic-window=10s",
    "--slow.interval=1s",
    "--capture.min-free=1MB",
    "--capture.max-bytes=2MB",
    "--capture.allow-unauthenticated=true",
)
# directories of files of jobs, and of cgroups
DOCUMENTS, MAPPING, CGROUP = JOB_DIRECTORIES = ("documents", "mapping", "cgroup")
# nanoseconds that the wall clock of the daemon is ahead
OFFSET = "wall-clock-offset"
SCOPE = "system.slice/slurmstepd.scope"
# one job of each source lasts throughout the campaign; in natural order the document comes before all others
LASTING_JOBS = frozenset({"0", "1", "2"})
# sizes of the file systems that can fill up
SIZES = {"ring": "48m", "captures": "24m"}


@dataclass
class Testbed:
    """A running daemon and everything that a fault can change."""

    place: Path
    fabric: FuseFabric
    service: Service
    # why the two directories are no file systems of their own; empty if they are
    no_mounts: str
    # why the wall clock of the daemon cannot step; empty if it can
    no_clock: str
    # what is cleaned up after the daemon has ended
    at_end: ExitStack
    # an idle daemon of another fabric, with which no fault meddles, and a gateway of both and of a node that can lie
    control: Service
    gateway: Service
    liar: Liar
    # how much later the monotonic clock of the daemon is, in seconds
    ahead_seconds: float = 0.0
    _rings: dict[int, RingReader] = field(default_factory=dict)

    @property
    def devices(self) -> list[str]:
        """The names of the devices."""
        return [device.name for device in self.fabric.devices]

    def true_bytes(self, begin: float, end: float) -> int:
        """Bytes that flowed through any one port in one direction between two monotonic times, in seconds."""
        flowed = self.fabric.schedule.port_bytes
        return flowed(round(end * 1e9), 0, 0) - flowed(round(begin * 1e9), 0, 0)

    def ring(self) -> RingReader:
        """The ring as it is now: a daemon may have put another one in its place.

        Raises:
            RingError: there is none.
        """
        return self._ring_of(self.service, self.place / "ring/ring")

    def control_ring(self) -> RingReader:
        """The ring of the control daemon.

        Raises:
            RingError: there is none.
        """
        return self._ring_of(self.control, self.place / "control/ring/ring")

    def _ring_of(self, service: Service, path: Path) -> RingReader:
        """The ring that a daemon has open, whose file may have been deleted, or that of its last life."""
        try:
            open_files = [*Path(f"/proc/{service.pid}/fd").iterdir()]
            mine = (file for file in open_files if _target(file).removesuffix(" (deleted)") == str(path))
            found = next(mine, path)
            inode = found.stat().st_ino
            if inode not in self._rings:
                descriptor = os.open(found, os.O_RDONLY)
                self._rings[inode] = RingReader(RingFile(path, writable=False, descriptor=descriptor))
        except OSError as error:
            raise RingError(f"ring {path}: {error.strerror}") from error
        return self._rings[inode]

    def sampler_pid(self) -> int:
        """The process that samples the healthy devices, 0 without one."""
        try:
            pid = self.ring().ring.words[at.lane_at(0) + at.L_PID]
        except RingError:
            return 0
        return pid if pid in self.service.child_pids() else 0

    def memory_bytes(self) -> int:
        """Proportional set size of the daemon's two permanent processes; 0 if it has ended."""
        try:
            return sum(map(pss_bytes, filter(None, (self.service.pid, self.sampler_pid()))))
        except (OSError, ValueError):
            return 0

    def job_files(self, name: str) -> Path:
        """The directory of documents, of mapping files or of cgroups."""
        return self.place / "jobs" / name

    def point_jobs(self, name: str, target: Path | None) -> None:
        """Let the daemon's path of one of these directories lead to another one, or nowhere."""
        link = self.place / name
        if target is None:
            link.unlink(missing_ok=True)
            return
        fresh = link.with_suffix(".new")
        fresh.symlink_to(target)
        fresh.replace(link)

    def step_clock(self, seconds: float) -> None:
        """Set the daemon's wall clock to the true time plus these seconds."""
        # in place, because its processes have mapped it
        with (self.place / OFFSET).open("r+b", buffering=0) as file:
            file.write(round(seconds * 1e9).to_bytes(8, sys.byteorder, signed=True))


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""  # closed since it was listed


@contextmanager
def prepared(place: Path, *, flags: Sequence[str] = ()) -> Iterator[Testbed]:
    """A testbed in a directory, with a daemon that listens; `flags` are further ones for it."""
    with ExitStack() as stack:
        no_mounts = mount_small(place, stack)
        # a killed process leaves an incomplete file of coverage behind
        environment, no_clock = with_wall_clock(environment_without_coverage(), place)
        make_job_files(place)
        fabric = stack.enter_context(FuseFabric(place / "sys", "square", WAVE, ports=PORTS, cgroup=place / CGROUP))
        jobs = (f"--jobs.owners-dir={place / DOCUMENTS}", f"--jobs.mapping-dir={place / MAPPING}")
        (under, ahead_seconds), port = another_uptime(), free_port()
        tested = [*flags_of(fabric, place, port), *jobs, *flags]
        service = Service(tested, place / "log", environment, under=under)
        calm = stack.enter_context(FuseFabric(place / "control/sys", "square", WAVE, ports=PORTS))
        usual, nodes = environment_without_coverage(), place / "nodes.json"
        control = Service(flags_of(calm, place / "control", 0), place / "control/log", usual)
        liar = stack.enter_context(Liar(control))
        listed = (f"--nodes.sources={nodes}", "--web.listen-address=127.0.0.1:0")
        gateway = Service(listed, place / "gateway.log", usual, "gateway")
        testbed = Testbed(place, fabric, service, no_mounts, no_clock, stack, control, gateway, liar, ahead_seconds)
        try:
            service.start()
            control.start()
            addresses = {"tested": f"127.0.0.1:{port}", "control": control.url[7:], "liar": f"127.0.0.1:{liar.port}"}
            groups = [{"targets": [each], "labels": {"node": name}} for name, each in addresses.items()]
            nodes.write_text(json.dumps(groups))
            gateway.start()
            yield testbed
        finally:
            # a process with a hung read only ends when the read does
            fabric.clear()
            for one in (service, control, gateway):
                one.stop(patience=10.0)


def flags_of(fabric: FuseFabric, place: Path, port: int) -> list[str]:
    """The flags of a daemon of a fabric with its directories in a place."""
    where = (f"--path.sysfs={fabric.root}", f"--ring.dir={place / 'ring'}", f"--capture.dir={place / 'captures'}")
    return [*FLAGS, *where, f"--web.listen-address=127.0.0.1:{port}"]


def with_wall_clock(environment: dict[str, str], place: Path) -> tuple[dict[str, str], str]:
    """The environment of a daemon whose wall clock is off by what a file says, and why it never is."""
    source, library = Path(__file__).with_name("wall_clock.c"), place / "wall_clock.so"
    try:
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", library, source], check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        return environment, f"the library that sets the clock cannot be built: {error}"
    offset = place / OFFSET
    offset.write_bytes(bytes(8))
    return {**environment, "LD_PRELOAD": str(library), "WALL_CLOCK_OFFSET": str(offset)}, ""


def another_uptime() -> tuple[list[str], float]:
    """A command below which the kernel's monotonic clocks are later, and by how much; none without root."""
    under = ["unshare", "-T", f"--monotonic={UPTIME_SECONDS}", f"--boottime={UPTIME_SECONDS}"]
    try:
        possible = subprocess.run([*under, "true"], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        possible = False
    return (under, float(UPTIME_SECONDS)) if possible else ([], 0.0)


def make_job_files(place: Path) -> None:
    """Make the directories of jobs, links that lead to them, and the jobs that last throughout."""
    for name in JOB_DIRECTORIES:
        (place / "jobs" / name).mkdir(parents=True)
        (place / name).symlink_to(place / "jobs" / name)
    (place / DOCUMENTS / "0.json").write_text('{"id": "0", "scheduler": "campaign", "devices": ["mlx5_0"]}')
    (place / CGROUP / SCOPE / "job_1/step_0").mkdir(parents=True)
    (place / MAPPING / "0").write_text("2")


def mount_small(place: Path, stack: ExitStack) -> str:
    """Make the two directories small file systems in memory until the stack ends; returns why that is not possible."""
    for name, size in SIZES.items():
        folder = place / name
        folder.mkdir(mode=0o700)
        options = f"size={size},mode=0700"
        try:
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "ibpulse-faults", str(folder)],
                check=False,
                capture_output=True,
                text=True,
            )
        except FileNotFoundError:
            return "there is no program called mount"
        if done.returncode:
            return f"small file systems cannot be mounted, which takes root: {done.stderr.strip()}"
        stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False, capture_output=True)
    return ""
