"""What a daemon opens, writes, starts and connects to, as Python's own audit events tell it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.fabrics import simulated
from tests.running import Running, eventually

# in every process of the daemon, each event is a line; files that an import opens belong to the program
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
CAPTURES = "/api/v1/captures"


@dataclass(frozen=True)
class Footprint:
    """The audit events of a daemon and its directories."""

    events: list[list[str]]
    tree: Path
    ring: Path
    captures: Path

    def opened(self, *, writing: bool) -> set[str]:
        """The paths that were opened to read alone, or to write."""
        return {path for event, path, _, flags in self.of("open") if bool(int(flags) & WRITING) is writing}

    def of(self, *kinds: str) -> list[list[str]]:
        return [event for event in self.events if event[0] in kinds]


@pytest.fixture(scope="module")
def footprint(tmp_path_factory: pytest.TempPathFactory) -> Footprint:
    """A daemon that did all that it does by itself and on request, and has ended."""
    place = tmp_path_factory.mktemp("footprint")
    (place / "site").mkdir()
    (place / "empty").mkdir()
    (place / "site/sitecustomize.py").write_text(AUDIT.replace("__FILE__", repr(str(place / "audit"))))
    with pytest.MonkeyPatch.context() as patch, simulated(place / "sys", "dense", ports=3) as tree:
        patch.setenv("PYTHONPATH", str(place / "site"), prepend=os.pathsep)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        for variable in [name for name in os.environ if name.startswith("COVERAGE_PROCESS")]:
            patch.delenv(variable)
        # files of an open directory are opened by their names alone, as are those of the working directory
        patch.chdir(place / "empty")
        flags = ("--capture.allow-unauthenticated=true", "--ports.exclude=mlx5_2", "--slow.interval=1s")
        with Running(tree, place / "ring", *flags) as daemon:
            asked = httpx.post(daemon.url + CAPTURES, json={"before": "1s", "after": "10ms"}, timeout=20)
            name = asked.json()["name"]
            eventually(lambda: name in [each["name"] for each in daemon.ask(CAPTURES).json()["captures"]])
            # statistics of fewer than two seconds have no step period
            eventually(lambda: daemon.ask("/api/v1/summary").json()["node"]["step_period_score"])
            windows = [f"/api/v1/window?last=1s&format={each}" for each in ("json", "npy", "csv", "grafana")]
            for path in ("/", "/metrics", f"{CAPTURES}/{name}", "/api/v1/summary", "/api/v1/topology", *windows):
                assert daemon.ask(path).status_code == 200
            assert httpx.delete(f"{daemon.url}{CAPTURES}/{name}", timeout=20).status_code == 204
    events = [json.loads(line) for line in (place / "audit").read_text().splitlines()]
    assert list((place / "empty").iterdir()) == []
    return Footprint(events, tree, place / "ring", place / "captures")


def others(footprint: Footprint, paths: Iterable[str], *allowed: str) -> set[str]:
    """The paths outside of the daemon's directories and of those that are allowed."""
    own = (footprint.ring, footprint.captures, *map(Path, allowed))
    absolute = {path for path in paths if path.startswith("/")}
    return {path for path in absolute if not any(Path(path).is_relative_to(directory) for directory in own)}


def test_only_the_ring_and_the_captures_are_written(footprint: Footprint) -> None:
    written = others(footprint, footprint.opened(writing=True), "/dev/null")
    # the process that writes a capture is the first to go if memory is short
    assert [path for path in written if not re.fullmatch("/proc/[0-9]+/oom_score_adj", path)] == []
    changes = footprint.of("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.chown", "os.truncate")
    changes += footprint.of("os.link", "os.symlink")
    assert {event[0] for event in changes} >= {"os.rename", "os.remove"}
    assert others(footprint, (event[1] for event in changes)) == set()


def test_nothing_is_read_but_the_program_the_tree_and_what_the_kernel_says_of_the_process(footprint: Footprint) -> None:
    program = [path for path in (sys.prefix, sys.base_prefix, *sys.path) if path]
    read = others(footprint, footprint.opened(writing=False), str(footprint.tree), "/proc", "/sys/fs/cgroup", *program)
    assert read == set()


@pytest.mark.parametrize("folder", ["/numpy/ma/", "/yaml/"])
def test_nothing_is_imported_that_only_other_commands_or_files_need(footprint: Footprint, folder: str) -> None:
    opened = footprint.opened(writing=False)
    assert any("/numpy/fft/" in path for path in opened)
    assert [path for path in opened if folder in path] == []


def test_an_excluded_port_is_never_opened(footprint: Footprint) -> None:
    opened = footprint.opened(writing=False)
    assert any("/mlx5_0/" in path for path in opened)
    assert [path for path in opened if "/mlx5_2/" in path] == []


def test_no_connection_is_opened_and_no_other_program_is_started(footprint: Footprint) -> None:
    assert footprint.of("socket.connect", "os.exec", "os.system", "os.posix_spawn") == []
    assert {event[1] for event in footprint.of("subprocess.Popen")} == {sys.executable}
