"""Colours, and the words and colours of states. Colour-blind people can distinguish all of them.

The hues are those of Okabe and Ito, "Color Universal Design", 2008. The dark ones are for text and for cells: their
contrast with the background, or with the text that Grafana writes on them, is at least 3 to 1 in both themes.
"""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW, GREY = "#56B4E9", "#CC79A7", "#F0E442", "#999999"
SERIES = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW, GREY)

GOOD_TEXT, NOTICE_TEXT, BAD_TEXT, GREY_TEXT = "#1F83C4", "#A87300", "#CE5A00", "#7C7C7C"
"""Colours of large numbers and their small units: at least 4.1 to 1 in both themes, where 4.17 is possible."""
NOTICE_CELL, BAD_CELL = YELLOW, "#B34700"
"""Colours of table cells; Grafana writes black on the first and white on the second."""


def steps(*levels: tuple[float, str], base: str = GOOD_TEXT) -> build.ThresholdsConfig:
    """Absolute thresholds: the colour from each level upwards; `base` below the first."""
    first = [model.Threshold(value=None, color=base)]
    rest = [model.Threshold(value=level, color=color) for level, color in levels]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(first + rest)


def by_threshold() -> build.FieldColor:
    """Colours by the thresholds."""
    return build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)


def by_series() -> build.FieldColor:
    """A colour for each series, in their order, which is the only mode that distinguishes any number of them."""
    return build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC)


def fixed(color: str) -> build.FieldColor:
    """One colour."""
    return build.FieldColor().mode(model.FieldColorModeId.FIXED).fixed_color(color)


def fixed_property(color: str) -> model.DynamicConfigValue:
    """One colour, as a property of an override."""
    return model.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": color})


def words(**named: tuple[str, str]) -> list[model.ValueMapping]:
    """Words and colours for whole numbers, named `v0`, `v1`: `v1=("down", VERMILION)`."""
    return texts({name.removeprefix("v"): value for name, value in named.items()})


def texts(named: Mapping[str, tuple[str, str]]) -> list[model.ValueMapping]:
    """Words and colours for values."""
    results = {
        value: model.ValueMappingResult(text=text, color=color, index=index)
        for index, (value, (text, color)) in enumerate(named.items())
    }
    return [model.ValueMap(options=results)]


NO_DATA = "no data"
"""Instead of a number; the description of its panel says why: a sentence as wide as a number cannot be read."""
NOTHING = model.SpecialValueMap(
    options=model.DashboardSpecialValueMapOptions(
        match=model.SpecialValueMatch.NULL_AND_NAN, result=model.ValueMappingResult(text=NO_DATA, color=GREY_TEXT)
    )
)
"""Neither good nor bad."""
YES_IS_BAD = words(v0=("no", BLUE), v1=("yes", VERMILION))
UP = words(v0=("down", VERMILION), v1=("ACTIVE", BLUE))
RAIL_STATES = words(v0=("like its siblings", BLUE), v1=("slow", ORANGE), v2=("idle", VERMILION))
SIGNATURES = {
    "idle": ("idle", GREY),
    "dense_like": ("dense-like", BLUE),
    "moe_like": ("MoE-like", ORANGE),
    "unknown": ("unknown", SKY),
}
