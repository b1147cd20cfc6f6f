"""Source `slurm-cgroup`: the names of the cgroups that Slurm makes for running jobs, readable by every user.

Cgroup v2 has `*.slice/[NODE_]slurmstepd.scope/job_N`, v1 `CONTROLLER/slurm[_NODE]/uid_U/job_N`. They say which jobs run
on the node, and not what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ibpulse.jobs.cgroup_names import CONTROLLERS, MOST_SECONDS, Cgroups
from ibpulse.jobs.claims import ABSENT, SLURM, SLURM_CGROUP, Claim, Found, limit_claims

_SLICE = re.compile(r"[A-Za-z0-9_.\\-]{1,200}\.slice", re.ASCII)
_SCOPE = re.compile(r"(?:[A-Za-z0-9_.-]{1,200}_)?slurmstepd\.scope", re.ASCII)
_FIRST = re.compile(r"slurm(?:_[A-Za-z0-9_.-]{1,200})?", re.ASCII)
_USER = re.compile(r"uid_[0-9]{1,10}", re.ASCII)
_JOB = re.compile(r"job_([1-9][0-9]{0,9})", re.ASCII)


def read_slurm_cgroups(root: Path, seconds: float = MOST_SECONDS) -> Found:
    """The running jobs below the root of the cgroups, usually `/sys/fs/cgroup`, read within `seconds` of computing.

    Raises:
        OSError: this process has no descriptor left.
    """
    cgroups = Cgroups(seconds)
    return cgroups.finish(_read(cgroups, root))


def has_processes(cgroups: Cgroups, folder: Path) -> bool:
    """Whether a cgroup of version 2 or one below it has processes, or nothing says that they have none."""
    return "populated 0" not in cgroups.read(folder, "cgroup.events").splitlines()


def _read(cgroups: Cgroups, root: Path) -> Found:
    version_2 = [folder for each in cgroups.list(root, _SLICE) for folder in cgroups.list(each, _SCOPE)]
    if version_2:
        folders = [job for scope in version_2 for job in cgroups.list(scope, _JOB) if has_processes(cgroups, job)]
        return _found(root, folders)
    for controller in CONTROLLERS:
        # every controller in use has the same tree
        first = cgroups.list(root / controller, _FIRST)
        if first:
            return _found(root, [job for each in first for job in _jobs_of_users(cgroups, each)])
    return ABSENT


def _jobs_of_users(cgroups: Cgroups, folder: Path) -> Iterator[Path]:
    for user in cgroups.list(folder, _USER):
        yield from cgroups.list(user, _JOB)


def _found(root: Path, folders: list[Path]) -> Found:
    ids = dict.fromkeys(folder.name.removeprefix("job_") for folder in folders)
    return limit_claims(str(root), [Claim(job, SLURM, SLURM_CGROUP) for job in sorted(ids, key=int)])
