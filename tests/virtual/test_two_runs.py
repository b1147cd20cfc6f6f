"""The same scenario twice says the same, byte for byte: metrics, windows, events, jobs and captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.virtual.node import Node
from tests.virtual.scenarios import SCENARIOS, Scenario

FLAGS = (
    "--slow.interval=1s",
    "--jobs.owners-dir={}",
    "--capture.allow-unauthenticated=true",
    "--capture.rules=rail-lost",
)


def play(folder: Path, scenario: Scenario) -> dict[str, bytes]:
    owners = folder / "owners"
    owners.mkdir(parents=True, mode=0o755)
    flags = [flag.format(owners) for flag in FLAGS]
    with Node(folder, *flags, rails=4, workload=SCENARIOS[scenario]) as node:
        node.run(3)
        scenario(node)
        return node.said()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_two_runs_say_the_same(folder: Path, scenario: Scenario) -> None:
    first, second = (play(folder / name, scenario) for name in ("first", "second"))
    assert first["metrics"].count(b"\n") > 500
    assert [name for name in first if first[name] != second.get(name)] == []
    assert len(first) == len(second)
