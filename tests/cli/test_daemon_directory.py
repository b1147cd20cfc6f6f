"""What keeps a daemon or a command from starting: a ring in use, ports that are taken, a wrong file of places."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ibpulse.agent.config import Settings
from ibpulse.agent.config.loading import load
from ibpulse.agent.daemon import HeldDirectory, InUseError, least_open_files, run_daemon
from ibpulse.agent.node import node
from ibpulse.agent.sampler.supervisor import PortInventory
from ibpulse.agent.sampler.temporary_sampler import TemporarySampler
from ibpulse.base import limits
from ibpulse.base.errors import ConfigError, IbpulseError, RingError
from ibpulse.cli import main
from ibpulse.core.events import EventLog
from ibpulse.core.model import Fabric
from ibpulse.core.recordings import RecordedPort
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.workbench.demo_nodes import find_ports
from ibpulse.workbench.recorder.sampler_source import node_source
from tests.sysfs.conftest import opened, tree
from tests.sysfs.trees import Tree


def test_a_second_daemon_is_kept_out_and_a_file_in_its_place_named(tmp_path: Path) -> None:
    refusal = r"is in use by another ibpulse; stop it, or choose another --ring\.dir"
    with closing(HeldDirectory(tmp_path / "ring")), pytest.raises(InUseError, match=refusal):
        HeldDirectory(tmp_path / "ring")
    with closing(HeldDirectory(tmp_path / "ring")) as directory:
        assert directory.path == tmp_path / "ring"
    (tmp_path / "file").touch()
    with pytest.raises(RingError, match=f"ring.dir: {tmp_path / 'file'} cannot be used: File exists; choose a dir"):
        HeldDirectory(tmp_path / "file")


def test_a_directory_that_was_deleted_is_made_and_locked_again(tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    with closing(HeldDirectory(ring)) as directory:
        assert not directory.restore()
        (ring / "lock").unlink()
        assert directory.restore()
        assert not directory.restore()
        ring.rename(tmp_path / "elsewhere")
        assert directory.restore()
        with pytest.raises(InUseError):
            HeldDirectory(ring)
        shutil.rmtree(ring)
        # another daemon was faster
        with closing(HeldDirectory(ring)), pytest.raises(InUseError):
            directory.restore()
        assert directory.restore()
        shutil.rmtree(ring)
        ring.touch()
        with pytest.raises(RingError, match="File exists"):
            directory.restore()
        ring.unlink()
        assert directory.restore()


def test_a_port_of_a_demo_that_is_in_use_or_impossible_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use"):
            find_ports("127.0.0.1", port, 2)
    with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1:65536"):
        find_ports("127.0.0.1", 65536, 2)
    assert len(set(find_ports("127.0.0.1", 0, 4))) == 4


def test_too_few_open_files_are_refused_before_anything_is_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / "sys/class/infiniband" / f"mlx5_{number}" / "ports/1").mkdir(parents=True)
    least = least_open_files(tmp_path / "sys")
    monkeypatch.setattr(limits, "allow_open_files", lambda count: least - 1)
    settings = load({"path.sysfs": [str(tmp_path / "sys")], "ring.dir": [str(tmp_path / "ring")]}, {})
    said = f"the limit of open files is {least - 1}, but at least {least} are needed here: raise it to 2048"
    with pytest.raises(IbpulseError, match=said) as found:
        run_daemon(settings)
    assert found.value.exit_code == 1
    assert not (tmp_path / "ring").exists()
    monkeypatch.setattr(limits, "allow_open_files", lambda count: least)
    limits.require_open_files(2048, least)


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

    monkeypatch.setattr(node, "temporary_sampler", sampler)
    tree.add("mlx5_0")
    file = tmp_path / "topology.yaml"
    file.write_text("mlx5_0: {numa_node: 1, gpus: [0000:1b:00.0], distance: PIX}\n")
    return load({"path.sysfs": [str(tree.root)], "topology.file": [str(file)]}, {})


def test_recordings_and_samplers_know_the_places_of_the_file(placed: Settings) -> None:
    async def recorded_ports() -> tuple[RecordedPort, ...]:
        async with node_source(placed) as source:
            return source.meta.ports

    (daemons,) = node.make_inventory(placed, placed.slow.counters).scan().ports
    (port,) = asyncio.run(recorded_ports())
    assert port.identity == daemons.identity
    assert (port.identity.gpu, port.identity.gpu_distance, port.identity.numa_node) == ("0000:1b:00.0", "PIX", "1")

    async def sampled() -> Fabric:
        async with node.make_temporary_sampler(placed, 10) as sampler:
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
