"""Ten seconds of two runs as a GIF, compared with the usual way: one matplotlib figure per frame."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from bench.bench import NS_PER_SECOND, PORTS, Bench
from bench.report import Budget, Section, Table
from ibpulse.workbench.pictures.options import PictureOptions
from ibpulse.workbench.pictures.run import PictureNode, PictureRun
from ibpulse.workbench.pictures.still import render
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import make_workload

LIMIT_SECONDS, SECONDS, TICK_NS, WINDOW_TICKS = 20.0, 10, 10_000_000, 200
FRAMES_PER_SECOND, THEIR_FRAMES = 20, 20
OPTIONS = PictureOptions(width_pixels=1000, dpi=130, frames_per_second=FRAMES_PER_SECOND)
METHOD = f"""\
{SECONDS} s of the simulated dense and MoE runs, {PORTS} rails at 10 ms, as a GIF with {FRAMES_PER_SECOND} frames per
second, {OPTIONS.width_pixels} pixels wide, compared with a new matplotlib figure for every frame and pillow, of which
{THEIR_FRAMES} frames were drawn and scaled up."""


def run(bench: Bench) -> Section:
    """Draw both, once each."""
    folder = bench.new_folder("render")
    runs = [_play(name) for name in ("dense", "moe")]
    frames = SECONDS * FRAMES_PER_SECOND
    ours, our_bytes = _timed(folder / "ours.gif", lambda path: render("animation", runs, path, OPTIONS))
    made, their_bytes = _timed(folder / "theirs.gif", lambda path: _figure_per_frame(path, runs, THEIR_FRAMES))
    scale = frames / THEIR_FRAMES
    heat, heat_bytes = _timed(folder / "heatmap.png", lambda path: render("heatmap", runs, path, _still()))
    rows = [
        [f"ibpulse, GIF of {frames} frames", f"{ours:.2f} s", f"{our_bytes / 1e6:.1f} MB"],
        [
            f"one figure per frame, {THEIR_FRAMES} frames scaled to {frames}",
            f"{made * scale:.2f} s",
            f"{their_bytes * scale / 1e6:.1f} MB",
        ],
        ["ibpulse, heatmap of the same as PNG", f"{heat:.2f} s", f"{heat_bytes / 1e6:.1f} MB"],
    ]
    faster = f"{ours:.1f} s; one figure per frame {made * scale / ours:.1f} × as long"
    budget = Budget(f"GIF of {SECONDS} s", f"< {LIMIT_SECONDS:.0f} s", faster, ours < LIMIT_SECONDS)
    return Section("Pictures", METHOD, [Table(["picture", "time", "size"], rows)], (), [budget])


def _still() -> PictureOptions:
    return PictureOptions(width_pixels=2000, dpi=200)


def _timed(path: Path, draw: Callable[[Path], None]) -> tuple[float, int]:
    begun = time.perf_counter()
    draw(path)
    return time.perf_counter() - begun, path.stat().st_size


def _play(name: str) -> PictureRun:
    ticks = SECONDS * NS_PER_SECOND // TICK_NS
    moved = Schedule(make_workload(name), 0, PORTS).cumulative_bytes(np.arange(ticks + 1) * TICK_NS)
    rates = np.diff(moved.sum(axis=2), axis=0).T * (NS_PER_SECOND / TICK_NS)
    seconds = np.full(rates.shape, TICK_NS / NS_PER_SECOND)
    lines = np.full(rates.shape, 100e9)
    node = PictureNode(rates.sum(axis=0), seconds[0], lines.sum(axis=0))
    ports = tuple(f"mlx5_{number}:1" for number in range(PORTS))
    return PictureRun(
        name=name,
        host="node",
        begin_ns=0,
        interval_ns=TICK_NS,
        ports=ports,
        rates=rates,
        seconds=seconds,
        lines=lines,
        down=np.zeros(rates.shape, dtype=np.bool_),
        node=node,
    )


def _figure_per_frame(path: Path, runs: Sequence[PictureRun], frames: int) -> None:
    pictures = []
    for frame in range(frames):
        # from the middle, where the window is full
        now = (frame + SECONDS * FRAMES_PER_SECOND // 2) * (NS_PER_SECOND // TICK_NS) // FRAMES_PER_SECOND
        figure = Figure(figsize=(OPTIONS.width_inches, 8.0), dpi=OPTIONS.dpi)
        FigureCanvasAgg(figure)
        for row, run in enumerate(runs):
            bars = figure.add_subplot(2 * len(runs), 2, 4 * row + 1)
            bars.barh(run.ports, run.rates[:, now] / 1e9)
            rails = figure.add_subplot(2 * len(runs), 2, 4 * row + 2)
            rails.imshow(run.rates[:, now - WINDOW_TICKS : now] / 1e9, aspect="auto", vmin=0, vmax=100)
            line = figure.add_subplot(2 * len(runs), 1, 2 * row + 2)
            line.plot(run.node.bandwidth / 1e9)
            line.axvline(now)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
        pictures.append(Image.open(buffer).convert("P", palette=Image.Palette.ADAPTIVE))
    pictures[0].save(
        path, save_all=True, append_images=pictures[1:], duration=1000 // FRAMES_PER_SECOND, loop=0, optimize=False
    )
