"""Sections as text and pages, and results as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ibpulse.base.document import Section, render_json, render_page, render_text, wrap

TABLE = Section("Rails", ("rail", "bytes"), [("mlx5_0", "1"), ("mlx5_10", "20")], ["two rails"])


def test_columns_are_aligned_and_indented_below_their_title() -> None:
    assert render_text([TABLE, Section(lines=["the end"])]) == (
        "Rails:\n  rail     bytes\n  mlx5_0       1\n  mlx5_10     20\n  two rails\n\nthe end\n"
    )


def test_columns_align_left_without_trailing_spaces() -> None:
    section = Section("", ("size", "why"), [("1", "a"), ("100", "longer")], left=(1,))
    assert render_text([section]) == "size  why\n   1  a\n 100  longer\n"


def test_rows_beyond_the_limit_are_counted() -> None:
    section = Section("", ("rail",), [("a",), ("b",), ("c",)], limit=1)
    assert render_text([section]) == "rail\na\nand 2 more; --format=json has all\n"


def test_control_characters_of_names_are_escaped() -> None:
    assert "\x1b" not in render_text([Section("\x1b[31mred", ("\x1b",), [("\x1b",)], ["\x1b"])])
    assert "\x1b" not in render_json("version", {"name": "\x1b"})


def test_a_page_escapes_its_sections() -> None:
    hostile = Section("<b>", ("rail",), [("<i>",)], ["<u>"])
    template = Path(__file__).parents[2] / "exporter/ibpulse/workbench/fleet/report.html.j2"
    page = render_page("<s>", template, warnings=["<q>"], abouts=(), findings=(), sections=[TABLE, hostile])
    assert page.count("<table>") == 2
    assert '<tr><th scope="row">mlx5_10</th><td>20</td></tr>' in page
    for tag in ("<b>", "<i>", "<u>", "<s>", "<q>"):
        assert tag not in page


@dataclass
class Point:
    x: float
    y: float


def test_json_has_versions_and_null_for_nan() -> None:
    text = render_json("ibpulse_report_version", {"points": (Point(1.0, float("nan")), Point(float("inf"), 2.0))})
    assert list(json.loads(text)) == ["ibpulse_report_version", "ibpulse_version", "points"]
    assert json.loads(text)["points"] == [{"x": 1.0, "y": None}, {"x": None, "y": 2.0}]


def test_long_sentences_are_wrapped_at_100_characters() -> None:
    lines = wrap("word " * 50, "- ").splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("- word")
    assert all(line.startswith("  word") for line in lines[1:])
