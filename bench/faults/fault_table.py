"""Every fault of a campaign, by kind. To add one, add a row to one of the four modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.faults.client_faults import CLIENT_FAULTS
from bench.faults.device_faults import ABSENCES, HANGS, HOSTILE_NAMES, LIES, REFUSALS
from bench.faults.job_faults import JOB_FAULTS
from bench.faults.machine_faults import (
    CLOCK_STEPS,
    DELETIONS,
    FULL_FILE_SYSTEMS,
    MEMORY,
    OTHER_RINGS,
    PROCESSES,
)
from bench.faults.plan import Fault
from bench.faults.testbed import Testbed

KINDS: Mapping[str, tuple[Fault, ...]] = {
    "devices hang or are slow": HANGS,
    "devices return errors or garbage": REFUSALS,
    "counters lie": LIES,
    "links go down and devices vanish": ABSENCES,
    "names turn hostile": HOSTILE_NAMES,
    "file systems fill up": FULL_FILE_SYSTEMS,
    "files are deleted": DELETIONS,
    "rings are of another kind": OTHER_RINGS,
    "memory runs short": MEMORY,
    "processes are killed or stopped": PROCESSES,
    "the wall clock steps": CLOCK_STEPS,
    "clients and nodes misbehave": CLIENT_FAULTS,
    "files of jobs and cgroups misbehave": JOB_FAULTS,
}
FAULTS: tuple[Fault, ...] = tuple(fault for faults in KINDS.values() for fault in faults)


def choose(names: Sequence[str]) -> tuple[Fault, ...]:
    """The faults with these names; all of them without any.

    Raises:
        ValueError: no fault has that name; the message lists the known names.
    """
    known = {fault.name: fault for fault in FAULTS}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f'no fault is called "{unknown[0]}"; known faults: {", ".join(known)}')
    return tuple(known[name] for name in names) if names else FAULTS


def split_possible(faults: Sequence[Fault], testbed: Testbed) -> tuple[list[Fault], dict[str, str]]:
    """The faults that can happen on this machine, and why each other one cannot, by name."""
    reasons = {fault.name: fault.why_not(testbed) for fault in faults}
    return [fault for fault in faults if not reasons[fault.name]], {name: why for name, why in reasons.items() if why}
