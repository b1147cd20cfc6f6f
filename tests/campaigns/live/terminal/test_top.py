"""`ibpulse top` as typed: with a daemon, alone, and the choice between the two."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.commands.top import NOTE_SECONDS, Notes, find_daemon, is_alone
from ibpulse.config.setting_types import ListenAddress
from ibpulse.errors import ConfigError, DaemonError
from tests.campaigns.live.terminal.panes import needs_tmux, pane
from tests.client.servers import canned
from tests.fabrics import simulated
from tests.running import Running, eventually

TOP = [sys.executable, "-m", "ibpulse", "top"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with simulated(tmp_path_factory.mktemp("fabric"), "dense", ports=3) as made:
        yield made


@needs_tmux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_alone_it_samples_and_leaves_nothing_behind(tree: Path, tmp_path: Path, number: int) -> None:
    mine = tmp_path / "memory"
    mine.mkdir()
    # not in shared memory, so that leftovers can be told from other programs' files
    words = [*TOP, f"--path.sysfs={tree}"]
    with pane(tmp_path, words) as made:
        screen = made.wait_for("mlx5_2:1", "duty cycle")
        assert "sampled here" in screen.splitlines()[0]
        pid = made.child_pid()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert len(children) == 1
        rings = {link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir() if link.readlink().name == "ring"}
        assert len(rings) == 1
        os.kill(pid, number)
        assert "ended with 0" in made.wait_for("ended with")
        eventually(lambda: not any(Path("/proc", child).exists() for child in children))
        assert not any(ring.parent.exists() for ring in rings)


@needs_tmux
def test_without_a_word_it_looks_at_the_daemon_of_this_node(tree: Path, tmp_path: Path) -> None:
    with Running(tree, tmp_path / "ring") as running:
        address = running.url.removeprefix("http://")
        with pane(tmp_path, [*TOP, f"--web.listen-address={address}"]) as made:
            assert running.url in made.wait_for("mlx5_2:1", "duty cycle").splitlines()[0]
            running.stop()
            made.wait_for("does not answer: Connection refused")
            made.keys("q")
            assert "ended with 0" in made.wait_for("ended with")


@pytest.mark.parametrize(
    ("asked", "origins", "alone"),
    [
        (False, {"sampler.interval": "default", "web.listen-address": "flag --web.listen-address"}, False),
        # settings from a file or the environment are meant for the daemon
        (False, {"path.sysfs": "environment variable IBPULSE_PATH__SYSFS"}, False),
        (False, {"sampler.interval": "flag --sampler.interval"}, True),
        (False, {"ports.exclude": "flag --ports.exclude"}, True),
        (False, {"path.sysfs": "flag --path.sysfs"}, True),
        (True, {}, True),
    ],
)
def test_flags_of_sampling_ask_for_samples_of_ones_own(asked: bool, origins: dict[str, str], alone: bool) -> None:
    assert is_alone(None, asked, origins) is alone
    if alone:
        flag = "--alone" if asked else f"--{next(iter(origins))}"
        with pytest.raises(ConfigError, match=rf"^flag {flag}: cannot be combined with --url=http://a, which shows"):
            is_alone("http://a", asked, origins)
    else:
        assert not is_alone("http://a", asked, origins)


def test_a_daemon_that_wants_a_password_is_not_passed_over() -> None:
    with canned() as server:
        address = ListenAddress("127.0.0.1", int(server.url.rpartition(":")[2]))
        # another service answers: this node has no daemon
        assert find_daemon(None, address) is None
        server.answer("/api/v1/ports", b'{"detail": "A password is needed."}', 401)
        with pytest.raises(
            DaemonError,
            match=r"responded with 401: A password is needed; pass the user name and password in the URL, such as ",
        ):
            find_daemon(None, address)
        server.answer("/api/v1/ports", b"", 403)
        with pytest.raises(DaemonError, match="responded with 403"):
            find_daemon(None, address._replace(host=""))


def test_a_daemon_that_is_named_must_answer() -> None:
    with pytest.raises(DaemonError, match=r"^http://127.0.0.1:1 does not answer: Connection refused; is `ibpulse"):
        find_daemon("http://127.0.0.1:1", ListenAddress("", 1))
    assert find_daemon(None, ListenAddress("::", 1)) is None


OWN_SAMPLES = """
import asyncio, sys
from ibpulse.commands import top
from ibpulse.config import load
from ibpulse.terminal.driver import Terminal
from ibpulse.units import SECOND_NS

async def look():
    async with top.watch_node(load({"path.sysfs": [sys.argv[1]]}, {})) as watcher:
        return watcher.fetch(1, SECOND_NS)

print(len(asyncio.run(look()).rails))
print(sorted({"fastapi", "starlette", "uvicorn", "uvloop", "prometheus_client", "pyarrow"} & set(sys.modules)))
"""


def test_sampling_by_itself_it_loads_no_web_server(tree: Path) -> None:
    words = [sys.executable, "-c", OWN_SAMPLES, str(tree)]
    assert subprocess.check_output(words, text=True) == "3\n[]\n"


def test_a_log_message_is_shown_for_half_a_minute() -> None:
    notes = Notes()
    assert notes.last() == ""
    record = logging.LogRecord("ibpulse", logging.WARNING, "", 0, "it is late", None, None)
    notes.emit(record)
    assert notes.last().endswith(" it is late")
    record.created -= NOTE_SECONDS
    notes.emit(record)
    assert notes.last() == ""
