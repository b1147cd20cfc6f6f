"""The predicted traffic of training steps as a picture, next to the measured traffic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ibpulse.core.arrays import Floats
from ibpulse.workbench.models.prediction import StepTimeline
from ibpulse.workbench.pictures import panels
from ibpulse.workbench.pictures.options import PictureOptions

LEFT, RIGHT, TOP, HEIGHT, BOTTOM = 0.75, 0.25, 0.6, 2.6, 0.75
STEPS = 2
TRIED_PHASES = 400
"""Phases of a step that are compared with the measurement."""


@dataclass(frozen=True, slots=True)
class PredictedPicture:
    """Time lines of a prediction, rates of the measured samples in bytes per second (samples,), and texts.

    `measured` is transmit and receive together, and empty without a measurement; `not_drawn` then says why, if there is
    one. `inflation` is the mean of the bytes on the wire per byte of payload.
    """

    title: str
    timelines: Sequence[StepTimeline]
    measured: Floats = field(default_factory=lambda: np.zeros(0))
    sample_seconds: float = 0.01
    measured_name: str = ""
    inflation: float = 1.0
    not_drawn: str = ""


def save_predicted_steps(picture: PredictedPicture, output: Path, options: PictureOptions) -> None:
    """Draw the picture into a PNG or SVG file."""
    panels.save_figure(draw_predicted_steps(picture, options), output, options.theme)


def draw_predicted_steps(picture: PredictedPicture, options: PictureOptions) -> panels.Figure:
    """The area of one reading, or the band between the least and the greatest of several; a line of the measured."""
    colours = panels.THEMES[options.theme]
    with panels.matplotlib.rc_context(panels.settings(colours)):
        page = panels.Page(options.width_inches, TOP + HEIGHT + BOTTOM, options.dpi, colours)
        axes = page.axes(LEFT, TOP, page.width - LEFT - RIGHT, HEIGHT)
        sample = picture.sample_seconds
        count = picture.measured.size or math.ceil(STEPS * picture.timelines[0].period / sample)
        edges: Floats = np.arange(count + 1, dtype=np.float64) * sample
        rows: Floats = np.stack([_fitted(line, edges, picture) for line in picture.timelines]) / 1e9
        _draw_predicted(axes, edges, rows, colours)
        if picture.measured.size:
            axes.stairs(
                picture.measured / 1e9, edges, color=colours.runs[1], linewidth=1.3, label=picture.measured_name
            )
        axes.set_xlim(0, edges[-1])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("time (s)")
        axes.set_ylabel("GB/s, sent and received")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)
        panels.plain(axes)
        page.write(LEFT, 0.12, picture.title, panels.LARGE, weight="bold")
        foot = f"samples of {sample * 1e3:g} ms, node, transmit + receive"
        if picture.measured.size:
            foot += "; the phase of the prediction is the one that fits best"
        if picture.not_drawn:
            foot += f"; {picture.not_drawn}"
        page.lines(LEFT, TOP + HEIGHT + BOTTOM - 0.25, [foot])
    return page.figure


def _draw_predicted(axes: panels.Axes, edges: Floats, rows: Floats, colours: panels.Colours) -> None:
    several = len(rows) > 1
    label = f"predicted, range of {len(rows)} readings" if several else "predicted"
    least = rows.min(axis=0) if several else 0.0
    axes.stairs(rows.max(axis=0), edges, baseline=least, fill=True, color=colours.runs[0], alpha=0.4, label=label)


def _fitted(line: StepTimeline, edges: Floats, picture: PredictedPicture) -> Floats:
    """The samples of a time line, at the phase at which they are nearest to the measured ones: (samples,)."""
    factor = 2 * picture.inflation
    if not picture.measured.size:
        return factor * sample_timeline(line, edges)
    phases = np.arange(TRIED_PHASES) * (line.period / TRIED_PHASES)
    tried = np.stack([factor * sample_timeline(line, edges + phase) for phase in phases])
    return np.asarray(tried[np.square(tried - picture.measured).sum(axis=1).argmin()])


def sample_timeline(line: StepTimeline, edges: Floats) -> Floats:
    """The mean rate between consecutive times, in the units of the time line: (times - 1,)."""
    times = np.array([0.0, *(time for begin, end, _ in line.spans for time in (begin, end)), line.period])
    moved = np.array([part for begin, end, rate in line.spans for part in (0.0, (end - begin) * rate)])
    amounts = np.concatenate(([0.0], np.cumsum(moved), [moved.sum()]))
    whole, rest = np.divmod(edges, line.period)
    return np.asarray(np.diff(whole * amounts[-1] + np.interp(rest, times, amounts)) / np.diff(edges))
