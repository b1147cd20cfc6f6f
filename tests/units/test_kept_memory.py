"""The daemon reuses the memory of its answers."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

ANSWERS = """
import resource
import numpy as np
from ibpulse.base import limits
limits.keep_freed()
def answer():
    return sum(int(part[-1]) for part in [np.ones(100_000) for _ in range(3)])
answer()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    answer()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.real("process")
def test_later_answers_reuse_the_memory_of_the_first() -> None:
    done = subprocess.run([sys.executable, "-c", ANSWERS], capture_output=True, text=True, check=True)
    # each answer has 2.4 MB
    assert int(done.stdout) * resource.getpagesize() < 1_000_000
