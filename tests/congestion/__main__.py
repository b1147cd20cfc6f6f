"""`python -m tests.congestion [SCENARIOS]` prints how the signs found on simulated ports compare with the truth."""

from __future__ import annotations

import sys

from tests.congestion.scoring import measure

if __name__ == "__main__":
    for name, cells in measure(*map(int, sys.argv[1:])).items():
        sys.stdout.write(f"{name:48}" + "".join(f"{cell:>9}" for cell in cells) + "\n")
