"""Small pictures of answers: spans over time, and bars of ports."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ibpulse.api.pictures_of_runs import Picture
from ibpulse.errors import PictureError
from ibpulse.pictures.figure import SMALL, THEMES, Figure, FigureCanvasAgg, matplotlib, settings
from ibpulse.text import escape_controls, moment_text, natural_key
from ibpulse.units import SECOND_NS

THEME = "light"
WIDTH, HEAD, ROW, DPI = 9.0, 1.1, 0.3, 140
# a moment is visible
LEAST_SHARE = 0.003
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A span of wall time in a row; without a begin or an end it reaches the edge of the picture."""

    row: str
    begin_ns: int | None
    end_ns: int | None
    what: str


def draw_timeline(spans: Sequence[TimelineBar], title: str) -> Picture:
    """Rows of spans over time, a colour for each kind.

    Raises:
        PictureError: there is nothing to draw.
    """
    if not spans:
        raise PictureError("there is nothing to draw; ask for a longer time")
    times = [at_ns for span in spans for at_ns in (span.begin_ns, span.end_ns) if at_ns is not None]
    now_ns = time.time_ns()
    first, end = min(times, default=now_ns), max([*times, *([now_ns] if any(s.end_ns is None for s in spans) else [])])
    margin = max(SECOND_NS, (end - first) // 20)
    first, end = first - margin, end + margin
    names = sorted({span.row for span in spans}, key=natural_key)
    kinds = list(dict.fromkeys(span.what for span in spans))
    with matplotlib.rc_context(settings(THEMES[THEME])):
        figure = _figure(HEAD + ROW * len(names))
        axes = figure.add_axes((0.16, 0.45 / figure.get_figheight(), 0.6, 1 - 0.85 / figure.get_figheight()))
        colours = THEMES[THEME].runs
        least = (end - first) / SECOND_NS * LEAST_SHARE
        for kind, what in enumerate(kinds):
            for span in (span for span in spans if span.what == what):
                begin = ((span.begin_ns if span.begin_ns is not None else first) - first) / SECOND_NS
                length = ((span.end_ns if span.end_ns is not None else end) - first) / SECOND_NS - begin
                axes.broken_barh(
                    [(begin + min(0.0, length - least), max(length, least))],
                    (names.index(span.row) - 0.35, 0.7),
                    facecolor=colours[kind % len(colours)],
                    label=escape_controls(what),
                )
        axes.set_xlim(0, (end - first) / SECOND_NS)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_yticks(np.arange(len(names)), [escape_controls(name) for name in names])
        axes.set_xlabel(f"seconds after {moment_text(first)}")
        axes.set_title(title, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        found = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        axes.legend(found.values(), found.keys(), loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=SMALL)
    return Picture(figure, THEME)


def draw_bars(ports: Sequence[Mapping[str, Any]], title: str) -> Picture:
    """The mean of each port in GB/s, transmit and receive, as bars, and its peaks as marks."""
    colours = THEMES[THEME]
    with matplotlib.rc_context(settings(colours)):
        figure = _figure(HEAD + 1.5 * ROW * max(1, len(ports)))
        axes = figure.add_axes((0.13, 0.55 / figure.get_figheight(), 0.84, 1 - 1.0 / figure.get_figheight()))
        for way, direction in enumerate(("transmit", "receive")):
            places = np.arange(len(ports)) + 0.38 * way - 0.19
            means = [port[direction]["mean_bytes_per_second"] or np.nan for port in ports]
            peaks = [port[direction]["peak_bytes_per_second"] or np.nan for port in ports]
            axes.barh(places, np.array(means) / GIGA, 0.36, color=colours.runs[2 * way], label=f"mean, {direction}")
            axes.plot(np.array(peaks) / GIGA, places, "|", ms=8, mew=2, color=colours.text)
        axes.plot([], [], "|", ms=8, mew=2, color=colours.text, label="peak")
        axes.set_yticks(np.arange(len(ports)), [escape_controls(port["port"]) for port in ports])
        axes.set_ylim(len(ports) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.set_xlabel("GB/s")
        axes.set_title(title, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderpad=0.2, borderaxespad=0)
    return Picture(figure, THEME)


def _figure(height: float) -> Figure:
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    FigureCanvasAgg(figure)
    return figure
