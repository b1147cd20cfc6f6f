"""The memory that a command takes for a file that claims, or holds, more than the machine has."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base.limits import ALLOCATOR
from ibpulse.core.recordings import Recording, save_pieces, scan
from tests.recordings.recordings import START_NS, make_meta

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


# all but the clock, which a test cannot wait for, and the sampler, which is a process of its own
RECORDER = """
import sys
from pathlib import Path
import numpy as np
from ibpulse.workbench.recorder.sampler_source import HISTORY_SECONDS
from ibpulse.core.recordings.from_ring import RingFollower
from ibpulse.workbench.recorder.session import Recorder, RecorderOptions
from ibpulse.core.recordings import RecordedPort, RecordingMeta, RecordingWriter
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader

MS = 1_000_000
path = Path(sys.argv[1])
ports = tuple(RecordedPort(f"mlx5_{number}", 1, 50e9) for number in range(8))
meta = RecordingMeta("node7", MS, ports, "record")
ring = RingFile.create(path.with_suffix(".ring"), MS, HISTORY_SECONDS * 1000)
ring.begin_segment(1, 0)
slots = [ring.assign(str(port.id), 4, 1) for port in ports]
now_ns = 0
follower = RingFollower(RingReader(ring), meta, 2, lambda: now_ns)
writer = RecordingWriter(path, meta)
recorder = Recorder(writer, meta, RecorderOptions(600 * 10**9))
words = np.frombuffer(ring.words, dtype=np.uint64)
counters = np.zeros((8, 2, 1))
rng = np.random.default_rng(0)
for first in range(1, 601_000, 500):
    # noise is the worst case: it does not compress
    ticks = np.arange(first, first + 500)
    moved = np.rint(rng.gamma(1, 1.25e6, (8, 2, 500)))
    sums = counters + moved.cumsum(axis=2)
    counters = sums[:, :, -1:]
    for slot, pair in zip(slots, sums, strict=True):
        begin = at.records_at(slot, ring.capacity)
        view = words[begin : begin + ring.capacity * at.RECORD_WORDS].reshape(ring.capacity, at.RECORD_WORDS)
        before = ticks * MS + rng.integers(0, 50_000, 500)
        stamps = [before, before + 1000, before + 2000]
        view[ticks % ring.capacity] = np.stack([*stamps, *pair, ticks | 1 << at.STRIDE_SHIFT], axis=1).astype(np.uint64)
    ring.words[at.lane_at(0) + at.L_TICK] = int(ticks[-1])
    now_ns = int(ticks[-1]) * MS
    recorder.add(follower.read())
assert recorder.done and recorder.progress().kept_ratio == 1
writer.close(*recorder.active_ticks)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.real("process")
def test_ten_minutes_at_a_millisecond_stay_under_150_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    command = [sys.executable, "-c", RECORDER, str(path)]
    child = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **ALLOCATOR})
    assert child.returncode == 0, child.stderr
    assert int(child.stdout) * 1024 < 150e6
    assert sum(piece.ticks for piece in scan(path)) == 600_000
