"""Damaged recordings, logs, benchmarks and job files are read or refused in a sentence, in little time and memory.

`FUZZ_FILES` says how many, `FUZZ_SEED` which; `make fuzz` opens 120,000.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from ibpulse.base import limits

FILES = int(os.environ.get("FUZZ_FILES", "400"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
# files that one process opens
BATCH = 10_000
# a file has at most 40 kB
MAX_GROWN_BYTES = 200_000_000


@pytest.mark.real("process")
@pytest.mark.timeout(120 + FILES // 10)
def test_a_damaged_file_is_read_or_refused_in_a_sentence() -> None:
    outcomes: Counter[str] = Counter()
    for first in range(0, FILES, BATCH):
        count = min(BATCH, FILES - first)
        command = [sys.executable, "-m", "tests.recordings.damage", str(SEED), str(first), str(count)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **limits.ALLOCATOR}
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        found = json.loads(done.stdout)
        assert found.pop("grown_bytes") < MAX_GROWN_BYTES
        outcomes.update(found)
        sys.stdout.write(f"damaged files of seed {SEED}, up to {first + count}: {dict(outcomes)}\n")
    assert outcomes["read"] + outcomes["refused"] == FILES
    assert outcomes["read"]
