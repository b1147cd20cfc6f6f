"""Sources `slurm-cgroup` and `kubernetes-cgroup`: jobs by the names of their cgroups, readable by every user."""

from __future__ import annotations

import errno
import itertools
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import replace
from pathlib import Path

from ibpulse.base import owned_files
from ibpulse.base.text import NAMED_SUBJECTS, escape_controls, first_names, natural_key, split_lines
from ibpulse.core.jobs import (
    ABSENT,
    KUBERNETES,
    KUBERNETES_CGROUP,
    MAX_JOBS,
    SLURM,
    SLURM_CGROUP,
    Claim,
    Found,
    limit_claims,
)

# each is a file system of version 1; Slurm uses the first four
CONTROLLERS = ("freezer", "cpuset", "memory", "devices", "rdma", "pids", "cpu,cpuacct", "cpu", "systemd")
# hierarchies of version 1, each with a tree of its own, and a tree of systemd's without controllers
OTHER_TREES = frozenset(
    (*CONTROLLERS, "blkio", "cpuacct", "hugetlb", "misc", "net_cls", "net_cls,net_prio", "net_prio")
)
OTHER_TREES |= {"perf_event", "unified"}
# users make cgroups of any name below theirs
OF_USERS = "user.slice"
MAX_LISTED = 10_000
MAX_DEPTH = 32
MAX_CHOSEN = 1000
MAX_BYTES = 16_384
# of computing; thousands of cgroups take a tenth of it
MAX_SECONDS = 1.0
# what the kernel answers about a cgroup that was removed, or about a file in place of a directory
VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV)
LATE = "{folder}: reading the cgroups takes too long; showing the jobs known before."
MANY = "{folder} has more than {most} entries, which is too many to read; showing the jobs known before."
CLOSED = "{folder} cannot be listed: {reason}; showing the jobs known before."
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
ODD_JOB = "{folder}: {names}: not the name of a job, such as job_42 or s5K1KKYAYG5D00; it is not known which jobs run."
NO_SLURM = (
    "slurmd runs on this node, but below {root} it has no cgroup for jobs: set ProctrackType=proctrack/cgroup, or name "
    "the directory that has them in jobs.cgroup."
)
_OF_KUBELET = "kubepods"
# pods of static manifests have 32 digits, others a UUID, in which systemd's names have underscores
_UID = r"[0-9a-f]{32}|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
# with a colon, a container of the pod: made by a runtime that does not use systemd for a kubelet that does
_POD = re.compile(rf"(?:[A-Za-z0-9_.-]{{1,200}}-)?pod({_UID})(?:\.slice)?(?::[A-Za-z0-9_.-]+)*", re.ASCII)
_LIKE_POD = re.compile(r"[A-Za-z0-9_.-]*kubepods[A-Za-z0-9_.-]*-pod.+|pod[0-9a-f][0-9a-f_-]{7}.*", re.ASCII | re.DOTALL)
_WANTED = re.compile(f"{_POD.pattern}|{_LIKE_POD.pattern}", re.ASCII | re.DOTALL)
_KUBELET = re.compile(r".*(?:kubelet|kubelite)\.service|(?:k3s|rke2|k0s).*\.service", re.ASCII)
_USE = re.compile(r"([A-Za-z0-9_.-]{1,64})(?: hca_(?:handle|object)=[0-9]+)* hca_handle=[1-9]", re.ASCII)
MAX_PODS = 1024
RDMA_FILE = "rdma.current"
ODD_POD = "{folder}: {names}: a pod by its name, but without a UID in it; it is not known whether it is a job."
NO_PODS = "a kubelet runs on this node, but below {root} are no cgroups of pods: name their place in jobs.cgroup."


class Cgroups:
    """One reading of the cgroups; `fault` says what could not be read, so that cgroups may be missing from it."""

    def __init__(self) -> None:
        # the time of this thread, so that a busy machine does not shorten it
        self._deadline = time.thread_time() + MAX_SECONDS
        self.fault = ""

    def matching(self, folder: Path, names: re.Pattern[str]) -> list[Path]:
        """Paths of the directories in a folder with names of this form, in natural order, at most `MAX_CHOSEN`.

        Links are not followed. Empty if the folder cannot be listed.
        """
        found = [name for name in self._list_all(folder) if names.fullmatch(name)]
        if len(found) > MAX_CHOSEN:
            self.give_up(folder, MAX_CHOSEN)
        return [folder / name for name in sorted(found, key=natural_key)[:MAX_CHOSEN]]

    def others(self, folder: Path, names: re.Pattern[str]) -> list[Path]:
        """Paths of the directories in a folder whose names are not of this form, in natural order."""
        found = [name for name in self._list_all(folder) if not names.fullmatch(name)]
        return [folder / name for name in sorted(found, key=natural_key)]

    def search(self, root: Path, names: re.Pattern[str]) -> Iterator[Path]:
        """Paths of all directories below a folder with names of this form, without those below one of them.

        Left out are the cgroups that a user made, and those of sessions.
        """
        owners = {0, os.geteuid(), *(each.st_uid for each in _status(root))}
        pending = deque([(str(root), 0)])
        while pending:
            folder, depth = pending.popleft()
            for name in sorted(self._list_all(folder)):
                path = f"{folder}/{name}"
                if names.fullmatch(name):
                    yield Path(path)
                elif depth == MAX_DEPTH or name == OF_USERS or (depth == 0 and name in OTHER_TREES):
                    continue
                # the kernel counts two links of a directory without others in it
                elif any(each.st_uid in owners and each.st_nlink != 2 for each in _status(path)):
                    pending.append((path, depth + 1))

    def _list_all(self, folder: Path | str) -> list[str]:
        """The names of all directories in a folder; links are not followed."""
        if self._is_late(folder):
            return []
        try:
            with os.scandir(folder) as entries:
                found = [
                    entry.name for entry in itertools.islice(entries, MAX_LISTED) if entry.is_dir(follow_symlinks=False)
                ]
                more = next(entries, None) is not None
        except OSError as error:
            if error.errno not in VANISHED:
                self.fault = self.fault or CLOSED.format(folder=folder, reason=error.strerror)
            return []
        if more:
            self.give_up(folder, MAX_LISTED)
        return found

    def give_up(self, folder: Path | str, most: int) -> None:
        """Note that a folder has more than `most` entries."""
        self.fault = self.fault or MANY.format(folder=folder, most=most)

    def read(self, folder: Path, name: str) -> str:
        """The text of a cgroup's file, at most `MAX_BYTES` of it; empty if it cannot be read."""
        if self._is_late(folder):
            return ""
        try:
            descriptor = owned_files.open_regular(folder / name)
            try:
                return os.read(descriptor, MAX_BYTES).decode(errors="replace")
            finally:
                os.close(descriptor)
        except OSError:
            return ""

    def finish(self, found: Found) -> Found:
        """The findings of a source; a reading that was given up if something could not be read."""
        return Found(remarks=(self.fault,), whole=False) if self.fault else found

    def _is_late(self, folder: Path | str) -> bool:
        late = time.thread_time() > self._deadline
        if late:
            self.fault = self.fault or LATE.format(folder=folder)
        return late


def _status(folder: Path | str) -> tuple[os.stat_result, ...]:
    """The status of a directory; none if it vanished."""
    try:
        return (os.lstat(folder),)
    except OSError:
        return ()


def read_slurm_cgroups(
    root: Path,
    numbers: MutableMapping[str, str] | None = None,
    proc: Path = Path("/proc"),
) -> Found:
    """The running jobs of Slurm below the root of the cgroups, usually `/sys/fs/cgroup`; not what they hold.

    Cgroup v2 has `*.slice/[NODE_]slurmstepd.scope/JOB`, where JOB is `job_N` or, by default from Slurm 26.05 on, a
    SLUID such as `s5K1KKYAYG5D00`; v1 has `CONTROLLER/slurm[_NODE]/uid_U/job_N`. Both may be inside a container in
    which slurmd runs. They are read within `MAX_SECONDS` of computing.

    A job whose cgroup has its SLUID gets its number as id where a title in `proc` tells it. `numbers` keeps these from
    one reading to the next, so that a job has one id.
    """
    cgroups = Cgroups()
    return cgroups.finish(_read_slurm(cgroups, root, _Numbers(cgroups, {} if numbers is None else numbers, proc)))


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


def _read_slurm(cgroups: Cgroups, root: Path, numbers: _Numbers) -> Found:
    found = list(cgroups.search(root, _SCOPE_OR_SERVICE))
    scopes = [path for path in found if _is_scope(path)]
    if scopes:
        jobs = [job for scope in scopes for job in cgroups.matching(scope, _JOB) if has_processes(cgroups, job)]
        odd = [path for scope in scopes for path in cgroups.others(scope, _JOB_OR_OWN)]
        return _claim_jobs(root, jobs, [path for path in odd if has_processes(cgroups, path)], numbers)
    # every controller in use has the same tree
    places = itertools.chain(
        (cgroups.matching(root / controller, _FIRST) for controller in CONTROLLERS),
        (list(cgroups.search(root / controller, _FIRST)) for controller in CONTROLLERS[:OF_SLURM]),
    )
    if first := next(filter(None, places), []):
        users = [user for each in first for user in cgroups.matching(each, _USER)]
        odd = [path for each in first for path in cgroups.others(each, _USER_OR_OWN)]
        odd += [path for user in users for path in cgroups.others(user, _JOB)]
        return _claim_jobs(root, [job for user in users for job in cgroups.matching(user, _JOB)], odd, numbers)
    if found:
        return Found(remarks=(NO_SLURM.format(root=root),), present=False, knows=False, unread=True)
    return ABSENT


def _claim_jobs(root: Path, folders: list[Path], odd: list[Path], numbers: _Numbers) -> Found:
    names = {folder: folder.name.removeprefix("job_") for folder in folders}
    ids = dict.fromkeys(numbers.find(folder, name) for folder, name in names.items())
    numbers.forget(names.values())
    limited = limit_claims(str(root), [Claim(job, SLURM, SLURM_CGROUP) for job in sorted(ids, key=natural_key)])
    if not odd:
        return limited
    shown = first_names([escape_controls(path.name) for path in odd], NAMED_SUBJECTS)
    remarks = (*limited.remarks, ODD_JOB.format(folder=odd[0].parent, names=shown))
    return replace(limited, remarks=remarks, unread=True)


def read_pod_cgroups(root: Path) -> Found:
    """The pods below the root of the cgroups, usually `/sys/fs/cgroup`, read within `MAX_SECONDS` of computing.

    They are below a cgroup of the kubelet, `kubepods`, wherever that is (`--cgroup-root`, a node in a container). The
    names hold UIDs, to be joined with `kube_pod_info`. Where the kernel's `rdma` controller is on, `rdma.current` has
    the number of open handles of each device. Pods that have any are jobs; of the others nothing is known. A pod in
    which Slurm runs is no job: its jobs are those of Slurm.
    """
    cgroups = Cgroups()
    # in version 1, only one controller knows of RDMA
    for base in (root, root / "rdma", *(root / name for name in CONTROLLERS)):
        pods = [path for path in cgroups.search(base, _WANTED) if _OF_KUBELET in str(path.relative_to(base))]
        if pods:
            return cgroups.finish(_claim_pods(cgroups, root, pods))
    remarks = (NO_PODS.format(root=root),) if any(cgroups.search(root, _KUBELET)) else ()
    return cgroups.finish(replace(ABSENT, remarks=remarks))


def _claim_pods(cgroups: Cgroups, root: Path, folders: Iterable[Path]) -> Found:
    devices: dict[str, dict[str, None]] = {}
    odd = []
    knows = False
    for folder in folders:
        match = _POD.fullmatch(folder.name)
        if match is None:
            odd.append(folder)
            continue
        held = devices.setdefault(match[1].replace("_", "-"), {})
        if len(devices) > MAX_PODS:
            cgroups.give_up(root, MAX_PODS)
            break
        use = cgroups.read(folder, RDMA_FILE)
        knows = knows or bool(use)
        names = [found[1] for line in split_lines(use) if (found := _USE.match(line))]
        if names and not any(find_scopes(cgroups, folder)):
            held.update(dict.fromkeys(names))
    claims = [Claim(uid, KUBERNETES, KUBERNETES_CGROUP, devices=tuple(held)) for uid, held in devices.items() if held]
    limited = limit_claims(str(root), claims)
    remarks = limited.remarks
    if odd:
        shown = first_names([escape_controls(path.name) for path in odd], NAMED_SUBJECTS)
        remarks += (ODD_POD.format(folder=odd[0].parent, names=shown),)
    unread = limited.unread or (knows and bool(odd))
    return replace(limited, remarks=remarks, pods=tuple(devices)[:MAX_JOBS], knows=knows, unread=unread)
