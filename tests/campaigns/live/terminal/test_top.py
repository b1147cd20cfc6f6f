"""`ibpulse top` as typed: with a daemon, alone, and the choice between the two."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.live.terminal.panes import needs_tmux, pane
from tests.fabrics import simulated
from tests.running import eventually

TOP = [sys.executable, "-m", "ibpulse", "top"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with simulated(tmp_path_factory.mktemp("fabric"), "dense", ports=3) as made:
        yield made


@needs_tmux
def test_alone_it_samples_and_leaves_nothing_behind(tree: Path, tmp_path: Path) -> None:
    words = [*TOP, f"--path.sysfs={tree}"]
    with pane(tmp_path, words) as made:
        screen = made.wait_for("mlx5_2:1", "duty cycle")
        assert "sampled here" in screen.splitlines()[0]
        pid = made.child_pid()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert len(children) == 1
        rings = {link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir() if link.readlink().name == "ring"}
        assert len(rings) == 1
        os.kill(pid, signal.SIGHUP)
        assert "ended with 0" in made.wait_for("ended with")
        eventually(lambda: not any(Path("/proc", child).exists() for child in children))
        assert not any(ring.parent.exists() for ring in rings)


OWN_SAMPLES = """
import asyncio, sys
from ibpulse.commands import top
from ibpulse.agent.config import load
from ibpulse.workbench.top.driver import Terminal
from ibpulse.base.units import SECOND_NS

async def look():
    async with top.watch_node(load({"path.sysfs": [sys.argv[1]]}, {})) as watcher:
        return watcher.fetch(1, SECOND_NS)

print(len(asyncio.run(look()).rails))
print(sorted({"fastapi", "starlette", "uvicorn", "uvloop", "prometheus_client", "pyarrow"} & set(sys.modules)))
"""


def test_sampling_by_itself_it_loads_no_web_server(tree: Path) -> None:
    words = [sys.executable, "-c", OWN_SAMPLES, str(tree)]
    assert subprocess.check_output(words, text=True) == "3\n[]\n"
