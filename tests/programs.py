"""Programs and rights from outside that a test may need: `@pytest.mark.needs("promtool", "root")`."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
import ssl
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

from tests import ROOT

# names of a program on other systems
ALSO_CALLED = {"alertmanager": "prometheus-alertmanager", "chromium": "chromium-browser"}


def find(program: str) -> str | None:
    """The path of a program, under either of its names."""
    return shutil.which(program) or shutil.which(ALSO_CALLED.get(program, program))


@functools.cache
def is_root() -> bool:
    """Whether this user may make namespaces and mount file systems in them."""
    if os.geteuid() or not shutil.which("unshare"):
        return False
    mount = ["unshare", "--mount", "--net", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


@functools.cache
def has_fuse() -> bool:
    """Whether a FUSE tree can be mounted here."""
    from tests.fusefabric.client import why_not

    return not why_not()


def has_shared_python() -> bool:
    """Whether other users can reach this interpreter and the project."""
    paths = {folder for path in (Path(sys.prefix), ROOT) for folder in (path, *path.parents)}
    return all(folder.stat().st_mode & 0o001 for folder in paths)


def has_libatomic() -> bool:
    """Whether the driver of the browser, which is Node.js, finds its library."""
    return find_library("atomic") is not None


def has_x25519() -> bool:
    """Whether Python can prefer this curve, which the one of Debian 12 cannot."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve("X25519")
    except (ValueError, ssl.SSLError):
        return False
    return True


def has_sphinx() -> bool:
    """Whether `make docs-site` has installed its programs."""
    return importlib.util.find_spec("sphinx") is not None


def has_kernel_headers() -> bool:
    """Whether the names of the system calls of x86-64 are known here."""
    from tests.campaigns.live.docker.system_calls import HEADER

    return platform.machine() == "x86_64" and HEADER.exists()


def has_operator() -> bool:
    """Whether the schemas of the Prometheus operator were loaded, as `go mod download` does."""
    from tests.campaigns.chart.schemas import operator_directory

    return operator_directory() is not None


RIGHTS = {
    "sphinx": has_sphinx,
    "kernel headers": has_kernel_headers,
    "Prometheus operator": has_operator,
    "libatomic": has_libatomic,
    "root": is_root,
    "fuse": has_fuse,
    "Python for other users": has_shared_python,
    "X25519": has_x25519,
}


def missing(*names: str) -> str | None:
    """The first of these that this machine lacks."""
    return next((name for name in names if not (RIGHTS[name]() if name in RIGHTS else find(name))), None)
