"""Source `kubernetes-cgroup`: the pods of the node by the names of their cgroups, readable by every user.

They are below a cgroup of the kubelet, `kubepods`, wherever that is (`--cgroup-root`, a node in a container). The names
hold UIDs, to be joined with `kube_pod_info`. Where the kernel's `rdma` controller is on, `rdma.current` counts the open
handles of each device. Pods that have any are jobs; of the others nothing is known. A pod in which Slurm runs is no
job: its jobs are those of Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ibpulse.agent.jobs.cgroup_names import CONTROLLERS, MAX_SECONDS, Cgroups
from ibpulse.agent.jobs.slurm_cgroups import find_scopes
from ibpulse.base.text import NAMED_SUBJECTS, escape_controls, first_names, split_lines
from ibpulse.core.jobs.claims import ABSENT, KUBERNETES, KUBERNETES_CGROUP, MAX_JOBS, Claim, Found, limit_claims

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
ODD = "{folder}: {names}: a pod by its name, but without a UID in it; it is not known whether it is a job."
NO_PLACE = "a kubelet runs on this node, but below {root} are no cgroups of pods: name their place in jobs.cgroup."


def read_pod_cgroups(root: Path, seconds: float = MAX_SECONDS) -> Found:
    """The pods below the root of the cgroups, usually `/sys/fs/cgroup`, read within `seconds` of computing."""
    cgroups = Cgroups(seconds)
    # in version 1, only one controller knows of RDMA
    for base in (root, root / "rdma", *(root / name for name in CONTROLLERS)):
        pods = [path for path in cgroups.search(base, _WANTED) if _OF_KUBELET in str(path.relative_to(base))]
        if pods:
            return cgroups.finish(_found(cgroups, root, pods))
    remarks = (NO_PLACE.format(root=root),) if any(cgroups.search(root, _KUBELET)) else ()
    return cgroups.finish(replace(ABSENT, remarks=remarks))


def _found(cgroups: Cgroups, root: Path, folders: Iterable[Path]) -> Found:
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
        remarks += (ODD.format(folder=odd[0].parent, names=shown),)
    unread = limited.unread or (knows and bool(odd))
    return replace(limited, remarks=remarks, pods=tuple(devices)[:MAX_JOBS], knows=knows, unread=unread)
