"""A real terminal for the tests: tmux with one pane, keys sent to it, its screen read."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

TMUX = shutil.which("tmux")
needs_tmux = pytest.mark.needs("tmux")


@dataclass
class Pane:
    """The only pane of a separate tmux server."""

    socket: Path

    def tmux(self, *words: str) -> str:
        assert TMUX
        command = [TMUX, "-S", str(self.socket), "-f", "/dev/null", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout

    def text(self) -> str:
        return self.tmux("capture-pane", "-p")

    def colours(self) -> str:
        """The screen with its escape sequences."""
        return self.tmux("capture-pane", "-p", "-e")

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def wait_for(self, *texts: str, seconds: float = 30.0) -> str:
        """The screen once it shows all of these."""
        deadline = time.monotonic() + seconds
        while not all(text in (seen := self.text()) for text in texts):
            assert time.monotonic() < deadline, f"{texts} is not on the screen:\n{seen}"
            time.sleep(0.05)
        return seen

    def child_pid(self) -> int:
        """The process that the pane's shell runs."""
        shell = self.tmux("display-message", "-p", "#{pane_pid}").strip()
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])


@contextmanager
def pane(directory: Path, words: Sequence[str], locale: str = "C.UTF-8", **changed: str) -> Iterator[Pane]:
    """A terminal of 80 by 24 that runs a command, then prints its exit code and whether the terminal echoes.

    `changed` are variables of its environment.
    """
    made = Pane(directory / "tmux")
    variables = {"LC_ALL": locale, "PYTHONPATH": os.pathsep.join(["exporter", "."]), "NO_COLOR": "", **changed}
    command = shlex.join(["env", *(f"{name}={value}" for name, value in variables.items()), *words])
    # Ctrl-C goes to the shell too
    script = f"trap : INT; {command}; echo \"ended with $?\"; stty -a | grep -ow -e '-\\?echo' -e '-\\?icanon'; cat"
    made.tmux("-u", "new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", script)
    try:
        yield made
    finally:
        subprocess.run([str(TMUX), "-S", str(made.socket), "kill-server"], check=False)
