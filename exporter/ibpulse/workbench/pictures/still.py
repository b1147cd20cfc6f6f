"""Pictures of recordings, with the key numbers of their reports below."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ibpulse.base.errors import PictureError
from ibpulse.base.text import duration_text, escape_controls
from ibpulse.base.units import SECOND_NS
from ibpulse.core.recordings import Recording
from ibpulse.core.recordings.limits import find_recorded_signs
from ibpulse.core.statistics.span import find_lines
from ibpulse.workbench.pictures.options import KINDS, PictureOptions
from ibpulse.workbench.pictures.run import PictureNode, PictureRun, keep_direction, take_run
from ibpulse.workbench.reports.comparison import Report
from ibpulse.workbench.reports.formats import PagePicture
from ibpulse.workbench.reports.rows import rows, variation_key
from ibpulse.workbench.reports.run import describe_run
from ibpulse.workbench.reports.span import Outside, ReportOptions, choose_window
from ibpulse.workbench.reports.table import plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

FACTS = (
    ("mean_bytes_per_second", "mean"),
    ("active_mean_bytes_per_second", "active mean"),
    ("peak_bytes_per_second", "peak"),
    ("duty_cycle_ratio", "duty cycle"),
    ("", "burstiness"),
    ("step_period_seconds", "step period"),
    ("utilization_ratio", "mean utilisation"),
    ("idle_rails", "idle rails"),
)
"""Key numbers of a run, by their row in the report; the row without a name is the CV at the finest timescale."""
STILLS = ("heatmap", "distribution")
FINEST_NS = 10_000_000
PAGE_PIXELS = 1800


def name_runs(files: Sequence[Path], titles: Sequence[str]) -> list[str]:
    """The title of each file if it has one, else its name, with its directory if another file has the same name."""
    stems = [path.name.removesuffix(".parquet") for path in files]
    names = [
        f"{path.parent.name}/{stem}" if stems.count(stem) > 1 else stem for path, stem in zip(files, stems, strict=True)
    ]
    return [*titles, *names[len(titles) :]]


def picture_run(
    path: Path, name: str, part: Recording, chosen: ReportOptions, direction: str = "both", outside: Outside = (0, 0)
) -> PictureRun:
    """The part of a recording to draw, and its key numbers as in a report; errors name `path`.

    Of the file, `outside` was not loaded.
    """
    recording = keep_direction(part, direction)
    window = choose_window(path, recording, chosen, outside)
    series = window.series
    span = slice(series.lead, series.lead + series.ticks)
    facts = _describe(path, recording, chosen, outside)
    lines, peaks = find_lines(series), series.certain_bandwidth[span]
    node = PictureNode(series.bandwidth[span], series.measured[span], lines, facts, peaks)
    names, meta = list(series.rails.names), window.recording.meta
    rails = [row for row, port in enumerate(meta.ports) if str(port.id) in names]
    found = find_recorded_signs(window.recording, rails, chosen.active_bytes_per_second)
    signs = {escape_controls(port.name): port.signs for port in found}
    return replace(take_run(name, window.recording, names, node), signs=signs)


def _describe(path: Path, recording: Recording, chosen: ReportOptions, outside: Outside) -> tuple[tuple[str, str], ...]:
    """The key numbers as text."""
    scale_ns = max(FINEST_NS, recording.meta.interval_ns)
    chosen = replace(chosen, timescales_ns=(scale_ns,), resamples=1)
    values = describe_run(path, recording, chosen, outside=outside).values
    by_key = {row.key: row for row in rows(chosen.timescales_ns)}
    found = []
    for key, label in FACTS:
        row = by_key[key or variation_key(scale_ns)]
        text = plain_text(values[row.key], row.unit)
        found.append((label if key else f"CV at {duration_text(scale_ns)}", text))
    return tuple(found)


def sum_of_each(recordings: Mapping[str, Recording], name: str) -> PictureRun:
    """A run with a row for each recording: the sum over its rails, on a common grid of wall time."""
    intervals = {recording.meta.interval_ns for recording in recordings.values()}
    if len(intervals) > 1:
        raise PictureError(f"the recordings in {name} have different sampling intervals; draw each of them")
    interval_ns = intervals.pop()
    begin_ns = min(recording.start_ns for recording in recordings.values())
    ticks = -(-(max(recording.end_ns for recording in recordings.values()) - begin_ns) // interval_ns)
    rates, lines = np.full((len(recordings), ticks), np.nan), np.full((len(recordings), ticks), np.nan)
    for row, (path, recording) in enumerate(recordings.items()):
        series = choose_window(Path(path), recording, ReportOptions()).series
        first = (recording.start_ns - begin_ns) // interval_ns
        place = slice(first, first + series.ticks)
        rates[row, place] = series.bandwidth[series.lead : series.lead + series.ticks]
        lines[row] = find_lines(series).max()
    seconds = np.where(np.isnan(rates), 0.0, interval_ns / SECOND_NS)
    total = rates.sum(axis=0)
    node = PictureNode(total, np.where(np.isnan(total), 0.0, interval_ns / SECOND_NS), lines.sum(axis=0))
    return PictureRun(
        name=escape_controls(name),
        host=f"{len(recordings)} nodes",
        begin_ns=begin_ns - interval_ns,
        interval_ns=interval_ns,
        ports=tuple(map(escape_controls, recordings)),
        rates=rates,
        seconds=seconds,
        lines=lines,
        down=np.zeros(rates.shape, dtype=np.bool_),
        node=node,
        simulated=any(recording.meta.simulated for recording in recordings.values()),
    )


class Picture:
    """A picture that notebooks show; `figure` is a matplotlib `Figure`."""

    def __init__(self, figure: Figure, theme: str) -> None:
        self.figure = figure
        self._theme = theme

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the picture as PNG or SVG, depending on the suffix."""
        from ibpulse.workbench.pictures.panels import save_figure  # matplotlib is optional

        path = Path(path)
        if path.suffix.lower() not in (".png", ".svg"):
            raise PictureError(f"output {path}: the suffix determines the type of a picture; use .png or .svg")
        if path.exists() and not force:
            raise PictureError(f"output {path} exists; set force=True to replace it, or name another file")
        save_figure(self.figure, path, self._theme)

    def png(self) -> bytes:
        """The picture as PNG."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png")
        return buffer.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        return f"<ibpulse.Picture of {width:.1f} x {height:.1f} inches; notebooks show it, save() writes it>"


def render(kind: str, runs: Sequence[PictureRun], output: Path, options: PictureOptions) -> None:
    """Draw the runs as a picture of that kind into the file."""
    # matplotlib is optional
    from ibpulse.workbench.pictures.animation import save_animation
    from ibpulse.workbench.pictures.panels import save_figure

    if kind == "animation":
        save_animation(runs, output, options)
    else:
        save_figure(_draw(kind, runs, options), output, options.theme)


def _draw(kind: str, runs: Sequence[PictureRun], options: PictureOptions) -> Figure:
    from ibpulse.workbench.pictures.distribution import draw_distribution
    from ibpulse.workbench.pictures.heatmap import draw_heatmap

    return {"heatmap": draw_heatmap, "distribution": draw_distribution}[kind](runs, options)


def draw_runs(runs: Sequence[PictureRun], kind: str, **options: Any) -> Picture:
    """A still picture, `heatmap` or `distribution`, of some runs; `options` are those of `PictureOptions`."""
    if kind not in STILLS:
        raise PictureError(f"{kind!r} is not a kind of picture; use 'heatmap' or 'distribution'")
    if len(runs) > KINDS[kind].most_runs:
        raise PictureError(f"{len(runs)} recordings given, but a {kind} takes at most {KINDS[kind].most_runs}")
    chosen = PictureOptions(**{"width_pixels": 1400, "dpi": 140, **options})
    return Picture(_draw(kind, runs, chosen), chosen.theme)


def draw_report(report: Report, recordings: Sequence[tuple[Recording, Outside]]) -> PagePicture:
    """The heatmap of the first recordings of a report, as many as are given, for its page."""
    runs = [
        picture_run(run.path, name, recording, report.options, outside=outside)
        for name, run, (recording, outside) in zip(report.names, report.runs, recordings, strict=False)
    ]
    light, dark = (
        draw_runs(runs, "heatmap", theme=theme, width_pixels=PAGE_PIXELS).png() for theme in ("light", "dark")
    )
    left_out = len(report.runs) - len(recordings)
    caption = f"The first {len(recordings)} of {len(report.runs)} recordings." if left_out else ""
    return PagePicture(light, dark, caption)
