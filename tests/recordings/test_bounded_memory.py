"""The memory that a command takes for a file that claims, or holds, more than the machine has."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ibpulse.core.recordings import Recording, save_pieces
from tests.recordings.recordings import START_NS, make_meta

GIGABYTE = 10**9
CPUS = os.cpu_count() or 1
# more than the libraries need, less than a report of the file below
LIMIT_BYTES = 800_000_000
TICKS, GROUP_TICKS = 6_000_000, 500_000


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six million equal samples, in less than a megabyte."""
    path, meta = tmp_path_factory.mktemp("bomb") / "equal.parquet", make_meta(1)
    shape = (1, 2, GROUP_TICKS)
    rates, seconds = np.full(shape, 1e9), np.full(shape, 0.01)
    save_pieces(
        path,
        meta,
        (
            Recording(meta, START_NS + first * meta.interval_ns, rates, seconds)
            for first in range(0, TICKS, GROUP_TICKS)
        ),
    )
    assert path.stat().st_size < 1_000_000
    return path


@pytest.mark.real("process")
@pytest.mark.parametrize("words", [("report",), ("render", "--output=a.png")], ids=["report", "render"])
def test_a_small_file_of_many_rows_ends_in_a_sentence(bomb: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))

    done = subprocess.run(
        [sys.executable, "-m", "ibpulse", *words, str(bomb)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=limit,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith("ibpulse: ")
    assert "memory" in done.stderr
