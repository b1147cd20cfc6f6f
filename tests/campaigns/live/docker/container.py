"""What a container engine, a kubelet or systemd does, done with util-linux, for the tests. It has no tests itself.

The root is a tmpfs, read-only once it is laid out, that holds an interpreter, its libraries and ibpulse: no shell, and
no package but those that it is given. The daemon is process 1 of its own process, network, mount and IPC namespaces,
runs as 65532 without any capability, cannot gain one, and may use so much memory. Of the host it sees the directories
that it is given.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.running import Metrics, eventually

USER = 65532
MIB = 2**20
MEMORY_BYTES = 128 * MIB
PORT = 10055
# where the interpreter of the tests has packages beside its standard library; that of the image has none
HOME = sysconfig.get_config_var("installed_base")
OWN_PACKAGES = (
    Path(sysconfig.get_path("purelib", "posix_prefix", {"base": HOME})),
    Path("/usr/lib/python3/dist-packages"),
)
ASK = """
import sys, urllib.error, urllib.request
method, url, body = sys.argv[1:]
asked = urllib.request.Request(url, method=method, data=body.encode() or None)
asked.add_header("Content-Type", "application/json")
try:
    answer = urllib.request.urlopen(asked, timeout=20)
except urllib.error.HTTPError as error:
    answer = error
sys.stdout.buffer.write(b"%d\\n%b" % (answer.status, answer.read()))
"""


class MemoryLimit:
    """A memory control group, of version 2 where the memory controller is there, else of version 1."""

    def __init__(self, size_bytes: int = MEMORY_BYTES) -> None:
        self._size_bytes = size_bytes
        unified = Path("/sys/fs/cgroup")
        self.version = 2 if "memory" in _words(unified / "cgroup.subtree_control") else 1
        parent = unified if self.version == 2 else unified / "memory"
        self.path = parent / f"ibpulse-test-{uuid.uuid4().hex[:8]}"

    def __enter__(self) -> MemoryLimit:
        self.path.mkdir()
        limit = self.path / ("memory.max" if self.version == 2 else "memory.limit_in_bytes")
        limit.write_text(str(self._size_bytes))
        return self

    def __exit__(self, *_: object) -> None:
        eventually(lambda: not _words(self.path / "cgroup.procs"))
        self.path.rmdir()

    def limit_bytes(self) -> int:
        return int(_words(self.path / ("memory.max" if self.version == 2 else "memory.limit_in_bytes"))[0])

    def peak_bytes(self) -> int:
        return int(_words(self.path / ("memory.peak" if self.version == 2 else "memory.max_usage_in_bytes"))[0])

    def shared_bytes(self) -> int:
        """What files in memory take of it, the ring above all."""
        words = _words(self.path / "memory.stat")
        return int(words[words.index("shmem" if self.version == 2 else "total_shmem") + 1])

    def kills(self) -> int:
        """Processes that the kernel ended for want of memory."""
        words = _words(self.path / ("memory.events" if self.version == 2 else "memory.oom_control"))
        return int(words[words.index("oom_kill") + 1])


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def can_contain() -> bool:
    """Whether namespaces and a memory control group can be made here."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-mnpi", "--fork", "true"], check=False).returncode != 0:
        return False
    try:
        with MemoryLimit():
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Run:
    """What is to run: the words after `ibpulse`, and what they are given.

    `shown` are directories that the daemon can only read, `volumes` those that it can write, both by the place where it
    sees them. `links` are symbolic links of root.
    """

    words: tuple[str, ...]
    shown: Mapping[str, Path]
    volumes: Mapping[str, Path]
    environment: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    group: int | None = None
    umask: str = "0022"


def docker_run(scratch: Path, tree: Path, *flags: str) -> Run:
    """`docker run` with a volume for the ring and one for the state, and the tree at /host/sys."""
    volumes = {"/run/ibpulse": scratch / "ring", "/var/lib/ibpulse": scratch / "state"}
    for path in volumes.values():
        path.mkdir(parents=True)
        os.chown(path, USER, USER)
    places = ("--path.sysfs=/host/sys", "--ring.dir=/run/ibpulse", f"--web.listen-address=:{PORT}")
    return Run(("serve", *places, *flags), {"/host/sys": tree}, volumes)


class Container:
    """A run as a container, whose volumes outlive it."""

    def __init__(self, scratch: Path, packages: Sequence[Path], limit: MemoryLimit, run: Run) -> None:
        self.limit = limit
        self.run = run
        self._scratch = scratch
        self._packages = packages
        self._process: subprocess.Popen[bytes] | None = None
        (scratch / "root").mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Container:
        try:
            self.start()
        except BaseException:
            if self._process is not None and self._process.poll() is None:
                self.stop(signal.SIGKILL)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    def start(self) -> None:
        """Start it and wait until it has counted its first second."""
        enter = f"echo $$ > {self.limit.path}/cgroup.procs; exec unshare -mnpi --fork --kill-child sh -ec {{}}"
        script = enter.format(shlex.quote(self._script()))
        with (self._scratch / "log").open("ab") as log:
            self._process = subprocess.Popen(["sh", "-c", script], stdout=log, stderr=subprocess.STDOUT)
        eventually(self._has_counted, seconds=60, pause=0.3)

    def _has_counted(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            return bool(self.metrics().find("ibpulse_port_transmit_bytes_total"))
        except (OSError, ValueError, subprocess.CalledProcessError):
            return False

    def _script(self) -> str:
        """Lays out the root and becomes the daemon. It runs as process 1 of the new namespaces."""
        root = self._scratch / "root"
        lines = ["mount --make-rprivate /", "ip link set lo up", f"mount -t tmpfs -o mode=755 tmpfs {root}"]
        for source, target in self._read_only():
            lines += self._bind(source, root / target.lstrip("/"), "ro")
        lines += [f"mount -t tmpfs -o ro tmpfs {root}{path}" for path in OWN_PACKAGES if path.is_dir()]
        for target, source in self.run.volumes.items():
            lines += self._bind(source, root / target.lstrip("/"), "rw")
        lines += [f"ln -s {target} {root}{link}" for link, target in self.run.links.items()]
        lines += [f"ln -s usr/lib {root}/lib", f"ln -s usr/lib64 {root}/lib64", f"mkdir {root}/proc {root}/tmp"]
        lines += [f"mount -t proc proc {root}/proc", f"mount -o remount,ro {root}", f"cd {root}"]
        return "\n".join([*lines, f"umask {self.run.umask}", f"exec env -i {shlex.join(self._daemon())}"])

    def _read_only(self) -> Iterator[tuple[Path, str]]:
        yield from ((source, target) for target, source in self.run.shown.items())
        for number, package in enumerate(self._packages):
            yield package, f"/opt/{number}"
        interpreter = Path(sys.executable).resolve()
        whole = [] if HOME == "/usr" else [Path(HOME)]
        files = ["/usr/bin/setpriv", "/etc/ld.so.cache", "/etc/hosts", "/dev/null", "/dev/urandom"]
        for path in (*whole, *map(Path, files), Path("/usr/lib"), Path("/usr/lib64"), interpreter):
            if path.exists() and not any(path.is_relative_to(other) for other in whole if other != path):
                yield path, str(path)

    def _bind(self, source: Path, target: Path, mode: str) -> list[str]:
        make = f"mkdir -p {target}" if source.is_dir() else f"mkdir -p {target.parent}; touch {target}"
        return [make, f"mount --bind {source} {target}", f"mount -o remount,bind,{mode},nosuid {target}"]

    def _daemon(self) -> list[str]:
        groups = "--clear-groups" if self.run.group is None else f"--groups={self.run.group}"
        who = [f"--reuid={USER}", f"--regid={USER}", groups, "--no-new-privs", "--bounding-set=-all"]
        return [
            *(f"{name}={value}" for name, value in self.run.environment.items()),
            *self._environment(),
            *("/usr/sbin/chroot", ".", "/usr/bin/setpriv", *who, "--inh-caps=-all", "--ambient-caps=-all"),
            *self._program(),
            *self.run.words,
        ]

    def _environment(self) -> list[str]:
        paths = ":".join(f"/opt/{number}" for number in range(len(self._packages)))
        return ["PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1", "OPENBLAS_NUM_THREADS=1", f"PYTHONPATH={paths}"]

    @staticmethod
    def _program() -> list[str]:
        return [str(Path(sys.executable).resolve()), "-m", "ibpulse"]

    def beside(self, *words: str, user: int = 0) -> list[str]:
        """A command that a user starts next to the daemon, where it sees what the daemon sees: `ibpulse WORD ...`."""
        enter = [
            shutil.which("nsenter") or "nsenter",
            f"--target={self.pid}",
            "--mount",
            "--net",
            "--pid",
            "--root",
            "--wd=/",
            f"--setuid={user}",
            f"--setgid={user}",
        ]
        return ["env", "-i", "TERM=xterm", *self._environment(), *enter, *self._program(), *words]

    @property
    def pid(self) -> int:
        """The daemon, as the host numbers it."""
        assert self._process is not None
        (child,) = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return int(child)

    def status(self) -> dict[str, str]:
        """What the kernel says of the daemon."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def mounts(self) -> dict[str, str]:
        """Options of each mount that the daemon sees, by its place."""
        lines = Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()
        return {line.split()[4]: line.split()[5] for line in lines}

    def ask(self, path: str, method: str = "GET", body: str = "", port: int = PORT) -> tuple[int, str]:
        """Status and text of an answer, asked for from within the container's network."""
        status, content = self.fetch(path, method, body, port)
        return status, content.decode()

    def fetch(self, path: str, method: str = "GET", body: str = "", port: int = PORT) -> tuple[int, bytes]:
        """Status and bytes of an answer."""
        inside = ["nsenter", f"--net=/proc/{self.pid}/ns/net", sys.executable, "-I", "-c", ASK]
        command = [*inside, method, f"http://127.0.0.1:{port}{path}", body]
        status, _, content = subprocess.run(command, capture_output=True, check=True).stdout.partition(b"\n")
        return int(status), content

    def json(self, path: str) -> Any:
        status, text = self.ask(path)
        assert status == 200, text
        return json.loads(text)

    def metrics(self) -> Metrics:
        return Metrics.parse(self.ask("/metrics")[1])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal to the daemon; the exit status as the engine would see it."""
        assert self._process is not None
        process, pid = self._process, self.pid
        self._process = None
        os.kill(pid, number)
        return process.wait(20)

    def log(self) -> str:
        return (self._scratch / "log").read_text(errors="replace")


@contextmanager
def simulated_tree(directory: Path, *flags: str) -> Iterator[Path]:
    """A live simulated tree for as long as the block runs."""
    command = [sys.executable, "-m", "ibpulse", "simulate", str(directory), *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        eventually((directory / "class/infiniband/mlx5_7").exists)
        yield directory
    finally:
        process.terminate()
        process.wait()
