"""The memory that a process may take and keeps for reuse."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base import limits

GIGABYTE = 10**9
CPUS = os.cpu_count() or 1
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


def machine(root: Path, available_kb: int, group: str = "", **files: str) -> Path:
    """The files of a machine with that much memory available, and of the process's cgroup."""
    for name, text in {
        "proc/meminfo": f"MemTotal:       99999999 kB\nMemAvailable:    {available_kb} kB\nHugePages_Total: 0\n",
        "proc/self/cgroup": group,
        **files,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_three_quarters_of_the_available_memory_can_be_spared(tmp_path: Path) -> None:
    assert limits.spare_bytes(machine(tmp_path, 4_000_000)) == 3_072_000_000
    assert limits.spare_bytes(machine(tmp_path / "full", 0)) == 0
    assert limits.spare_bytes(tmp_path / "unknown") > 2**60


@pytest.mark.parametrize("inside", [False, True], ids=["on the host", "in a container"])
def test_the_cgroup_limit_excludes_droppable_cache(tmp_path: Path, inside: bool) -> None:
    folder = "sys/fs/cgroup/" + ("" if inside else "system.slice/pod7/")
    files = {
        f"{folder}memory.max": "1000000000\n",
        f"{folder}memory.current": "500000000\n",
        f"{folder}memory.stat": "anon 200000000\ninactive_file 100000000\n",
    }
    # in a container, the path may be that on the host
    root = machine(tmp_path, 4_000_000, "0::/system.slice/pod7/app\n", **files)
    assert limits.spare_bytes(root) == 450_000_000


def test_the_limit_of_a_cgroup_of_version_1_counts(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory/docker/7"
    files = {
        f"{folder}/memory.limit_in_bytes": "1000000000\n",
        f"{folder}/memory.usage_in_bytes": "600000000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "9000000000\n",
    }
    root = machine(tmp_path, 4_000_000, "4:memory:/docker/7\n1:cpu:/docker/8\n0::/\n", **files)
    assert limits.spare_bytes(root) == 300_000_000


def test_memory_left_includes_the_cgroups_cache(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/system.slice/pod7/"
    files = {
        f"{folder}memory.max": "1000000000\n",
        f"{folder}memory.current": "900000000\n",
        f"{folder}memory.stat": "anon 200000000\ninactive_file 100000000\nactive_file 50000000\nshmem 400000000\n",
    }
    assert limits.left_in_cgroups(machine(tmp_path, 4_000_000, "0::/system.slice/pod7\n", **files)) == 250_000_000
    assert limits.left_in_cgroups(machine(tmp_path / "free", 4_000_000, "0::/\n")) is None


def test_the_memory_bound_holds_only_inside_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "spare_bytes", lambda: 100_000_000)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limits.bounded():
        assert np.ones(50_000_000, np.uint8).all()
        with pytest.raises(MemoryError):
            np.ones(limits.LIBRARIES_BYTES + limits.THREAD_BYTES * CPUS + GIGABYTE, np.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
