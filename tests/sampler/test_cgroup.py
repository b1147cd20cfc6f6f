"""Throttled periods, on trees that look like the machines they were copied from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ibpulse.agent.sampler.kernel import quota_cpus, throttled_periods
from ibpulse.base.limits import left_in_cgroups

V2 = "usage_usec 5300\nuser_usec 3000\nnr_periods 40\nnr_throttled 7\nthrottled_usec 812\n"
V1 = "nr_periods 40\nnr_throttled 9\nthrottled_time 812\n"
V2_ROOT = "usage_usec 5300\nuser_usec 3000\nsystem_usec 2300\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/kubepods/pod1\n", "sys/fs/cgroup/kubepods/pod1/cpu.stat": V2}, 7),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": V2}, 7),
        # the host's path in a container that sees its own group as the root
        ({"proc/self/cgroup": "0::/kubepods/pod1\n", "sys/fs/cgroup/cpu.stat": V2}, 7),
        ({"proc/self/cgroup": "3:cpu,cpuacct:/a:b\n0::/x\n", "sys/fs/cgroup/cpu/a:b/cpu.stat": V1}, 9),
        ({"proc/self/cgroup": "5:memory:/m\n3:cpuacct,cpu:/docker/1\n", "sys/fs/cgroup/cpu/cpu.stat": V1}, 9),
        # the root group of version 2 has no quota
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": V2_ROOT}, None),
        ({"proc/self/cgroup": "2:cpuacct:/a\n", "sys/fs/cgroup/cpuacct/a/cpu.stat": V1}, None),
        ({"proc/self/cgroup": "rubbish\n"}, None),
        ({"sys/fs/cgroup/cpu.stat": V2}, 7),
        ({}, None),
    ],
)
def test_throttled_periods_are_those_of_the_own_group(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    assert throttled_periods(write(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/kubepods/pod1\n", "sys/fs/cgroup/kubepods/pod1/cpu.max": "20000 100000\n"}, 0.2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, float("inf")),
        # the quota of a group above holds back those below it
        (
            {
                "proc/self/cgroup": "0::/slice/unit\n",
                "sys/fs/cgroup/slice/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/slice/unit/cpu.max": "max 100000\n",
            },
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/docker/1\n",
                "sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        # a container that sees its own group as the root
        ({"proc/self/cgroup": "0::/kubepods/pod1\n", "sys/fs/cgroup/cpu.max": "20000 100000\n"}, 0.2),
        # the root group of version 2 has no such file
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": V2_ROOT}, None),
        ({}, None),
    ],
)
def test_the_quota_is_the_least_of_the_group_and_of_those_above(
    tmp_path: Path, files: dict[str, str], expected: float | None
) -> None:
    assert quota_cpus(write(tmp_path, files)) == expected


def test_a_group_may_have_any_name(tmp_path: Path) -> None:
    for number, name in enumerate((b"a\x0cb", "a\u2028b".encode(), b"a\rb", b"a\xffb")):
        root = tmp_path / str(number)
        write(root, {"proc/self/cgroup": "", "sys/fs/cgroup/cpu.stat": V2_ROOT})
        (root / "proc/self/cgroup").write_bytes(b"0::/" + name + b"\n")
        group = root / "sys/fs/cgroup" / os.fsdecode(name)
        write(group, {"cpu.max": "20000 100000\n", "cpu.stat": V2, "memory.max": "500\n", "memory.current": "100\n"})
        assert (quota_cpus(root), throttled_periods(root), left_in_cgroups(root)) == (0.2, 7, 400)


def test_the_group_of_another_process_can_be_asked(tmp_path: Path) -> None:
    files = {
        "proc/7/cgroup": "0::/a\n",
        "sys/fs/cgroup/a/cpu.max": "30000 100000\n",
        "sys/fs/cgroup/a/cpu.stat": V2,
    }
    write(tmp_path, files)
    assert quota_cpus(tmp_path, "7") == 0.3
    assert throttled_periods(tmp_path, "7") == 7
    assert quota_cpus(tmp_path) is None
