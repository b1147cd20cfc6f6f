"""`python -m tools.readme_pictures docs/pictures`: the pictures that README.md has and no other page.

`minute.png` shows one minute as scraped every 15 s and every 10 ms. The traffic is that of the simulated
mixture-of-experts run with an idle rail, exact to the byte: the left half divides the bytes between two scrapes by
15 s, as `rate()` does, and the right half those between two samples by 10 ms. `small-*.png` are the upper parts of
other pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ibpulse.core.arrays import Floats
from ibpulse.workbench.pictures.panels import (
    LARGE,
    SMALL,
    THEMES,
    Axes,
    Colours,
    Figure,
    matplotlib,
    save_figure,
    settings,
)
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import CAPTURED_RAILS, make_workload

WORKLOAD = "moe"
MINUTE_NS, SCRAPE_NS, SAMPLE_NS = 60_000_000_000, 15_000_000_000, 10_000_000
PORTS = 8
LINE_GB = PORTS * 2 * 50.0
"""Eight ports of 400 Gb/s, both directions."""
CLOSE_UP = (20.0, 24.01)
"""Seconds of the minute that the strip below enlarges."""


THEME = "light"
SHOWN = {
    "live": "live-dense-dark.png",
    "fleet": "boards/fleet-dark-1440.png",
    "incident": "heatmap-incident.png",
    "runs": "heatmap-dense-moe.png",
    "top": "top.png",
}
"""The pictures that the README shows small."""
SMALL_WIDTH, SMALL_HEIGHT = 360, 203


def bandwidth(interval_ns: int) -> Floats:
    """GB/s of the node, both directions of all ports, in each interval of the minute."""
    edges = np.arange(0, MINUTE_NS + 1, interval_ns)
    moved = Schedule(make_workload(WORKLOAD), rails=CAPTURED_RAILS).cumulative_bytes(edges).sum(axis=(1, 2))
    return np.asarray(np.diff(moved) / interval_ns, dtype=np.float64)


def draw(colours: Colours) -> Figure:
    """The picture in the colours of a theme."""
    scraped, sampled = bandwidth(SCRAPE_NS), bandwidth(SAMPLE_NS)
    with matplotlib.rc_context(settings(colours)):
        figure = Figure(figsize=(10.0, 5.0), dpi=120, layout="constrained")
        axes = figure.subplot_mosaic([["scraped", "sampled"], ["close", "close"]], height_ratios=(3, 2))
        _fill(axes["scraped"], scraped, SCRAPE_NS, colours.runs[1], colours)
        _fill(axes["sampled"], sampled, SAMPLE_NS, colours.runs[0], colours)
        _fill(axes["close"], sampled, SAMPLE_NS, colours.runs[0], colours)
        steady = f"{scraped.min():.0f} to {scraped.max():.0f} GB/s"
        _title(axes["scraped"], f"Scraped every 15 s: {steady}, steady")
        silent = np.mean(sampled < 0.1)
        _title(axes["sampled"], f"The same minute, every 10 ms: 0 to {sampled.max():.0f} GB/s")
        _title(
            axes["close"],
            f"Four seconds of it: steps and micro-batches. {silent:.0%} of the minute has no traffic at all",
        )
        for name in ("scraped", "sampled"):
            axes[name].set_xlim(0, MINUTE_NS / 1e9)
            axes[name].set_xticks(range(0, 61, 15))
            axes[name].set_xlabel("seconds", fontsize=SMALL)
        axes["close"].set_xlim(*CLOSE_UP)
        axes["close"].set_xlabel("seconds", fontsize=SMALL)
        axes["close"].set_ylabel("GB/s of the node", fontsize=SMALL)
        axes["scraped"].set_ylabel("GB/s of the node", fontsize=SMALL)
    return figure


def _fill(axes: Axes, values: Floats, interval_ns: int, colour: str, colours: Colours) -> None:
    seconds = np.arange(len(values) + 1) * (interval_ns / 1e9)
    axes.stairs(values, seconds, fill=True, color=colour, linewidth=0)
    axes.axhline(LINE_GB, color=colours.faint, linewidth=1, linestyle="--")
    axes.set_ylim(0, LINE_GB * 1.12)
    axes.set_yticks(range(0, int(LINE_GB) + 1, 200))
    axes.spines[["top", "right"]].set_visible(False)
    axes.annotate(
        "line rate",
        (1, LINE_GB),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        fontsize=SMALL,
        ha="right",
        textcoords="offset points",
        color=colours.faint,
    )


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=LARGE - 1)


def make_small(picture: Path, output: Path) -> None:
    """The upper part of a picture, as wide as the README shows it."""
    with Image.open(picture) as whole:
        upper = whole.convert("RGB").crop((0, 0, whole.width, round(whole.width * SMALL_HEIGHT / SMALL_WIDTH)))
        upper.resize((SMALL_WIDTH, SMALL_HEIGHT), Image.Resampling.LANCZOS).save(output, optimize=True)


def main(words: Sequence[str]) -> int:
    """Write the pictures into the directory that the one word names, which has the large ones."""
    pictures = Path(words[0])
    save_figure(draw(THEMES[THEME]), pictures / "minute.png", THEME)
    for name, picture in SHOWN.items():
        make_small(pictures / picture, pictures / f"small-{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
