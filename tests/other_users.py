"""Programs that run as other users, without any privilege, and places that all users share. It asserts nothing."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

USER, ANOTHER = 65534, 65533


# The home directory of root is closed to other users. In a mount namespace of the command, nothing but the interpreter
# is left of it.
OPEN_HOME = """
cd "$1"
mount -t tmpfs -o mode=755 tmpfs "$2"
mkdir -p "$1"
mount --no-canonicalize --bind . "$1"
cd /
shift 2
exec "$@"
"""


def as_user(user: int) -> list[str]:
    """What stands before a command that runs as this user, in a process of the same number."""
    who = [f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
    command = ["setpriv", *who, "--bounding-set=-all", "--inh-caps=-all"]
    # coverage would be written to a directory that is closed to them
    measured = [name for name in os.environ if name.startswith("COVERAGE_PROCESS")]
    command += ["env", *(f"--unset={name}" for name in measured)]
    home = Path(sys.base_prefix).resolve()
    closed = [str(path) for path in (home, *home.parents) if not path.stat().st_mode & 0o001]
    if not closed:
        return command
    inside = ["unshare", "--mount", "--propagation=private", "sh", "-ec", OPEN_HOME, "sh"]
    return [*inside, str(home), closed[-1], *command]


def python(user: int, program: str, *words: object) -> str:
    """What a Python program says that runs as this user."""
    command = [*as_user(user), sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout


@functools.cache
def why_not() -> str:
    """Why no program can run as another user here; empty when one can."""
    if os.geteuid():
        return "no root"
    if shutil.which("setpriv") is None:
        return "no setpriv"
    program = "import calendar, subprocess, sys, ibpulse.core.ring.file, numpy; subprocess.run([sys.executable, '-V'])"
    command = [*as_user(USER), sys.executable, "-c", program]
    failed = subprocess.run(command, capture_output=True, check=False, cwd="/").returncode
    return "no interpreter that other users can read" if failed else ""


needs_other_users = pytest.mark.skipif(bool(why_not()), reason=why_not())


@contextmanager
def shared_directory() -> Iterator[Path]:
    """A directory in which every user makes files, as in /tmp."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        yield Path(name)
