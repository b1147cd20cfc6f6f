"""`python -m tests.campaigns.vm.build`: builds what the machine boots from, into a cache folder; what is there stays.

Its parts: the kernel and its modules, Debian's user space, the Python packages, and ibpulse itself, which is built anew
each time since it is what changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT
from tests.campaigns.vm import debian, kernel, wheels
from tests.campaigns.vm.archive import Archive
from tests.campaigns.vm.errors import MissingPartError

PROJECT = ROOT
GUEST_FOLDER = Path(__file__).parent / "guest"
REQUIREMENTS = PROJECT / "requirements/run.txt"
# program: Debian's package
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "debootstrap": "debootstrap", "dpkg-deb": "dpkg", "apt-get": "apt"}
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Image:
    """Files that the machine boots from: the kernel, and archives to unpack one after the other."""

    kernel: Path
    archives: tuple[Path, ...]


def build_image(folder: Path | None = None) -> Image:
    """The image in the cache folder, after building what is missing or was made from other sources.

    Raises:
        MissingPartError: the host lacks a program, a privilege or a package.
    """
    check_host()
    folder = folder or Path(os.environ.get("SOFT_ROCE_DIR") or Path(__file__).parent / "out").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _build_parts(folder)


def check_host() -> None:
    """Nothing, when this host can build and run the machine.

    Raises:
        MissingPartError: it can not; the message says why.
    """
    if platform.machine() != "x86_64":
        raise MissingPartError(f"the machine is an x86-64 one, this host is {platform.machine()}")
    for program, package in PROGRAMS.items():
        if not shutil.which(program):
            raise MissingPartError(f"{program} is not on the path: install Debian's package {package}")


def _build_parts(folder: Path) -> Image:
    image = Image(
        kernel=folder / "vmlinuz",
        archives=tuple(folder / f"{name}.cpio" for name in ("root", "modules", "python", "project")),
    )
    root_archive, modules, packages, project = image.archives
    root = folder / "root"

    def build_kernel() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            log.info("kernel %s", kernel.build_kernel(Path(scratch), image.kernel, modules))

    def install_requirements() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            wheels.install_requirements(REQUIREMENTS, root, Path(scratch), packages)

    _build_once(folder / "kernel.key", _fingerprint(Path(kernel.__file__)), build_kernel)
    _build_once(folder / "root.key", _fingerprint(Path(debian.__file__)), lambda: debian.build_root(root, root_archive))
    _build_once(folder / "python.key", _fingerprint(REQUIREMENTS, Path(wheels.__file__)), install_requirements)
    _build_project(folder, root, project)
    return image


def _build_project(folder: Path, root: Path, archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        wheels.install_project(PROJECT, root, Path(scratch), archive)
    with archive.open("ab") as file:
        writer = Archive(file)
        writer.add_tree(GUEST_FOLDER, "guest", keep=lambda name: "__pycache__" not in name)
        writer.add_file("init", (GUEST_FOLDER / "init").read_bytes(), mode=0o755)
        writer.close()


def _build_once(key_file: Path, key: str, build: Callable[[], None]) -> None:
    """Call `build` unless the key file says that it was done for the same key."""
    if key_file.exists() and key_file.read_text() == key:
        return
    started = time.monotonic()
    build()
    key_file.write_text(key)
    log.info("%s built in %.0f s", key_file.stem, time.monotonic() - started)


def _fingerprint(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    log.info("the machine boots from %s", build_image().kernel.parent)
