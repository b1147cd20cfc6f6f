"""Pictures of growth: the same for the same values, with each size, cost and unit."""

from __future__ import annotations

from pathlib import Path

from bench.growth_pictures import draw_picture, spread
from bench.report import Panel, Picture, Section, render


def _picture(first: float = 1.0) -> Picture:
    panels = (Panel("memory, MB", {"": [first, 2.0, 4.0]}), Panel("wait, ms", {"p50": [1, 1, 1], "p99": [3, 4, 5]}))
    return Picture("growth-test", "ports", (1, 32, 64), panels)


def test_equal_values_give_equal_files(tmp_path: Path) -> None:
    one, other = (draw_picture(_picture(), tmp_path / name).read_bytes() for name in ("one", "other"))
    assert one == other
    assert draw_picture(_picture(1.5), tmp_path / "changed").read_bytes() != one


def test_a_picture_names_its_sizes_costs_and_units(tmp_path: Path) -> None:
    text = draw_picture(_picture(), tmp_path).read_text()
    for word in ("memory, MB", "wait, ms", "ports", "p50", "p99", ">32<", ">64<"):
        assert word in text


def test_labels_of_close_sizes_are_left_out() -> None:
    assert spread((1, 2, 4, 8, 16, 32, 64)) == [2, 8, 16, 32, 64]
    assert spread((5, 10)) == [5, 10]


def test_the_report_shows_the_picture_of_a_section_and_puts_what_a_node_pays_first() -> None:
    text = render("Title", ["Preface"], [Section("Pays", "-")], [Section("Growth", "-", picture=_picture())])
    assert "![Growth](pictures/growth-test.svg)" in text
    assert text.index("## Pays") < text.index("## Budgets") < text.index("## Growth")
