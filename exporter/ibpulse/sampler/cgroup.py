"""How often the kernel throttled this process's cgroup. Reads /proc and the cgroup file system, nothing else."""

from __future__ import annotations

from pathlib import Path


def throttled_periods(root: Path = Path("/")) -> int | None:
    """Periods in which the CPU quota held this cgroup back (cgroup-v2.rst, cpu.stat), None where nobody says."""
    mount = root / "sys/fs/cgroup"
    # in a container the own path may be the host's, while the mount begins at the container's group
    for path in [*_own_groups(root, mount), mount / "cpu.stat", mount / "cpu" / "cpu.stat"]:
        try:
            text = path.read_text()
        except OSError:
            continue
        fields = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
        if "nr_throttled" in fields:
            return int(fields["nr_throttled"])
    return None


def _own_groups(root: Path, mount: Path) -> list[Path]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    groups = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    return [
        mount / ("" if not controllers else "cpu") / path.lstrip("/") / "cpu.stat"
        for _, controllers, path in groups
        if not controllers or "cpu" in controllers.split(",")
    ]
