"""The plan as a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ibpulse.agent.sampler.plan import Plan, PlannedPort, PlannedSignals, read_plan, write_plan
from ibpulse.base.errors import SamplerError

PLAN = Plan(
    3,
    1234,
    "fifo",
    2,
    (
        PlannedPort(1, "mlx5_1", ("/a", "/b"), ("/c",), 5),
        PlannedPort(0, "mlx5_0", ("/d",), ("/e",)),
        PlannedPort(2, "mlx5_1", ("/f",), ("/g",), signals=PlannedSignals(0, ("/s",), 1, 1, "/refresh")),
    ),
    10,
)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan-0.json", PLAN)
    assert read_plan(tmp_path / "plan-0.json") == PLAN
    assert [path.name for path in tmp_path.iterdir()] == ["plan-0.json"]


def fill(folder: Path) -> None:
    """Leave no space on the file system."""
    with (folder / "filler").open("wb", buffering=0) as file:
        while shutil.disk_usage(folder).free:
            file.write(bytes(4096))


@pytest.mark.real("process")
def test_on_a_full_file_system_a_plan_takes_the_space_of_the_old_one(tiny_tmpfs: Path) -> None:
    path = tiny_tmpfs / "plan-0.json"
    write_plan(path, PLAN)
    fill(tiny_tmpfs)
    later = PLAN._replace(generation=4, ports=PLAN.ports[:1])
    write_plan(path, later)
    assert read_plan(path) == later
    assert sorted(file.name for file in tiny_tmpfs.iterdir()) == ["filler", "plan-0.json"]


@pytest.mark.real("process")
def test_on_a_full_file_system_a_plan_that_needs_more_space_leaves_the_old_one(tiny_tmpfs: Path) -> None:
    path = tiny_tmpfs / "plan-0.json"
    write_plan(path, PLAN)
    fill(tiny_tmpfs)
    ports = tuple(PlannedPort(slot, f"mlx5_{slot}", ("/transmit",), ("/receive",)) for slot in range(100))
    with pytest.raises(OSError, match="No space left"):
        write_plan(path, PLAN._replace(ports=ports))
    assert read_plan(path) == PLAN


def test_devices_are_listed_once_each_in_the_order_of_the_ports() -> None:
    assert PLAN.devices() == ("mlx5_1", "mlx5_0")


@pytest.mark.parametrize(
    "text", ["1", "[]", "{}", '{"ports": [{"slot": 1}]}', '{"ports": [], "generation": 1, "new": 2}']
)
def test_a_plan_of_another_version_is_refused_with_the_way_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan-0.json"
    path.write_text(text)
    with pytest.raises(
        SamplerError, match=rf"plan {path} was written by a different version of ibpulse \(.+\); restart"
    ):
        read_plan(path)
