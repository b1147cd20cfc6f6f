"""A demo whose simulator ends at once."""

from __future__ import annotations

import subprocess
import sys


def test_a_demo_that_cannot_be_simulated_says_why() -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "ibpulse",
            "demo",
            "--workload=idle",
            "--rate=1GB/s",
            "--web.listen-address=127.0.0.1:0",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert 'workload "idle" has no option "rate' in ended.stderr
    assert "the simulated fabric failed to start; see the message above" in ended.stderr
