"""The wall clock of a simulated node, as its processes see it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ibpulse
from ibpulse.workbench.simulate.node_clock import node_environment

PACKAGE = Path(ibpulse.__file__).parent
HOUR_NS = 3_600_000_000_000
ASK = """
import subprocess, sys, time
def ask():
    wall = (time.time(), time.time_ns() / 1e9, time.clock_gettime(time.CLOCK_REALTIME),
            time.clock_gettime_ns(time.CLOCK_REALTIME) / 1e9)
    return [*wall, time.monotonic(), time.clock_gettime(time.CLOCK_MONOTONIC)]
print(*ask())
if len(sys.argv) == 1:
    print(subprocess.run([sys.executable, __file__, "child"], capture_output=True, text=True, check=True).stdout)
"""


@pytest.mark.real("process")
def test_only_wall_clocks_are_shifted(tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(ASK)
    environ = node_environment(dict(os.environ), tmp_path / "python", -HOUR_NS)
    true, shifted = (
        [
            float(word)
            for word in subprocess.run(
                [sys.executable, str(script)], env=env, capture_output=True, text=True, check=True
            ).stdout.split()
        ]
        for env in (dict(os.environ), environ)
    )
    ahead = [round((ours - theirs) / 60) for ours, theirs in zip(shifted, true, strict=True)]
    assert ahead == [-60, -60, -60, -60, 0, 0] * 2


def test_modules_read_wall_clock_through_time() -> None:
    """Functions without arguments that take the time from the kernel themselves would not be shifted."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            name, given = node.func.attr, len(node.args) + len(node.keywords)
            of_time = isinstance(node.func.value, ast.Name) and node.func.value.id == "time"
            if name in ("utcnow", "today") or (name == "now" and "datetime" in ast.unparse(node.func.value)):
                found.append(f"{path.name}:{node.lineno}")
            if of_time and given < {"gmtime": 1, "localtime": 1, "ctime": 1, "asctime": 1, "strftime": 2}.get(name, 0):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []
