"""A demo, a recording, and a directory of recordings, made once for all tests of the Python API."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ibpulse.client import DaemonConnection, ask_window
from ibpulse.errors import DaemonError
from ibpulse.recordings import Recording
from tests.running import eventually


@dataclass(frozen=True)
class Places:
    """Where the examples of the docstrings look: the URL of a daemon, a file, and a directory."""

    url: str
    recording: Path
    dataset: Path


def of_node(recording: Recording, host: str) -> Recording:
    """The recording as if another node had made it."""
    return replace(recording, meta=replace(recording.meta, host=host))


@contextmanager
def running_demo(log: Path, *flags: str) -> Iterator[str]:
    """The URL of a demo with two ports that has at least two seconds of samples."""
    command = [sys.executable, "-m", "ibpulse", "demo", "--ports=2", "--web.listen-address=127.0.0.1:0", *flags]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        url = eventually(lambda: _announced(process, log), 60.0)
        eventually(lambda: _is_counting(url), 60.0)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _announced(process: subprocess.Popen[bytes], log: Path) -> str:
    text = log.read_text(errors="replace")
    assert process.poll() is None, text
    found = re.search(r"http://127\.0\.0\.1:\d+", text)
    return found.group() if found else ""


def _is_counting(url: str) -> bool:
    try:
        window = ask_window(DaemonConnection(url), [("last", "2s"), ("statistic", "mean")])
    except DaemonError:
        return False
    # on a busy machine some of them are missing
    return bool(np.isfinite(window.values).any(axis=0)[:50].any())
