"""What keeps a daemon from starting: a ring that another one uses, a file in the way, ports that are taken."""

from __future__ import annotations

import shutil
import socket
from contextlib import closing
from pathlib import Path

import pytest

from ibpulse.agent.config.loading import load
from ibpulse.agent.daemon import HeldDirectory, InUseError, least_open_files, run_daemon
from ibpulse.base import limits
from ibpulse.base.errors import ConfigError, IbpulseError, RingError
from ibpulse.workbench.demo_nodes import find_ports


def test_a_second_daemon_is_kept_out_of_the_ring(tmp_path: Path) -> None:
    refusal = r"is in use by another ibpulse; stop it, or choose another --ring\.dir"
    with closing(HeldDirectory(tmp_path / "ring")), pytest.raises(InUseError, match=refusal):
        HeldDirectory(tmp_path / "ring")
    with closing(HeldDirectory(tmp_path / "ring")) as directory:
        assert directory.path == tmp_path / "ring"


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


def test_a_file_in_place_of_the_ring_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "ring").touch()
    with pytest.raises(RingError, match=f"ring.dir: {tmp_path / 'ring'} cannot be used: File exists; choose a dir"):
        HeldDirectory(tmp_path / "ring")


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
