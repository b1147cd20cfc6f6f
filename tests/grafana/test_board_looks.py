"""What eyes would notice, as far as the documents tell: titles that fit, colours, legends, empty cells, marks."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.grafana.documents import BOARDS, panels
from tests.tables import for_each
from tools.grafana import colors

# at a width of 1440 pixels: 24 columns in 1408 pixels, of which a panel's frame and buttons take 69
COLUMN, FRAME, CHARACTER = 1408 / 24, 69, 7.6
LIGHT, DARK = "#FFFFFF", "#181B1F"


def every_panel(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return for_each(
        {
            f"{name.removesuffix('.json')}: {panel['title']}": panel
            for name, board in BOARDS.items()
            for panel in panels(board)
            if panel["type"] == kind
        }
    )


def overrides(panel: dict[str, Any], name: str) -> list[Any]:
    """The values of a property in the overrides of a panel."""
    found = [each for rule in panel["fieldConfig"]["overrides"] for each in rule["properties"]]
    return [each["value"] for each in found if each["id"] == name]


def test_a_title_fits_into_its_panel_on_a_small_screen() -> None:
    cut = [
        f"{name}: {panel['title']}"
        for name, board in BOARDS.items()
        for panel in panels(board)
        if len(panel["title"]) * CHARACTER > panel["gridPos"]["w"] * COLUMN - FRAME
    ]
    assert not cut, "\n".join(cut)


@every_panel("state-timeline")
def test_the_colour_of_a_state_is_that_of_its_word(panel: dict[str, Any]) -> None:
    # with colours by threshold, Grafana ignores the mappings of merged values
    assert panel["fieldConfig"]["defaults"]["color"]["mode"] == "fixed"
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    shown = [(each["text"], each["color"]) for each in mapping["options"].values()]
    assert len({text for text, _ in shown}) == len({color for _, color in shown}) == len(shown)


@every_panel("timeseries")
def test_the_lines_of_a_graph_can_be_told_apart(panel: dict[str, Any]) -> None:
    mode = panel["fieldConfig"]["defaults"]["color"]["mode"]
    # one line of its own colour, or the palette; a colour by value is the same for equal values
    assert mode == "palette-classic" or (mode == "fixed" and len(panel["targets"]) == 1)
    by_query = [rule for rule in panel["fieldConfig"]["overrides"] if rule["matcher"]["id"] == "byFrameRefID"]
    given = [json.dumps(prop["value"]) for rule in by_query for prop in rule["properties"] if prop["id"] == "color"]
    assert len(given) == len(set(given))
    if given:
        assert all("{{" not in target["legendFormat"] for target in panel["targets"])


@every_panel("timeseries")
def test_an_axis_of_zeros_is_short(panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    soft = defaults.get("custom", {}).get("axisSoftMax")
    if "targets" in panel and panel["targets"][0]["datasource"]["type"] == "prometheus":
        assert "max" in defaults or soft is not None


@every_panel("timeseries")
def test_a_wide_graph_has_a_legend_with_numbers(panel: dict[str, Any]) -> None:
    legend = panel["options"].get("legend", {})
    if panel["gridPos"]["w"] >= 12 and panel["targets"][0]["datasource"]["type"] == "prometheus":
        assert (legend["displayMode"], legend["placement"]) == ("table", "right")
        assert legend["calcs"]


@every_panel("heatmap")
def test_a_heatmap_shows_weak_bands_and_has_one_direction_in_both_themes(panel: dict[str, Any]) -> None:
    color = panel["options"]["color"]
    if color["mode"] == "opacity":
        assert (color["scale"], color["exponent"]) == ("exponential", 0.5)
    else:
        # rows of series, whose scale is the same everywhere
        assert (color["scale"], color["min"]) == ("linear", 0)
        assert color["max"] > 0


@every_panel("table")
def test_an_empty_cell_has_no_sentence(panel: dict[str, Any]) -> None:
    assert set(overrides(panel, "noValue")) == {"–"}


@every_panel("table")
def test_the_columns_of_a_table_fit(panel: dict[str, Any]) -> None:
    room = panel["gridPos"]["w"] * COLUMN - 24
    widths = {
        rule["matcher"]["options"]: prop["value"]
        for rule in panel["fieldConfig"]["overrides"]
        for prop in rule["properties"]
        if prop["id"] == "custom.width"
    }
    renamed = [step["options"]["renameByName"] for step in panel.get("transformations", ()) if step["id"] == "organize"]
    headings = set(renamed[0].values()) if renamed else {column["text"] for column in panel["targets"][0]["columns"]}
    # a column without a width takes at least 150 pixels
    assert sum(widths.get(heading, 150) for heading in headings) <= room


@every_panel("stat")
def test_a_sparkline_has_room(panel: dict[str, Any]) -> None:
    graph = panel["options"]["graphMode"]
    assert graph == ("area" if panel["gridPos"]["h"] > 4 and not panel["targets"][0].get("instant") else "none")


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def brightness(color: str) -> float:
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return (299 * red + 587 * green + 114 * blue) / 1000


@for_each(
    itertools.product(
        (colors.GOOD_TEXT, colors.NOTICE_TEXT, colors.BAD_TEXT, colors.GREY_TEXT),
        (LIGHT, DARK),
    )
)
def test_a_number_and_its_unit_can_be_read_in_both_themes(color: str, background: str) -> None:
    # the best that one colour can do on both backgrounds is the square root of their contrast
    assert contrast(LIGHT, DARK) ** 0.5 == pytest.approx(4.2, abs=0.05)
    assert contrast(color, background) >= 4.1


@for_each([colors.NOTICE_CELL, colors.BAD_CELL])
def test_the_text_of_a_coloured_cell_can_be_read(color: str) -> None:
    # Grafana's rule for the text on a background
    text = "#202226" if brightness(color) > 180 else "#F7F8FA"
    assert contrast(color, text) >= 4.5


def test_cells_and_numbers_have_those_colours_alone() -> None:
    cells, texts = (
        {colors.NOTICE_CELL, colors.BAD_CELL},
        {colors.GOOD_TEXT, colors.NOTICE_TEXT, colors.BAD_TEXT, colors.GREY_TEXT},
    )
    for board in BOARDS.values():
        for panel in panels(board):
            if panel["type"] == "table":
                marked = re.findall(r'"color": "(#\w+)"', json.dumps(panel["fieldConfig"]["overrides"]))
                headings = overrides(panel, "custom.cellOptions")
                assert not headings or set(marked) <= cells | set(dict(colors.SIGNATURES.values()).values())
            elif panel["type"] == "stat":
                assert set(re.findall(r'"color": "(#\w+)"', json.dumps(panel["fieldConfig"]))) <= texts


@for_each([*BOARDS])
def test_a_board_marks_alerts_captures_and_events(name: str) -> None:
    marks = {each["name"]: each for each in BOARDS[name]["annotations"]["list"]}
    assert list(marks) == ["Alerts", "Captures", "Events"]
    assert marks["Captures"]["useValueForTime"]
    assert marks["Captures"]["expr"].startswith("1000 * ")
