"""`python -m tools.packages WHEEL FOLDER --python=3.13 --machine=x86_64`: a deb and an rpm with all that they need.

They hold a virtual environment in /opt/ibpulse that uses the system's Python, with the wheel and what
requirements/run.txt locks, so that nothing is downloaded where they are installed. They are for one minor version of
Python and one processor, whichever build them. The distribution's own packages are Python 3.11 in Debian 12, 3.12 in
Ubuntu 24.04 and RHEL 10, 3.13 in Debian 13.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
SYSTEMD = ROOT / "docker" / "systemd"
HOME = "/opt/ibpulse"
UNITS = "/usr/lib/systemd/system"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The name of a processor in Go, and in nfpm, by its name in Python."""
FORMATS = ("deb", "rpm")
SCRIPT = f"""#!{HOME}/bin/python
import sys

from ibpulse.cli import main

sys.exit(main())
"""


def program(name: str) -> str:
    """One that requirements/release.txt installs, beside this Python."""
    return str(Path(sys.executable).with_name(name))


def environment(folder: Path, wheel: Path, python: str, machine: str) -> None:
    """Fill the folder with a virtual environment that will be at /opt/ibpulse, for another Python than this one."""
    packages = folder / "lib" / f"python{python}" / "site-packages"
    target = (f"--target={packages}", f"--python-version={python}", f"--python-platform={machine}-manylinux_2_28")
    install = (program("uv"), "pip", "install", "--quiet", "--only-binary=:all:", *target)
    locked = ROOT / "requirements" / "run.txt"
    subprocess.run([*install, "--require-hashes", f"--requirement={locked}"], check=True)
    subprocess.run([*install, "--no-deps", str(wheel)], check=True)
    shutil.rmtree(packages / "bin")
    for unneeded in ("include", "tests"):
        shutil.rmtree(packages / "pyarrow" / unneeded)
    (folder / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n")
    programs = folder / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(f"/usr/bin/python{python}")
    (programs / "ibpulse").write_text(SCRIPT)
    (programs / "ibpulse").chmod(0o755)


def description(folder: Path, version: str, python: str, machine: str) -> dict[str, Any]:
    """What nfpm reads: https://nfpm.goreleaser.com/docs/configuration/."""
    major, minor = python.split(".")
    following = f"{major}.{int(minor) + 1}"
    files: list[dict[str, Any]] = [{"src": str(folder), "dst": HOME, "type": "tree"}]
    files += [{"src": str(path), "dst": f"{UNITS}/{path.name}"} for path in sorted(SYSTEMD.glob("*.service"))]
    files += [
        {"src": str(path), "dst": f"{HOME}/{path.name}", "file_info": {"mode": 0o755}}
        for path in sorted((ROOT / "slurm").glob("*.sh"))
    ]
    files += [
        {"src": f"{HOME}/bin/ibpulse", "dst": "/usr/bin/ibpulse", "type": "symlink"},
        # named, so that rpm removes it
        {"dst": "/usr/share/doc/ibpulse", "type": "dir"},
        {"src": str(ROOT / "LICENSE"), "dst": "/usr/share/doc/ibpulse/copyright"},
    ]
    scripts = {
        name: str(SYSTEMD / "package" / f"{name}.sh")
        for name in ("preinstall", "postinstall", "preremove", "postremove")
    }
    return {
        "name": "ibpulse",
        "version": version,
        "release": f"py{major}{minor}",
        "arch": MACHINES[machine],
        "maintainer": "The ibpulse authors",
        "description": "What every InfiniBand and RoCE port of a GPU node does, every 10 ms, for Prometheus",
        "license": "Apache-2.0",
        "section": "net",
        "contents": files,
        "scripts": scripts,
        "overrides": {
            "deb": {"depends": [f"python3 (>= {python})", f"python3 (<< {following})"]},
            "rpm": {"depends": [f"/usr/bin/python{python}"]},
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write both packages; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.packages", description="A deb and an rpm of a wheel.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}")
    parser.add_argument("--machine", choices=sorted(MACHINES), default="x86_64")
    given = parser.parse_args(arguments)
    named = re.fullmatch(r"ibpulse-([^-]+)-.*\.whl", given.wheel.name)
    if named is None:
        parser.error(f"{given.wheel}: not a wheel of ibpulse")
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "ibpulse"
        folder.mkdir()
        environment(folder, given.wheel, given.python, given.machine)
        config = Path(name) / "nfpm.yaml"
        config.write_text(yaml.safe_dump(description(folder, named[1], given.python, given.machine)))
        for form in FORMATS:
            subprocess.run(
                [program("nfpm"), "package", f"--config={config}", f"--packager={form}", f"--target={given.folder}"],
                check=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
