"""Groups of ports that step together: with one owner and one stage, and active at the same times.

The sum over a whole node mixes the pipelines that share it, and then no step has a silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.analysis.steps.runs import silence_level
from ibpulse.arrays import Bools, Floats, Singles

# two ports step together if their active samples correlate this much; those of two pipelines a fifth of a step apart
# do not, and a few ms of lateness do not matter
ALIKE = 0.5


@dataclass(frozen=True, slots=True)
class PortOwner:
    """Whose traffic a port carries: the id of a job and the stage of a pipeline, empty if unknown."""

    job: str = ""
    stage: str = ""


@dataclass(frozen=True, slots=True)
class StepGroup:
    """Ports that step together, by their rows, and their owner."""

    rows: tuple[int, ...]
    owner: PortOwner


def find_groups(rates: Singles, owners: Sequence[PortOwner], idle_below: float) -> list[StepGroup]:
    """The groups of the ports that have traffic: `rates` is (ports, 2, samples), NaN for missing samples.

    A port is active in a sample with a rate above `idle_below`, and above 1 % of its own highest.
    """
    highest = np.fmax.reduce(rates, axis=(1, 2), initial=0.0)
    least = silence_level(highest, idle_below)[:, np.newaxis]
    active = np.fmax(rates[:, 0], rates[:, 1]) > least
    by_owner: dict[PortOwner, list[int]] = {}
    for row in np.flatnonzero(active.any(axis=1)).tolist():
        by_owner.setdefault(owners[row], []).append(row)
    found = []
    for owner, rows in by_owner.items():
        found += [StepGroup(tuple(together), owner) for together in _alike(rows, active[rows])]
    return sorted(found, key=lambda group: group.rows)


def _alike(rows: Sequence[int], active: Bools) -> list[list[int]]:
    """The rows in groups; each row is in that of the first row to which it is alike."""
    likeness = _correlate(active)
    groups: list[list[int]] = []
    for place in range(len(rows)):
        mine = next((group for group in groups if likeness[group[0], place] >= ALIKE), None)
        if mine is None:
            groups.append([place])
        else:
            mine.append(place)
    return [[rows[place] for place in group] for group in groups]


def _correlate(active: Bools) -> Floats:
    """The correlation of each two rows; rows that are active all the time are alike."""
    flags = active.astype(np.float32)
    part = flags.mean(axis=1, dtype=np.float64)
    covariance = (flags @ flags.T).astype(np.float64) / active.shape[1] - np.outer(part, part)
    deviation = np.sqrt(part * (1 - part))
    scale = np.outer(deviation, deviation)
    steady = part == 1
    return np.where(
        np.outer(steady, steady), 1.0, np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0)
    )


def read_stages(labels: Mapping[str, str], device: str) -> str:
    """The stage of a port by the labels of its node: `stage_DEVICE` or else `stage`; empty if neither is given."""
    return labels.get(f"stage_{device}", labels.get("stage", ""))
