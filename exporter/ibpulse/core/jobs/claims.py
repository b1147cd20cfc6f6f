"""A job as a source names it, and as it is placed on the ports of the node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ibpulse.core.model import JOB_BASES, JOB_SOURCES, PortId

SLURM, KUBERNETES = "slurm", "kubernetes"
FILE, SLURM_MAP, SLURM_CGROUP, KUBERNETES_CGROUP = SOURCES = JOB_SOURCES

MAX_JOBS = 256
MAX_TEXT = 128
Key = tuple[str, str]
_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_TEXT - 1}}}", re.ASCII)


def is_job_id(text: str) -> bool:
    """Whether a text can be the id of a job: letters, digits, dots, dashes and underscores, at most 128."""
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a source names, and what it holds of the node.

    `gpus` are PCI addresses, `gpu_indexes` numbers in the order of PCI addresses, `devices` RDMA devices. All are empty
    if the source does not say what the job holds.
    """

    id: str
    scheduler: str
    source: str
    name: str = ""
    namespace: str = ""
    gpus: tuple[str, ...] = ()
    gpu_indexes: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """What identifies a job: an id belongs to a scheduler."""
        return self.scheduler, self.id

    @property
    def members(self) -> dict[str, str]:
        """Its texts, as events, `/api/v1/jobs` and reports have them."""
        return {
            "job_id": self.id,
            "scheduler": self.scheduler,
            "source": self.source,
            "name": self.name,
            "namespace": self.namespace,
        }

    @property
    def says_what(self) -> bool:
        """Whether the source says what the job holds."""
        return bool(self.gpus or self.gpu_indexes or self.devices)


@dataclass(frozen=True, slots=True)
class Found:
    """What one reading of a source found.

    `present` says whether the source exists on this node, `knows` whether it can list jobs there: the cgroups of pods
    do not always show them. Jobs may be missing from a reading that is not `whole`: it was given up, or it was `cut`
    short and has the first. One with something `unread` met entries of a form that it does not know, and one of them
    may be a job. `pods` are the UIDs of all pods. `remarks` are sentences for the operator.
    """

    claims: tuple[Claim, ...] = ()
    remarks: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    present: bool = True
    knows: bool = True
    whole: bool = True
    cut: bool = False
    unread: bool = False


ABSENT = Found(present=False, knows=False)
"""The reading of a source that does not exist on this node."""


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A running job and the ports whose traffic is its own, in the order of the node's ports.

    `basis` says how they are known: one of `BASES`, empty if no port is known to be the job's.
    """

    claim: Claim
    ports: tuple[PortId, ...] = ()
    basis: str = ""


ALL_GPUS, SOME_GPUS, DEVICES, ALONE = BASES = JOB_BASES


def limit_claims(place: str, claims: Sequence[Claim], remarks: tuple[str, ...] = ()) -> Found:
    """What was found, at most `MAX_JOBS` jobs of it."""
    more = len(claims) > MAX_JOBS
    if more:
        remarks += (f"{place}: there are more than {MAX_JOBS} jobs; the others are ignored.",)
    return Found(tuple(claims[:MAX_JOBS]), remarks, whole=not more, cut=more, unread=more)
