"""The machine's user space, made of Debian's packages. Python packages are not its business."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tests.campaigns.vm.archive import Archive
from tests.campaigns.vm.errors import MissingPartError, call
from tests.campaigns.vm.packages import KEYRING, Suite, read_mirror, read_package

SUITE = "trixie"
PYTHON_VERSION = "3.13"
PACKAGES = ("python3", "rdma-core", "ibverbs-providers", "perftest", "iproute2", "kmod", "busybox-static", "runc")
# System calls that container engines allow by default. Of its package the file alone: the rest is an engine.
SECCOMP_PACKAGE, SECCOMP_PROFILE = "golang-github-containers-common", "usr/share/containers/seccomp.json"
# What no test needs; every megabyte costs time at each boot. The machine mounts its own dev, proc, run, sys and tmp.
UNWANTED = (
    *("boot", "dev", "proc", "run", "sys", "tmp", "var/cache", "var/lib/apt", "var/lib/dpkg", "var/log"),
    *("usr/games", "usr/include", "usr/lib/apt", "usr/lib/dpkg", "usr/lib/systemd", "usr/lib/udev"),
    *("etc/apt", "etc/dpkg", "etc/init.d", "etc/systemd", "etc/udev"),
    *(f"usr/share/{name}" for name in ("bash-completion", "common-licenses", "debconf", "doc", "dpkg", "gcc", "gdb")),
    *(f"usr/share/{name}" for name in ("i18n", "info", "keyrings", "lintian", "locale", "man", "perl")),
    *(f"usr/share/{name}" for name in ("zoneinfo", "polkit-1", "zsh")),
    *(f"usr/lib/python{PYTHON_VERSION}/{name}" for name in ("ensurepip", "idlelib", "pydoc_data", "test")),
    *(f"usr/lib/x86_64-linux-gnu/{name}" for name in ("cmake", "gconv", "perl", "pkgconfig", "security")),
    *(f"usr/lib/x86_64-linux-gnu/{name}" for name in ("systemd", "libapt", "libperl", "libsystemd-shared")),
    *(f"usr/bin/{name}" for name in ("apt", "dpkg", "gpgv", "localedef", "perl", "sqv")),
)


def build_root(folder: Path, archive: Path) -> None:
    """Install Debian, move what is wanted of it to `folder`, and write that into an archive."""
    if os.geteuid():
        raise MissingPartError("cannot build the machine's Debian as an ordinary user: debootstrap needs root")
    options = ["--variant=minbase", f"--keyring={KEYRING}", f"--include={','.join(PACKAGES)}"]
    # Outside the project: it has device files at first, and whoever copies the project would read them without end.
    with tempfile.TemporaryDirectory(prefix="ibpulse-vm-") as scratch:
        root = Path(scratch) / "root"
        call(["debootstrap", *options, SUITE, root, read_mirror()], "build the machine's Debian")
        _prune(root)
        profile = dict(read_package(Suite(SUITE, Path(scratch) / "apt").fetch(SECCOMP_PACKAGE)))[SECCOMP_PROFILE]
        (root / SECCOMP_PROFILE).parent.mkdir()
        (root / SECCOMP_PROFILE).write_bytes(profile)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(root, folder)
    with archive.open("wb") as file:
        writer = Archive(file)
        writer.add_tree(folder)
        writer.close()


def _prune(root: Path) -> None:
    for beginning in UNWANTED:
        for path in list(root.glob(f"{beginning}*")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
