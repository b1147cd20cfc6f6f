"""A wing that grows by more than a tenth is named, and so is a file that is too long."""

from __future__ import annotations

from tools.wings import COMMITTED, Size, find_faults, find_long_files, measure


def test_a_wing_may_grow_by_a_tenth() -> None:
    committed = {"base": (1000, 500), "core": (1000, 500)}
    sizes = {"base": Size(9, 1100, 550), "core": Size(9, 1101, 551)}
    assert list(find_faults(sizes, committed)) == [
        "core has 1101 lines, more than a tenth above the 1000 of its row in tools/wings.py",
        "core has 551 statements, more than a tenth above the 500 of its row in tools/wings.py",
    ]


def test_no_wing_and_no_file_is_too_large() -> None:
    assert measure().keys() == COMMITTED.keys()
    assert [*find_faults(measure()), *find_long_files()] == []
