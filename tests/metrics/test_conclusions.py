"""The reasons why the numbers of a node cannot be trusted, and the job that saturates it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ibpulse.agent.aggregator.snapshot import Snapshot
from ibpulse.agent.metrics.page import ALONE, UNRELIABLE
from ibpulse.core.jobs import Claim, PlacedJob
from ibpulse.core.model import PortId, SamplerHealth
from tests.exposition.snapshots import node

PORT = ("mlx5_0", "1")
SILENT, HUNG = ("sampler-silent", "", ""), ("hung-device", "mlx5_1", "")
UNREADABLE, SLOW, MISSING = ("unreadable-port", *PORT), ("slow-counters", *PORT), ("missing-samples", "", "")


@pytest.fixture
def healthy(tmp_path: Path) -> Snapshot:
    found = replace(node(tmp_path, 2), health=SamplerHealth(heartbeat_age_seconds=0.1))
    return observed(replace(found, sampler=replace(found.sampler, ticks=30_000, missed_ticks=0)), 1.0)


def observed(snapshot: Snapshot, share: float) -> Snapshot:
    """With this share of the longest window observed."""
    longest = snapshot.node[-1].model_copy(update={"observed_ratio": share})
    return replace(snapshot, node=(*snapshot.node[:-1], longest))


def first_port(snapshot: Snapshot, **members: Any) -> Snapshot:
    return replace(snapshot, ports=(replace(snapshot.ports[0], **members), *snapshot.ports[1:]))


def reasons(snapshot: Snapshot) -> list[tuple[str, ...]]:
    return [labels for labels, _ in UNRELIABLE.items(snapshot)]


@pytest.mark.parametrize(
    ("health", "found"),
    [
        (SamplerHealth(), []),
        (SamplerHealth(heartbeat_age_seconds=9.5), []),
        (SamplerHealth(heartbeat_age_seconds=10.5), [SILENT]),
        (SamplerHealth(quarantined_devices=("mlx5_1",)), [HUNG]),
    ],
)
def test_a_silent_sampler_and_a_hung_device_are_reasons(
    healthy: Snapshot, health: SamplerHealth, found: list[tuple[str, ...]]
) -> None:
    assert reasons(replace(healthy, health=health)) == found
    # they explain missing samples
    assert reasons(replace(observed(healthy, 0.5), health=health)) == (found or [MISSING])


def test_a_port_that_is_not_read_or_changes_seldom_is_named(healthy: Snapshot) -> None:
    interval = {"sampling_interval_seconds": 0.01}
    assert reasons(first_port(healthy, left_alone=True)) == [UNREADABLE]
    assert reasons(first_port(healthy, **interval, effective_resolution_seconds=0.019)) == []
    assert reasons(first_port(healthy, **interval, effective_resolution_seconds=0.021)) == [SLOW]


def test_more_than_a_twentieth_of_the_samples_missing_is_a_reason(healthy: Snapshot) -> None:
    assert reasons(observed(healthy, 0.96)) == []
    assert reasons(observed(healthy, 0.94)) == [MISSING]
    for ticks, found in ((29_999, []), (30_000, [MISSING])):
        # of 10 ms, in a window of five minutes
        young = replace(healthy.sampler, ticks=ticks - 100, missed_ticks=100)
        assert reasons(observed(replace(healthy, sampler=young), 0.5)) == found
    down = [replace(each, port=replace(each.port, active=False)) for each in healthy.ports]
    assert reasons(observed(replace(healthy, ports=tuple(down)), 0.0)) == []


@pytest.mark.parametrize(("jobs", "found"), [((), []), (("7",), ["7"]), (("7", "8"), [])])
def test_saturation_is_that_of_the_only_job(healthy: Snapshot, jobs: tuple[str, ...], found: list[str]) -> None:
    placed = tuple(PlacedJob(Claim(job, "slurm", "file"), (PortId("mlx5_0", 1),), "alone") for job in jobs)
    for saturated in (False, True):
        snapshot = replace(healthy, jobs=placed, traffic=replace(healthy.traffic, moe_saturated=saturated))
        assert [(labels, value) for labels, value in ALONE.items(snapshot)] == [((job,), saturated) for job in found]
