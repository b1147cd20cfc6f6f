"""A daemon on a machine with other users: what they prepared for it, and what they can read of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.agent.doctor.facts import DoctorOptions
from ibpulse.agent.doctor.samples import find_daemon
from tests.fabrics import simulated
from tests.other_users import ANOTHER, USER, as_user, needs_other_users, python, shared_directory
from tests.running import Running
from tests.smoke.parts import take_capture

SECRET = "of root and of nobody else"
OPEN = "--capture.allow-unauthenticated=true"
CAPTURES = "/api/v1/captures"
NAME = "20251121T000003.030Z-a-1f6c0a2e.parquet"


class RunningAs(Running):
    """A daemon that is started by a command which becomes it."""

    def __init__(self, prefix: list[str], tree: Path, ring_dir: Path, *flags: str) -> None:
        super().__init__(tree, ring_dir, *flags)
        self._command = [*prefix, *self._command]


@pytest.fixture
def shared() -> Iterator[Path]:
    with shared_directory() as made:
        (made / "secret").write_text(SECRET)
        (made / "secret").chmod(0o600)
        yield made


@pytest.fixture
def tree(shared: Path) -> Iterator[Path]:
    with simulated(shared / "sys", "constant", ports=2, rate="20GB/s") as made:
        yield made


def hostile_directory(path: Path) -> Path:
    """A directory that another user has made, to which everybody can write."""
    path.mkdir()
    os.chown(path, USER, USER)
    path.chmod(0o777)
    return path


def modes(directory: Path) -> dict[Path, int]:
    """Permissions of a directory and of everything in it."""
    return {path: stat.S_IMODE(path.lstat().st_mode) for path in (directory, *directory.rglob("*"))}


@needs_other_users
def test_captures_of_another_user_are_not_sent(shared: Path, tree: Path) -> None:
    captures = hostile_directory(shared / "hostile")
    (captures / NAME).symlink_to(shared / "secret")
    with Running(tree, shared / "ring", OPEN, f"--capture.dir={captures}") as daemon:
        for path in (CAPTURES, f"{CAPTURES}/{NAME}"):
            answer = daemon.ask(path)
            assert answer.status_code == 503
            assert SECRET not in answer.text
        assert (
            f"captures cannot be taken: capture.dir: {captures} cannot be used: it belongs to user {USER}, who could "
            "replace the files of user 0 in it; choose a directory that belongs to root or to user 0, or change its "
            "owner" in daemon.log()
        )
    assert [path.name for path in captures.iterdir()] == [NAME]


@needs_other_users
def test_a_daemon_without_privileges_works_in_volumes_of_root_and_root_finds_it(shared: Path, tree: Path) -> None:
    """An emptyDir of Kubernetes belongs to root and has mode 2777."""
    for name in ("ring", "captures"):
        (shared / name).mkdir()
        (shared / name).chmod(0o2777)
    own = shared / "ring" / f"ibpulse-{USER}"
    daemon = RunningAs(as_user(USER), tree, shared / "ring", OPEN)
    with daemon:
        name = take_capture(daemon)
        options = DoctorOptions(sysfs=tree, ring_dir=own)
        found = find_daemon(options)
        assert found is not None
        assert found.path == own / "ring"
        found.close()
        program = """
import sys, pathlib
from ibpulse.agent.doctor.facts import DoctorOptions
from ibpulse.agent.doctor.samples import find_daemon
tree, ring = map(pathlib.Path, sys.argv[1:])
print(getattr(find_daemon(DoctorOptions(sysfs=tree, ring_dir=ring)), "path", None))
"""
        assert python(USER, program, tree, shared / "ring").strip() == str(own / "ring")
        assert python(ANOTHER, program, tree, shared / "ring").strip() == "None"
    assert own.stat().st_uid == USER
    assert modes(own)[own] & 0o777 == 0o700
    assert (shared / "captures" / own.name / name).stat().st_uid == USER
    with daemon:
        assert [each["name"] for each in daemon.ask(CAPTURES).json()["captures"]] == [name]
    assert daemon.log().count("ERROR") == 0
