"""The writing process ends by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.running import eventually


def test_a_writer_ends_by_itself_and_not_for_the_signals_of_a_service() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ibpulse.agent.flightrecorder.writer", "1"], stdin=subprocess.PIPE
    )
    ignored = 1 << signal.SIGTERM - 1 | 1 << signal.SIGINT - 1

    def ignores() -> bool:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        mask = next(line.split()[1] for line in lines if line.startswith("SigIgn"))
        return int(mask, 16) & ignored == ignored

    eventually(ignores)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(30) == -signal.SIGALRM
