"""`python -m tests.campaigns.packages.on_a_clean_root`: install, upgrade, roll back and uninstall under a real systemd.

A Debian 12 boots in systemd-nspawn over a simulated fabric, with Debian's dnf and rpm, so that only its archive is
needed. Needs root, systemd-container, debootstrap and packages from an index. Prints what was done, and ends with an
exception at the first thing that is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.vm.packages import KEYRING, read_mirror
from tests.grafana.servers import free_address
from tests.running import eventually
from tools.packages import program
from tools.release import ROOT

DEBIAN = "bookworm"
PYTHON = "3.11"
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,procps,rpm,dnf"
INTERVAL_MS = 50
"""Longer than the default, because other work on the machine must not look like a fault of an upgrade."""
KEPT = {"/etc/default/ibpulse", "/var/lib/ibpulse", "/var/lib/private/ibpulse"}
"""What a removal leaves."""
SCRIPT = "sh /release/0.2.0/install.sh"
BASE = {
    "name": "base",
    "version": "1",
    "arch": "all",
    "description": "What Debian has, which the database of rpm does not know",
    "provides": [f"/usr/bin/python{PYTHON}"],
}
TO_NEW = f"{SCRIPT} /release/ibpulse-0.2.0-py3-none-any.whl /release/0.2.0/requirements/run.txt"


def main() -> int:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "ibpulse-root")
    parser.add_argument("--release", type=Path, help="wheels and packages of an earlier run, or where to keep them")
    given = parser.parse_args()
    cache = given.cache
    if not (cache / DEBIAN).exists():
        cache.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(cache / "new", ignore_errors=True)
        options = ("--variant=minbase", f"--keyring={KEYRING}", f"--include={PACKAGES}")
        run("debootstrap", *options, DEBIAN, str(cache / "new"), read_mirror())
        (cache / "new").rename(cache / DEBIAN)
    with tempfile.TemporaryDirectory(prefix="ibpulse-clean-") as name:
        folder = Path(name)
        release = (given.release or folder / "release").resolve()
        if not release.exists():
            make_release(release)
        for check in (install_with_script, install_packages):
            root = folder / check.__name__
            run("cp", "--archive", str(cache / DEBIAN), str(root))
            with running_root(root, release) as node:
                check(node)
    return 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run(*command: str, **more: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def make_release(folder: Path) -> None:
    """Wheels of this checkout as 0.2.0 and as 0.2.1, with their packages and all that they need."""
    for version in ("0.2.0", "0.2.1"):
        source = folder / version
        source.mkdir(parents=True)
        packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "--extract", "--no-same-permissions", f"--directory={source}"], input=packed, check=True)
        package = source / "exporter" / "ibpulse" / "__init__.py"
        package.write_text(re.sub('__version__ = ".*"', f'__version__ = "{version}"', package.read_text()))
        build = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}")
        run(sys.executable, *build, str(source))
        wheels = ("-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:")
        given = (f"--python-version={PYTHON}", "--platform=manylinux_2_28_x86_64", "--platform=manylinux2014_x86_64")
        run(sys.executable, *wheels, *given, f"--dest={folder / 'wheels'}", "-r", str(source / "requirements/run.txt"))
        wheel = folder / f"ibpulse-{version}-py3-none-any.whl"
        run(sys.executable, "-m", "tools.packages", str(wheel), str(folder), f"--python={PYTHON}", cwd=ROOT)
        for pattern in ("docker/systemd/*.service", "docker/systemd/*.sh", "slurm/*.sh"):
            for path in source.glob(pattern):
                shutil.copy(path, source)
    (folder / "base.yaml").write_text(json.dumps(BASE))
    run(program("nfpm"), "package", f"--config={folder / 'base.yaml'}", f"--target={folder / 'base.rpm'}")
    say("wheels and packages are built")


@dataclass
class Node:
    """A booted root; `leader` is its first process, `address` that of its daemon."""

    leader: int
    address: str

    def run(self, command: str) -> str:
        """Run a line of shell in it."""
        enter = ("nsenter", f"--target={self.leader}", "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--")
        clean = ("env", "--ignore-environment", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")
        offline = ("PIP_NO_INDEX=1", "PIP_FIND_LINKS=/release/wheels", "PIP_DISABLE_PIP_VERSION_CHECK=1")
        return run(*enter, *clean, *offline, "sh", "-euc", command)

    def fetch(self, path: str, body: bytes | None = None) -> bytes:
        with urllib.request.urlopen(f"http://{self.address}{path}", data=body, timeout=5) as answer:
            return bytes(answer.read())

    def get(self, path: str) -> Any:
        return json.loads(self.fetch(path))

    def answers(self) -> bool:
        try:
            self.fetch("/-/ready")
        except OSError:
            return False
        return True

    def wait(self) -> None:
        eventually(self.answers, 60)

    def take_capture(self) -> None:
        before = len(self.captures())
        self.fetch("/api/v1/captures", json.dumps({"reason": "test", "before": "2s", "after": "1s"}).encode())
        eventually(lambda: len(self.captures()) == before + 1)

    def captures(self) -> list[str]:
        return [each["name"] for each in self.get("/api/v1/captures")["captures"]]

    def sent(self, begin: int, end: int) -> list[float | None]:
        """The rate of one port in a span, by interval."""
        window = self.get(f"/api/v1/window?from={begin}&to={end}&port=mlx5_0:1&direction=transmit&statistic=mean")
        return list(window["series"][0]["values"])

    def change(self, command: str, version: str) -> None:
        """Run a command that puts a version into use, and check that it has the samples and captures of the one before.

        Two versions may differ in how they divide the bytes of neighbouring samples, not in their sum.
        """
        # the samples that are compared begin after the step before
        time.sleep(6)
        end = time.time_ns() // 1_000_000 - 2000
        before, captures = self.sent(end - 4000, end), self.captures()
        self.run(command)
        self.wait()
        assert version in self.run("/opt/ibpulse/bin/ibpulse --version")
        assert f'version="{version}"' in self.fetch("/metrics").decode()
        time.sleep(2)
        after = self.sent(end - 4000, end)
        assert sum(map(known, after)) == pytest.approx(sum(map(known, before)), rel=0.001)
        lost = after.count(None) - before.count(None)
        assert before.count(None) < len(before) // 2, "the machine is too busy to show anything"
        assert lost <= 2, (before, after)
        assert self.captures() == captures
        since = self.sent(end, time.time_ns() // 1_000_000 - 500)
        missing = "".join(" " if each is None else "x" for each in since).split("x")
        seconds = max(map(len, missing)) * INTERVAL_MS / 1000
        say(f"{command}: {version} has the history and {len(captures)} captures; {seconds:.1f} s missing")
        self.take_capture()

    def refuse(self, command: str, reason: str) -> None:
        """Run a command that must fail with this reason and change nothing."""
        version = self.run("/opt/ibpulse/bin/ibpulse --version")
        with pytest.raises(RuntimeError, match=reason):
            self.run(command)
        assert self.run("/opt/ibpulse/bin/ibpulse --version") == version
        assert self.answers()
        say(f"{command}: refused")

    def remove(self, command: str) -> None:
        """Run a command that removes ibpulse, and check what it leaves."""
        self.run(command)
        # dpkg removes /opt with its last file
        found = self.run("mkdir -p /opt; find /etc /opt /root /run /usr /var -name '*ibpulse*' -prune -print")
        left = set(found.split())
        assert left == KEPT, left ^ KEPT
        assert not self.answers()
        assert "ibpulse" not in self.run("systemctl list-unit-files")
        say(f"{command}: only {', '.join(sorted(KEPT))} are left")


def known(value: float | None) -> float:
    return value or 0.0


def install_with_script(node: Node) -> None:
    """The script, forth and back."""
    newer = "sh /release/0.2.1/install.sh"
    node.run(TO_NEW)
    node.wait()
    time.sleep(8)
    node.take_capture()
    node.change(f"{newer} /release/ibpulse-0.2.1-py3-none-any.whl /release/0.2.1/requirements/run.txt", "0.2.1")
    assert node.run("cd /opt; ls -d *").split() == ["ibpulse", "ibpulse-0.2.0", "ibpulse-0.2.1"]
    node.change(f"{newer} --rollback", "0.2.0")
    node.refuse("dpkg --install /release/ibpulse_0.2.1-py311_amd64.deb", "without a package")
    node.run("dpkg --purge ibpulse")
    node.remove(f"{newer} --uninstall")


def install_packages(node: Node) -> None:
    """Packages, forth and back."""
    for install, form, back, remove in (
        ("dpkg --install", "ibpulse_{}-py311_amd64.deb", "dpkg --install", "dpkg --purge ibpulse"),
        ("dnf install -y", "ibpulse-{}-py311.x86_64.rpm", "dnf downgrade -y", "dnf remove -y ibpulse"),
    ):
        old, new = (f"/release/{form.format(version)}" for version in ("0.2.0", "0.2.1"))
        if form.endswith("rpm"):
            with pytest.raises(RuntimeError, match=f"nothing provides /usr/bin/python{PYTHON}"):
                node.run(f"{install} {old}")
            node.run("dnf install -y /release/base.rpm")
        node.run(f"{install} {old}")
        node.wait()
        assert node.run("systemctl is-enabled ibpulse").strip() == "enabled"
        time.sleep(8)
        node.take_capture()
        node.refuse(TO_NEW, "a package has installed ibpulse")
        node.change(f"{install} {new}", "0.2.1")
        node.change(f"{back} {old}", "0.2.0")
        node.run("systemctl disable --now ibpulse")
        node.run(f"{install} {new}")
        assert "disabled" in node.run("systemctl is-enabled ibpulse || true")
        assert not node.answers()
        say("a service that was turned off stays off at an upgrade")
        node.remove(remove)


def _init_of(pid: int) -> str:
    """The first process of the container that a process runs, once it is there: another child sets it up before."""
    with suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return next((each for each in children if Path(f"/proc/{each}/comm").read_text() == "systemd\n"), "")
    return ""


@contextmanager
def running_root(root: Path, release: Path) -> Iterator[Node]:
    """The root, booted, with the release in /release and a simulated fabric in /fabric."""
    address = free_address()
    fabric = root.with_name(f"{root.name}-fabric")
    simulator = subprocess.Popen(
        [sys.executable, "-m", "ibpulse", "simulate", str(fabric), "--workload=dense"], stdout=subprocess.DEVNULL
    )
    boot = ("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", f"--directory={root}")
    binds = (f"--bind-ro={release}:/release", f"--bind-ro={fabric}:/fabric")
    (root / "etc/machine-id").unlink(missing_ok=True)
    settings = {
        "SAMPLER__INTERVAL": f"{INTERVAL_MS}ms",
        "PATH__SYSFS": "/fabric",
        "WEB__LISTEN_ADDRESS": address,
        "CAPTURE__ALLOW_UNAUTHENTICATED": "true",
    }
    text = "".join(f"IBPULSE_{name}={value}\n" for name, value in settings.items())
    (root / "etc/default/ibpulse").write_text(text)
    try:
        eventually((fabric / "class").exists)
        with (root.with_name(f"{root.name}.log")).open("wb") as log:
            host = subprocess.Popen([*boot, *binds], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            node = Node(int(eventually(lambda: _init_of(host.pid))), address)
            eventually(lambda: "running" in node.run("systemctl is-system-running || true"), 60, 1)
            yield node
        finally:
            host.terminate()
            host.wait(30)
    finally:
        simulator.terminate()
        simulator.wait(10)


if __name__ == "__main__":
    sys.exit(main())
