"""Source `kubernetes-cgroup`: the pods of the node by the names of their cgroups, readable by every user.

The names hold UIDs, to be joined with `kube_pod_info`. Where the kernel's `rdma` controller is on, `rdma.current`
counts the open handles of each device. Pods that have any are jobs; of the others nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ibpulse.jobs.cgroup_names import CONTROLLERS, MOST_SECONDS, Cgroups
from ibpulse.jobs.claims import ABSENT, KUBERNETES, KUBERNETES_CGROUP, MOST_JOBS, Claim, Found, limit_claims

# with systemd, with cgroupfs, and both below a kubelet that has a cgroup of its own
_FIRST = re.compile(r"kubepods(?:\.slice)?|kubelet(?:\.slice)?", re.ASCII)
_OF_KUBELET = re.compile(r"kubepods|kubelet-kubepods\.slice", re.ASCII)
_CLASS = re.compile(r"(?:kubelet-)?(?:kubepods-)?(?:burstable|besteffort|guaranteed)(?:\.slice)?", re.ASCII)
# pods of static manifests have 32 digits, others a UUID, in which systemd's names have underscores
_UID = r"[0-9a-f]{32}|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_POD = re.compile(rf"(?:[a-z-]{{1,64}}-)?pod({_UID})(?:\.slice)?", re.ASCII)
_USE = re.compile(r"([A-Za-z0-9_.-]{1,64})(?: hca_(?:handle|object)=[0-9]+)* hca_handle=[1-9]", re.ASCII)
RDMA_FILE = "rdma.current"


def read_pod_cgroups(root: Path, seconds: float = MOST_SECONDS) -> Found:
    """The pods below the root of the cgroups, usually `/sys/fs/cgroup`, read within `seconds` of computing.

    Raises:
        OSError: this process has no descriptor left.
    """
    cgroups = Cgroups(seconds)
    # in version 1, only one controller knows of RDMA
    for base in (root, root / "rdma", *(root / name for name in CONTROLLERS)):
        roots = list(_list_roots(cgroups, base))
        if roots:
            return cgroups.finish(_found(cgroups, root, [pod for each in roots for pod in _list_pods(cgroups, each)]))
    return cgroups.finish(ABSENT)


def _list_roots(cgroups: Cgroups, base: Path) -> Iterator[Path]:
    for folder in cgroups.list(base, _FIRST):
        if folder.name.startswith("kubelet"):
            yield from cgroups.list(folder, _OF_KUBELET)
        else:
            yield folder


def _list_pods(cgroups: Cgroups, root: Path) -> Iterator[Path]:
    for folder in (root, *cgroups.list(root, _CLASS)):
        yield from cgroups.list(folder, _POD)


def _found(cgroups: Cgroups, root: Path, folders: list[Path]) -> Found:
    claims: list[Claim] = []
    pods: dict[str, None] = {}
    knows = False
    for folder in folders[: 4 * MOST_JOBS]:
        match = _POD.fullmatch(folder.name)
        assert match is not None
        uid = match[1].replace("_", "-")
        pods[uid] = None
        use = cgroups.read(folder, RDMA_FILE)
        knows = knows or bool(use)
        devices = tuple(found[1] for line in use.splitlines() if (found := _USE.match(line)))
        if devices:
            claims.append(Claim(uid, KUBERNETES, KUBERNETES_CGROUP, devices=devices))
    limited = limit_claims(str(root), claims)
    return Found(limited.claims, limited.remarks, tuple(pods)[:MOST_JOBS], knows=knows)
