"""A file of places that cannot be used stops the program before it begins, with every fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ibpulse.agent.config import Settings, load
from ibpulse.agent.node import wiring
from ibpulse.agent.sampler.supervisor import PortInventory
from ibpulse.agent.sampler.temporary_sampler import TemporarySampler
from ibpulse.cli import main
from ibpulse.core.events import EventLog
from ibpulse.core.model import Fabric
from ibpulse.core.recordings import RecordedPort
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.workbench.recorder.sampler_source import node_source
from tests.sysfs.conftest import opened, tree
from tests.sysfs.trees import Tree

__all__ = ["opened", "tree"]


@pytest.fixture
def placed(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A node whose topology file names the GPUs of one device; its sampler has taken one sample."""

    @asynccontextmanager
    async def sampler(inventory: PortInventory, *_: object) -> AsyncIterator[TemporarySampler]:
        ring = RingFile.create(tmp_path / "ring", 10_000_000, 1000)
        ring.words[at.lane_at(0) + at.L_TICK] = 1
        supervisor: Any = SimpleNamespace(fabric=inventory.scan(), slots={}, events=EventLog())
        task: Any = SimpleNamespace(done=lambda: False)
        yield TemporarySampler(supervisor, RingReader(ring), task)
        ring.close()

    monkeypatch.setattr(wiring, "temporary_sampler", sampler)
    tree.add("mlx5_0")
    file = tmp_path / "topology.yaml"
    file.write_text("mlx5_0: {numa_node: 1, gpus: [0000:1b:00.0], distance: PIX}\n")
    return load({"path.sysfs": [str(tree.root)], "topology.file": [str(file)]}, {})


def test_a_recording_names_the_gpus_that_the_daemon_names(placed: Settings) -> None:
    async def recorded_ports() -> tuple[RecordedPort, ...]:
        async with node_source(placed) as source:
            return source.meta.ports

    (daemons,) = wiring.make_inventory(placed, placed.slow.counters).scan().ports
    (port,) = asyncio.run(recorded_ports())
    assert port.identity == daemons.identity
    assert (port.identity.gpu, port.identity.gpu_distance, port.identity.numa_node) == ("0000:1b:00.0", "PIX", "1")


def test_every_sampler_of_a_command_knows_the_places_of_the_file(placed: Settings) -> None:
    async def sampled() -> Fabric:
        async with wiring.make_temporary_sampler(placed, 10) as sampler:
            return sampler.supervisor.fabric

    (place,) = asyncio.run(sampled()).topology.devices
    assert (place.source, place.gpus) == ("topology.file", ("0000:1b:00.0",))


@pytest.mark.parametrize("words", [("record", "x.parquet"), ("top", "--alone"), ("doctor",)])
def test_no_command_ignores_a_file_that_is_not_there(
    words: tuple[str, ...],
    tree: Tree,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ibpulse.commands.top.check_terminal", lambda: None)
    assert main([*words, f"--path.sysfs={tree.root}", "--topology.file=none.yaml"], {}) == 2
    assert "topology.file: none.yaml: cannot be read: No such file or directory" in capsys.readouterr().err
