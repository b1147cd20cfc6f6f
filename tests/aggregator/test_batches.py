"""However many seconds are aggregated at a time, the statistics are the same."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ibpulse.core.answers.members import AnswerPart
from ibpulse.workbench.simulate.timeline import Workload
from ibpulse.workbench.simulate.workloads import DENSE, MOE
from tests.flightrecorder.played import IDLE, Act, play

# of these, the step is searched and the resolutions are measured at other seconds
TIMED = (
    *("step_seconds", "step_period_seconds", "step_period_score"),
    *("effective_resolution_seconds", "phases", "seconds"),
)


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """The values of nested parts and sequences, by place."""
    value = vars(value) if isinstance(value, AnswerPart) else value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else None
    if items is None:
        return {name: value}
    return {
        place: found for key, each in items if key not in TIMED for place, found in flat(each, f"{name}/{key}").items()
    }


def acts(workload: Workload) -> tuple[Act, ...]:
    """Silence, a job, the job with a dead rail, and with a slow one; none of them ends with a batch."""
    return (
        Act(IDLE, 7),
        Act(workload, 61),
        Act(workload, 12, flow={1: 0.0}),
        Act(workload, 17, flow={2: 0.4}),
        Act(IDLE, 6),
    )


def differences(one: Any, other: Any) -> dict[str, tuple[Any, Any]]:
    """What differs by more than the last digits, which depend on the order in which samples are added."""
    ours, theirs = flat(asdict(one)), flat(asdict(other))
    assert ours.keys() == theirs.keys()
    return {
        name: (value, theirs[name])
        for name, value in ours.items()
        if value != theirs[name]
        and not (isinstance(value, float) and math.isclose(value, theirs[name], rel_tol=1e-9, abs_tol=1e-9))
    }


@pytest.fixture(scope="module", params=[DENSE, MOE], ids=["dense", "moe"])
def workload(request: pytest.FixtureRequest) -> Workload:
    found: Workload = request.param
    return found


@pytest.fixture(scope="module")
def singly(workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What is found second by second."""
    return list(play(tmp_path_factory.mktemp("one"), *acts(workload)))


@pytest.mark.parametrize("every", [2, 5, 17, 103])
def test_the_size_of_a_batch_changes_nothing(tmp_path: Path, workload: Workload, singly: list[Any], every: int) -> None:
    batches = list(play(tmp_path, *acts(workload), every=every))
    assert len(batches) == -(-103 // every)
    assert differences(batches[-1], singly[-1]) == {}
    seconds = [[second for each in snapshots for second in each.seconds] for snapshots in (batches, singly)]
    assert [len(each) for each in seconds] == [103, 103]
    assert [found for pair in zip(*seconds, strict=True) if (found := differences(*pair))] == []
