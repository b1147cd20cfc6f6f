"""What a daemon needs of the machine, and what it touches."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import ROOT
from tests.other_users import USER, as_user, shared_directory
from tests.running import HANG_SECONDS, Running
from tests.smoke.parts import plain_tree, take_capture

# too large for a process that is to be small
LARGE = {"logging", "asyncio", "socket", "dataclasses", "inspect"}
OPEN = "--capture.allow-unauthenticated=true"
# each event of every process of a daemon is a line; files that an import opens belong to the program
AUDIT = """
import json, os, sys

SEEN = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.chown", "os.truncate", "os.link"}
SEEN |= {"os.symlink", "open", "socket.connect", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"}
target = os.open(__FILE__, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
write, dumps = os.write, json.dumps

def hook(event, arguments):
    if event in SEEN:
        write(target, dumps([event, *map(str, arguments)]).encode() + b"\\n")

sys.addaudithook(hook)
"""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory of all users, with a tree."""
    with shared_directory() as made:
        plain_tree(made / "sys")
        yield made


def status_of(pid: int) -> dict[str, str]:
    """What the kernel says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.needs("root", "setpriv", "Python for other users")
def test_it_serves_as_a_user_without_any_privilege(shared: Path) -> None:
    with Running(shared / "sys", shared / "ring", OPEN, under=as_user(USER)) as daemon:
        status = status_of(daemon.pid)
        assert (status["Uid"].split(), status["CapEff"]) == ([str(USER)] * 4, "0" * 16)
        take_capture(daemon)
        assert daemon.stop() == 0
    own = [path for path in shared.rglob("*") if not path.is_relative_to(shared / "sys") and path.suffix != ".log"]
    assert {path.stat().st_uid for path in own} == {USER}
    assert [path for path in own if path.stat().st_mode & 0o007] == []


def test_it_writes_only_to_its_directories_and_starts_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(AUDIT.replace("__FILE__", repr(str(tmp_path / "audit"))))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    # coverage would write its own files
    for variable in [name for name in os.environ if name.startswith("COVERAGE_PROCESS")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path / "empty")
    tree = plain_tree(tmp_path / "sys", 3)
    with Running(tree, tmp_path / "ring", OPEN, "--ports.exclude=mlx5_2") as daemon:
        name = take_capture(daemon)
        windows = [f"/api/v1/window?last=1s&format={each}" for each in ("json", "npy", "csv", "grafana")]
        for path in ("/", "/metrics", "/api/v1/summary", "/api/v1/topology", *windows):
            assert daemon.ask(path).status_code == 200
        assert httpx.delete(f"{daemon.url}/api/v1/captures/{name}", timeout=HANG_SECONDS).status_code == 204
        assert daemon.stop() == 0
    events = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    opened = {(path, bool(int(flags) & WRITING)) for kind, path, _, flags in filter(is_open, events)}
    read, written = ({path for path, writes in opened if writes is wanted} for wanted in (False, True))
    changed = {event[1] for event in events if event[0].startswith("os.")}
    own = (str(tmp_path / "ring"), str(tmp_path / "captures"))
    program = [path for path in (sys.prefix, sys.base_prefix, *sys.path) if path]
    # the process that writes a capture is the first to go if memory is short
    assert outside(written - {"/dev/null"}, *own) - set(re.findall(r"/proc/\d+/oom_score_adj", str(written))) == set()
    assert outside(changed, *own) == set()
    assert outside(read, *own, str(tree), "/proc", "/sys/fs/cgroup", *program) == set()
    assert any("/mlx5_0/" in path for path in read)
    # an excluded port, and libraries that only other commands need
    assert [path for path in read if "/mlx5_2/" in path or "/numpy/ma/" in path or "/yaml/" in path] == []
    assert {event[1] for event in events if event[0] == "subprocess.Popen"} == {sys.executable}
    assert {event[0] for event in events} & {"socket.connect", "os.exec", "os.system", "os.posix_spawn"} == set()
    assert list((tmp_path / "empty").iterdir()) == []


def is_open(event: list[str]) -> bool:
    return event[0] == "open"


def outside(paths: set[str], *directories: str) -> set[str]:
    """The absolute paths that are in none of these directories; others are relative to one that is open."""
    absolute = {path for path in paths if path.startswith("/")}
    return {path for path in absolute if not any(Path(path).is_relative_to(each) for each in directories)}


def test_the_sampler_loads_only_the_standard_library(tmp_path: Path) -> None:
    program = (
        "import sys; before = set(sys.modules); import ibpulse.agent.sampler.process; "
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "['ibpulse']\n"
    program = f"import sys, ibpulse.agent.sampler.process; print({LARGE} & set(sys.modules))"
    path = {"PYTHONPATH": str(ROOT / "exporter")}
    assert subprocess.check_output([sys.executable, "-S", "-c", program], text=True, env=path) == "set()\n"
    with Running(plain_tree(tmp_path / "sys"), tmp_path / "ring") as daemon:
        of_daemon, *of_samplers = (
            Path(f"/proc/{pid}/maps").read_text() for pid in (daemon.pid, *daemon.sampler_pids())
        )
    assert "/site-packages/" in of_daemon
    assert [maps for maps in of_samplers if "/site-packages/" in maps] == []
