"""How values look: colours that colour-blind people tell apart, thresholds, and words for numbers.

It must not know any metric.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

# Okabe and Ito, "Color Universal Design", 2008
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW, GREY = "#56B4E9", "#CC79A7", "#F0E442", "#999999"
SERIES = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW, GREY)

HEATMAP_SCHEME = "Viridis"


def steps(*levels: tuple[float, str], base: str = BLUE) -> build.ThresholdsConfig:
    """Absolute thresholds: the colour from each level upwards; `base` below the first."""
    first = [model.Threshold(value=None, color=base)]
    rest = [model.Threshold(value=level, color=color) for level, color in levels]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(first + rest)


def by_threshold() -> build.FieldColor:
    """Colours by the thresholds."""
    return build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)


def by_last_value() -> build.FieldColor:
    """Each series by its last value from yellow to blue, so that one that differs from its siblings stands out."""
    return build.FieldColor().mode(model.FieldColorModeId.CONTINUOUS_YL_BL).series_by(model.FieldColorSeriesByMode.LAST)


def fixed(color: str) -> build.FieldColor:
    """One colour."""
    return build.FieldColor().mode(model.FieldColorModeId.FIXED).fixed_color(color)


def fixed_property(color: str) -> model.DynamicConfigValue:
    """One colour, as a property of an override."""
    return model.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": color})


def words(**named: tuple[str, str]) -> list[model.ValueMapping]:
    """Words and colours for whole numbers, named `v0`, `v1`: `v1=("down", VERMILION)`."""
    return texts({name.removeprefix("v"): value for name, value in named.items()})


def texts(named: dict[str, tuple[str, str]]) -> list[model.ValueMapping]:
    """Words and colours for values."""
    results = {
        value: model.ValueMappingResult(text=text, color=color, index=index)
        for index, (value, (text, color)) in enumerate(named.items())
    }
    return [model.ValueMap(options=results)]


YES_IS_BAD = words(v0=("no", BLUE), v1=("yes", VERMILION))
UP = words(v0=("down", VERMILION), v1=("ACTIVE", BLUE))
SIGNATURES = {
    "idle": ("idle", GREY),
    "dense_like": ("dense-like", BLUE),
    "moe_like": ("MoE-like", ORANGE),
    "unknown": ("unknown", SKY),
}
