"""The daemon under the filter of system calls of its unit, with a capture and a password."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bcrypt
import httpx
import pytest

from tests.campaigns.live.docker.system_calls import allowed
from tests.campaigns.packages.test_systemd import DAEMON, UNITS, each_unit
from tests.fabrics import simulated
from tests.running import Running, eventually

pytestmark = pytest.mark.needs("systemd-analyze", "kernel headers")
UNDER = (sys.executable, "-m", "tests.campaigns.live.docker.system_calls")


@each_unit
def test_what_the_units_allow_is_what_their_lines_say(source: Path) -> None:
    calls = allowed(source.read_text())
    assert {"pread64", "setpriority", "prctl", "execve"} <= calls
    assert not calls & {"setuid", "chown", "mount", "ptrace", "init_module", "setrlimit", "ioprio_set"}
    assert ("sched_setscheduler" in calls) == (source == DAEMON)


def test_a_call_that_is_not_allowed_is_refused() -> None:
    done = subprocess.run([*UNDER, UNITS[0], "chown", "0", "/dev/null"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Operation not permitted" in done.stderr


def test_the_daemon_needs_no_other_call(tmp_path: Path) -> None:
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{ops: {hashed}}}\n")
    with simulated(tmp_path / "fabric", "dense") as tree:
        daemon = Running(tree, tmp_path / "ring", f"--web.config.file={web}", under=(*UNDER, str(DAEMON)))
        daemon.http = {"auth": ("ops", "secret")}
        with daemon:
            assert "Seccomp:\t2\n" in Path(f"/proc/{daemon.pid}/status").read_text()
            assert httpx.post(f"{daemon.url}/api/v1/captures", **daemon.http).status_code == 202
            (capture,) = eventually(lambda: daemon.ask("/api/v1/captures").json()["captures"])
            assert daemon.ask(capture["url"]).content.startswith(b"PAR1")
            assert [word for word in ("ERROR", "not permitted") if word in daemon.log()] == []


def test_where_the_priority_cannot_be_lowered_captures_are_taken_all_the_same(tmp_path: Path) -> None:
    """Under a filter of system calls that refuses it."""
    unit = tmp_path / "ibpulse.service"
    unit.write_text(DAEMON.read_text().replace("SystemCallFilter=setpriority\n", ""))
    say = (
        "import os; from ibpulse.base.deadline import yield_to_others; yield_to_others(5); print(os.getpriority(0, 0))"
    )
    for source, niceness in ((DAEMON, os.getpriority(0, 0) + 5), (unit, os.getpriority(0, 0))):
        done = subprocess.run([*UNDER, source, sys.executable, "-c", say], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(min(niceness, 19))
