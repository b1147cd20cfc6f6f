"""The live view in a real terminal: drawn, resized, left in every way, and the terminal restored."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ibpulse.workbench.top.screen import ASCII, BLOCKS
from tests.campaigns.live.terminal.panes import Pane, needs_tmux, pane
from tests.running import eventually
from tests.tables import for_each

pytestmark = needs_tmux

SCRIPT = """
import asyncio, sys, time
from ibpulse.base.errors import DaemonError
from ibpulse.workbench.top.driver import Terminal
from tests.terminal.views import view

class Watcher:
    looks = 0
    def prepare(self):
        pass
    def fetch(self, points, wanted_ns):
        self.looks += 1
        if sys.argv[1] == "hang" and self.looks > 1:
            time.sleep(1000)
        if sys.argv[1] == "fault" and self.looks > 1:
            raise RuntimeError("a fault within")
        if sys.argv[1] == "silent":
            raise DaemonError("nobody answers")
        if sys.argv[1] == "lost" and self.looks > 2:
            raise DaemonError("nobody answers")
        return view(8, bin_ns=wanted_ns)

try:
    asyncio.run(Terminal(Watcher(), lambda: "a note of the log \u00e4").run())
except Exception as error:
    print(type(error).__name__, error)
    sys.exit(1)
"""
SPARKLINE = "▁▁·▂▂▃▃▃▄▄▅▅▅▆▆▇▇██ ▁▁▁▂▂▃▃▃▄▄▅▅▅▆▆▇▇██"


def show(how: str) -> list[str]:
    return [sys.executable, "-c", SCRIPT, how]


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Pane]:
    with pane(tmp_path, show("on")) as made:
        made.wait_for("mlx5_7:1", "a note of the log")
        yield made


def is_restored(made: Pane) -> bool:
    words = made.wait_for("ended with", "icanon").split()
    return "-icanon" not in words and "-echo" not in words


def test_it_follows_the_size_of_the_terminal(shown: Pane) -> None:
    shown.resize(120, 30)
    shown.wait_for("last 3.95 s")
    shown.resize(80, 13)
    shown.wait_for("rails 1 to 3 of 8; arrow keys show the others")
    shown.resize(40, 10)
    shown.wait_for("40 x 10 is too small")
    shown.resize(80, 24)
    shown.wait_for("mlx5_7:1", "last 1.95 s")
    shown.keys("Q")
    assert is_restored(shown)


def test_keys_show_the_rails_that_have_no_room(shown: Pane) -> None:
    shown.resize(80, 13)
    shown.wait_for("rails 1 to 3 of 8")
    for keys, seen in (
        ("Down", "rails 2 to 4"),
        ("End", "rails 6 to 8"),
        # it does not go past the end
        ("Down", "rails 6 to 8"),
        ("Up", "rails 5 to 7"),
        ("k", "rails 4 to 6"),
        ("PPage", "rails 1 to 3"),
        ("j", "rails 2 to 4"),
        ("Home", "rails 1 to 3"),
        ("NPage", "rails 6 to 8"),
    ):
        shown.keys(keys)
        shown.wait_for(seen)


def test_plus_and_minus_change_the_time_scale(shown: Pane) -> None:
    shown.wait_for("last 1.95 s, peaks of 50 ms")
    for key, seen in (
        ("-", "last 3.9 s, peaks of 100 ms"),
        ("+", "peaks of 50 ms"),
        ("=", "peaks of 20 ms"),
        ("+", "last 0.39 s, peaks of 10 ms"),
        # there is nothing finer
        ("+", "peaks of 10 ms"),
        ("_", "peaks of 20 ms"),
    ):
        shown.keys(key)
        shown.wait_for(seen)
    shown.keys("-", "-", "-", "-", "-", "-", "-")
    shown.wait_for("last 19.5 s, peaks of 500 ms")


def test_an_escape_is_no_key_and_swallows_none(shown: Pane) -> None:
    shown.keys("Escape")
    shown.keys("q")
    assert is_restored(shown)


def test_ctrl_l_repairs_what_something_else_wrote(shown: Pane) -> None:
    tty = shown.tmux("display-message", "-p", "#{pane_tty}").strip()
    Path(tty).write_text("\x1b[5;1Hsomething else")
    shown.wait_for("something else")
    shown.keys("C-l")
    eventually(lambda: "something else" not in shown.text())
    shown.wait_for("step      314.9 ms")


def end(made: Pane, how: str) -> None:
    if how == "C-c":
        made.keys(how)
    else:
        os.kill(made.child_pid(), signal.Signals[how])


@for_each(["C-c", "SIGTERM", "SIGHUP"])
def test_it_ends_cleanly_on_signals(how: str, tmp_path: Path) -> None:
    (tmp_path / how).mkdir()
    with pane(tmp_path / how, show("on")) as made:
        made.wait_for("mlx5_7:1", "a note of the log")
        end(made, how)
        assert "ended with 0" in made.wait_for("ended with")
        assert is_restored(made)


@for_each(
    [
        ("fault", ("ended with 1", "RuntimeError a fault within")),
        ("lost", ("mlx5_7:1", "s old: nobody answers")),
        ("hang", ("mlx5_7:1",)),
        ("silent", ("nobody answers",)),
    ]
)
def test_whatever_breaks_holds_no_key_up_and_the_terminal_is_put_back(
    how: str, seen: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / how).mkdir()
    with pane(tmp_path / how, show(how)) as made:
        made.wait_for(*seen)
        made.keys("q")
        assert f"ended with {int(how == 'fault')}" in made.wait_for("ended with")
        assert is_restored(made)


@for_each(["vt100", "linux", "xterm-256color"])
def test_it_needs_neither_colours_nor_blocks(term: str, tmp_path: Path) -> None:
    (tmp_path / term).mkdir()
    with pane(tmp_path / term, show("on"), locale="POSIX", TERM=term) as made:
        screen = made.wait_for("mlx5_7:1")
        assert SPARKLINE.translate(str.maketrans(BLOCKS.levels + "·", ASCII.levels + "?")) in screen
        assert "####" in screen
        made.keys("q")
        assert is_restored(made)


@for_each(
    [
        ("no-such-terminal", ('terminal type "no-such-terminal" is unknown', "TERM=xterm-256color")),
        ("dumb", ('terminal type "dumb" cannot position text on its screen; try',)),
    ]
)
def test_a_terminal_that_cannot_be_used_is_named(term: str, said: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / term).mkdir()
    with pane(tmp_path / term, show("on"), TERM=term) as made:
        made.wait_for(*said, "ended with 1")


@for_each([("", True), ("1", False)])
def test_colours_are_left_away_on_request(no_color: str, colours: bool, tmp_path: Path) -> None:
    place = tmp_path / f"colours-{colours}"
    place.mkdir()
    with pane(place, show("on"), NO_COLOR=no_color) as made:
        made.wait_for("mlx5_7:1")
        assert ("\x1b[36m" in made.colours()) is colours


def test_a_stopped_view_goes_on_in_the_size_of_then(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(SCRIPT)
    with pane(tmp_path, ["bash", "--norc", "-i"]) as made:
        made.keys(f"{sys.executable} {script} on", "Enter")
        made.wait_for("mlx5_7:1", "last 1.95 s")
        made.keys("C-z")
        made.wait_for("Stopped")
        # only the shell is notified, not the view
        made.resize(100, 24)
        made.keys("fg", "Enter")
        made.wait_for("mlx5_7:1", "last 2.95 s")
        made.keys("q")
        made.wait_for("Stopped")
        made.keys("exit", "Enter")
        assert is_restored(made)


def test_it_ends_when_the_terminal_is_gone(tmp_path: Path) -> None:
    with pane(tmp_path, show("on")) as made:
        made.wait_for("mlx5_7:1")
        child = made.child_pid()
        made.tmux("kill-server")
        eventually(lambda: not Path(f"/proc/{child}").exists())


def test_it_ends_without_a_signal_when_nobody_is_at_the_other_end(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "PYTHONPATH": "exporter:."}
    # in a session without this terminal, so no signal arrives
    process = subprocess.Popen(show("on"), stdin=theirs, stdout=theirs, start_new_session=True, env=environment)
    os.close(theirs)
    try:
        seen = b""
        while b"mlx5_7:1" not in seen:
            seen += os.read(ours, 10_000)
        os.close(ours)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
