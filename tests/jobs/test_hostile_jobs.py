"""Hostile job files, mapping files and cgroups end in sentences, in bounded time and memory, and harm no other job.

`FUZZ_FILES` says how many, at most 10,000, and `FUZZ_SEED` which; `make fuzz` reads all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

THINGS = min(int(os.environ.get("FUZZ_FILES", "200")), 10_000)
SEED = int(os.environ.get("FUZZ_SEED", "0"))
# a node has 20 things of at most 20 kB
MAX_GROWN_BYTES = 50_000_000


@pytest.mark.timeout(120 + THINGS // 10)
@pytest.mark.real("process")
def test_hostile_job_files_and_cgroups_do_no_harm() -> None:
    command = [sys.executable, "-m", "tests.jobs.hostile_nodes", str(SEED), "0", str(THINGS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found = json.loads(done.stdout)
    sys.stdout.write(f"hostile job files and cgroups of seed {SEED}: {found}\n")
    assert found.pop("grown_bytes") < MAX_GROWN_BYTES
    # three good ones on each node of 20 things
    assert found.pop("jobs") >= 3 * THINGS // 20
    assert sum(found.values()) == THINGS // 20 * 20
    assert len(found) == 4
