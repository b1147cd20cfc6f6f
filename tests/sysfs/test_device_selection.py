from __future__ import annotations

import pytest

from ibpulse.agent.sysfs.device import Selection, match_port
from ibpulse.core.model import PortId


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("mlx5_0", True),
        ("mlx5_*", True),
        ("mlx5_0:1", True),
        ("mlx5_0:*", True),
        ("*:1", True),
        ("mlx5_[0-3]", True),
        ("mlx5_1", False),
        ("mlx5_0:2", False),
        ("MLX5_0", False),
        ("mlx5", False),
    ],
)
def test_a_pattern_covers_a_port(pattern: str, matches: bool) -> None:
    assert match_port(pattern, PortId("mlx5_0", 1)) is matches


def test_without_patterns_all_is_admitted() -> None:
    assert Selection().admits_device("mlx5_0")
    assert Selection().admits_port(PortId("mlx5_0", 1))


def test_an_include_pattern_leaves_out_the_rest() -> None:
    selection = Selection(include=("mlx5_0:2",))
    assert selection.admits_device("mlx5_0")
    assert not selection.admits_device("mlx5_1")
    assert selection.admits_port(PortId("mlx5_0", 2))
    assert not selection.admits_port(PortId("mlx5_0", 1))


def test_an_exclude_pattern_wins_over_an_include_pattern() -> None:
    assert not Selection(include=("mlx5_*",), exclude=("mlx5_0",)).admits_device("mlx5_0")


def test_a_device_with_one_port_excluded_is_still_admitted() -> None:
    selection = Selection(exclude=("mlx5_0:1",))
    assert selection.admits_device("mlx5_0")
    assert not selection.admits_port(PortId("mlx5_0", 1))
    assert selection.admits_port(PortId("mlx5_0", 2))
