"""Recordings for the tests of pictures, and pictures read back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ibpulse.core.events import Event
from ibpulse.core.recordings import Recording, save
from ibpulse.workbench.pictures.options import PictureOptions
from ibpulse.workbench.pictures.run import PictureNode, PictureRun
from tests.reports.recordings import SECOND_NS, START_NS, TICK_NS

STILL = PictureOptions(width_pixels=1000, dpi=100)
MOVING = PictureOptions(width_pixels=600, dpi=100, frames_per_second=10)


def saved(path: Path, recording: Recording) -> str:
    """The recording in a file; its name."""
    save(path, recording)
    return str(path)


def take(
    rates: np.ndarray,
    name: str = "a",
    line: float = 100e9,
    down: np.ndarray | None = None,
    events: Sequence[Event] = (),
) -> PictureRun:
    """Rates (ports, ticks) as a run whose node is their sum; `down` (ports, ticks) marks links that are down."""
    seconds = np.where(np.isnan(rates), 0.0, TICK_NS / SECOND_NS)
    lines = np.full(rates.shape, line)
    node = PictureNode(
        rates.sum(axis=0), seconds.min(axis=0), lines.sum(axis=0), (("mean", "1 GB/s"), ("peak", "2 GB/s"))
    )
    ports = tuple(f"mlx5_{number}:1" for number in range(len(rates)))
    return PictureRun(
        name=name,
        host="node7",
        begin_ns=START_NS,
        interval_ns=TICK_NS,
        ports=ports,
        rates=rates,
        seconds=seconds,
        lines=lines,
        down=np.zeros(rates.shape, dtype=np.bool_) if down is None else down,
        node=node,
        events=tuple(events),
    )


def rails(ticks: int = 200) -> np.ndarray:
    """An idle rail, a busy one, and one whose second half is missing."""
    rates = np.zeros((3, ticks))
    rates[1] = 100e9
    rates[2, : ticks // 2], rates[2, ticks // 2 :] = 50e9, np.nan
    return rates


def event(seconds: float, subject: str = "mlx5_0:1", kind: str = "link-down", uncertainty: float = 1.0) -> Event:
    """An event of a port, in seconds since the beginning of the run."""
    times_ns = [round(value * SECOND_NS) for value in (seconds, uncertainty)]
    return Event(START_NS + times_ns[0], kind, subject, f"{subject}: {kind} in words", times_ns[1])


def pixels(path: Path) -> np.ndarray:
    """The picture as (height, width, 3)."""
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def count_colour(picture: np.ndarray, colour: str, within: int = 3) -> int:
    """Pixels that are within so much of a colour like #440154."""
    wanted = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])
    return int((np.abs(picture - wanted).max(axis=-1) <= within).sum())
