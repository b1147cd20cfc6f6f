"""Source `slurm-cgroup`: the names of the cgroups that Slurm makes for running jobs, readable by every user.

Cgroup v2 has `*.slice/[NODE_]slurmstepd.scope/JOB`, where JOB is `job_N` or, by default from Slurm 26.05 on, a SLUID
such as `s5K1KKYAYG5D00`; v1 has `CONTROLLER/slurm[_NODE]/uid_U/job_N`. Both may be inside a container in which slurmd
runs. They say which jobs run on the node, and not what they hold.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import replace
from pathlib import Path

from ibpulse.agent.jobs.cgroup_names import CONTROLLERS, MAX_SECONDS, Cgroups
from ibpulse.base.text import NAMED_SUBJECTS, escape_controls, first_names, natural_key, split_lines
from ibpulse.core.jobs.claims import ABSENT, SLURM, SLURM_CGROUP, Claim, Found, limit_claims

_SCOPE = re.compile(r"(?:[A-Za-z0-9_.-]{1,200}_)?slurmstepd\.scope", re.ASCII)
_FIRST = re.compile(r"slurm(?:_[A-Za-z0-9_.-]{1,200})?", re.ASCII)
_USER = re.compile(r"uid_[0-9]{1,10}", re.ASCII)
_SLUID = re.compile(r"s[0-9A-Z]{13}", re.ASCII)
_JOB = re.compile(rf"job_[1-9][0-9]{{0,9}}|{_SLUID.pattern}", re.ASCII)
# `system` and `slurmd` are where the programs of Slurm themselves run
_JOB_OR_OWN = re.compile(f"{_JOB.pattern}|system|slurmd", re.ASCII)
_USER_OR_OWN = re.compile(f"{_USER.pattern}|system|slurmd", re.ASCII)
_STEP = re.compile(r"step_[a-z0-9_+]{1,32}", re.ASCII)
# each slurmstepd gives itself a title with its job and step
_TITLE = re.compile(r"slurmstepd: \[([1-9][0-9]{0,9})\.", re.ASCII)
_SCOPE_OR_SERVICE = re.compile(rf"{_SCOPE.pattern}|slurmd(?:@.+)?\.service", re.ASCII)
# the first of the controllers
OF_SLURM = 4
# in one reading
MAX_ASKED = 64
ODD = "{folder}: {names}: not the name of a job, such as job_42 or s5K1KKYAYG5D00; it is not known which jobs run."
NO_PLACE = (
    "slurmd runs on this node, but below {root} it has no cgroup for jobs: set ProctrackType=proctrack/cgroup, or name "
    "the directory that has them in jobs.cgroup."
)


def read_slurm_cgroups(
    root: Path,
    seconds: float = MAX_SECONDS,
    numbers: MutableMapping[str, str] | None = None,
    proc: Path = Path("/proc"),
) -> Found:
    """The running jobs below the root of the cgroups, usually `/sys/fs/cgroup`, read within `seconds` of computing.

    A job whose cgroup has its SLUID gets its number as id where a title in `proc` tells it. `numbers` keeps these from
    one reading to the next, so that a job has one id.
    """
    cgroups = Cgroups(seconds)
    return cgroups.finish(_read(cgroups, root, _Numbers(cgroups, {} if numbers is None else numbers, proc)))


def is_sluid(text: str) -> bool:
    """Whether the id of a job is a SLUID, as in the names of cgroups from Slurm 26.05 on."""
    return _SLUID.fullmatch(text) is not None


def find_scopes(cgroups: Cgroups, root: Path) -> Iterator[Path]:
    """Slurm's cgroups of version 2 below a folder."""
    return filter(_is_scope, cgroups.search(root, _SCOPE))


def _is_scope(path: Path) -> bool:
    return _SCOPE.fullmatch(path.name) is not None and path.parent.name.endswith(".slice")


def has_processes(cgroups: Cgroups, folder: Path) -> bool:
    """Whether a cgroup of version 2 or one below it has processes, or nothing says that they have none."""
    return "populated 0" not in split_lines(cgroups.read(folder, "cgroup.events"))


class _Numbers:
    """The numbers of jobs whose cgroups are named by SLUID."""

    def __init__(self, cgroups: Cgroups, known: MutableMapping[str, str], proc: Path) -> None:
        self._cgroups, self._known, self._proc = cgroups, known, proc
        self._left = MAX_ASKED

    def find(self, folder: Path, name: str) -> str:
        """The number of a job; its SLUID if the number is not known."""
        if not is_sluid(name):
            return name
        if name not in self._known and self._left > 0 and (number := self._ask(folder)):
            self._known[name] = number
        return self._known.get(name, name)

    def forget(self, names: Iterable[str]) -> None:
        """Forget all jobs but these."""
        for name in self._known.keys() - set(names):
            del self._known[name]

    def _ask(self, folder: Path) -> str:
        for step in self._cgroups.matching(folder, _STEP):
            # zero is a process that this container does not see
            pids = [pid for pid in self._cgroups.read(step / "slurm", "cgroup.procs").split() if pid.isdecimal()]
            for pid in filter(int, pids):
                self._left -= 1
                if found := _TITLE.match(self._cgroups.read(self._proc / pid, "cmdline")):
                    return found[1]
                if self._left <= 0:
                    return ""
        return ""


def _read(cgroups: Cgroups, root: Path, numbers: _Numbers) -> Found:
    found = list(cgroups.search(root, _SCOPE_OR_SERVICE))
    scopes = [path for path in found if _is_scope(path)]
    if scopes:
        jobs = [job for scope in scopes for job in cgroups.matching(scope, _JOB) if has_processes(cgroups, job)]
        odd = [path for scope in scopes for path in cgroups.others(scope, _JOB_OR_OWN)]
        return _found(root, jobs, [path for path in odd if has_processes(cgroups, path)], numbers)
    # every controller in use has the same tree
    places = itertools.chain(
        (cgroups.matching(root / controller, _FIRST) for controller in CONTROLLERS),
        (list(cgroups.search(root / controller, _FIRST)) for controller in CONTROLLERS[:OF_SLURM]),
    )
    if first := next(filter(None, places), []):
        users = [user for each in first for user in cgroups.matching(each, _USER)]
        odd = [path for each in first for path in cgroups.others(each, _USER_OR_OWN)]
        odd += [path for user in users for path in cgroups.others(user, _JOB)]
        return _found(root, [job for user in users for job in cgroups.matching(user, _JOB)], odd, numbers)
    if found:
        return Found(remarks=(NO_PLACE.format(root=root),), present=False, knows=False, unread=True)
    return ABSENT


def _found(root: Path, folders: list[Path], odd: list[Path], numbers: _Numbers) -> Found:
    names = {folder: folder.name.removeprefix("job_") for folder in folders}
    ids = dict.fromkeys(numbers.find(folder, name) for folder, name in names.items())
    numbers.forget(names.values())
    limited = limit_claims(str(root), [Claim(job, SLURM, SLURM_CGROUP) for job in sorted(ids, key=natural_key)])
    if not odd:
        return limited
    shown = first_names([escape_controls(path.name) for path in odd], NAMED_SUBJECTS)
    remarks = (*limited.remarks, ODD.format(folder=odd[0].parent, names=shown))
    return replace(limited, remarks=remarks, unread=True)
