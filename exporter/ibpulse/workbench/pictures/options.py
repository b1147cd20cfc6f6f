"""The options of a picture, and the file types of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ibpulse.base.errors import PictureError
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND

Unit = Literal["GB/s", "utilization"]
Statistic = Literal["both", "max", "mean"]
Theme = Literal["light", "dark"]

UNITS: tuple[Unit, ...] = ("GB/s", "utilization")
STATISTICS: tuple[Statistic, ...] = ("both", "max", "mean")
THEMES: tuple[Theme, ...] = ("light", "dark")
# in inches: the minimum for the labels, and the width of a page
MIN_INCHES, MAX_INCHES = 5, 40


@dataclass(frozen=True, slots=True)
class PictureKind:
    """One kind of picture: the types of file it can be written to, how many recordings it takes, and its size."""

    types: tuple[str, ...]
    most_runs: int
    width_pixels: int
    dpi: int


KINDS: Mapping[str, PictureKind] = {
    "heatmap": PictureKind(("png", "svg"), 2, 2000, 200),
    "animation": PictureKind(("gif", "mp4"), 2, 1000, 130),
    "distribution": PictureKind(("png", "svg"), 4, 2000, 200),
}


@dataclass(frozen=True, slots=True)
class PictureOptions:
    """The look of a picture.

    `statistic` selects the panels of a heatmap whose columns cover several samples. An animation shows the last
    `window_ns` and runs `speed` times as fast as the recording. `row` and `total` name what a row of a heatmap and the
    sum of all rows are.
    """

    width_pixels: int
    dpi: int
    unit: Unit = "GB/s"
    theme: Theme = "light"
    direction: str = "both"
    statistic: Statistic = "both"
    frames_per_second: int = 20
    speed: float = 1.0
    window_ns: int = 2_000_000_000
    active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND
    row: str = "rail"
    total: str = "node"

    @property
    def width_inches(self) -> float:
        """Width of the picture relative to its font sizes."""
        return self.width_pixels / self.dpi

    @property
    def directions_text(self) -> str:
        """The directions added up, in words."""
        return "transmit + receive" if self.direction == "both" else self.direction


def choose_kind(output: Path, wanted: str = "") -> str:
    """The kind of picture for a file: the requested one, else the default for the file type."""
    kind_of = output.suffix.removeprefix(".").lower()
    fitting = [name for name, kind in KINDS.items() if kind_of in kind.types]
    if not fitting:
        known = ", ".join(dict.fromkeys(f".{one}" for kind in KINDS.values() for one in kind.types))
        raise PictureError(f"output {output}: the suffix determines the type of a picture; use one of {known}")
    if wanted and wanted not in fitting:
        raise PictureError(f"output {output}: a {wanted} can only be written as {', '.join(KINDS[wanted].types)}")
    return wanted or fitting[0]


def size_faults(width_pixels: int, dpi: int) -> list[str]:
    """The problems with a size, a sentence each."""
    if dpi < 1 or not MIN_INCHES <= width_pixels / dpi <= MAX_INCHES:
        least, most = MIN_INCHES * max(dpi, 1), MAX_INCHES * max(dpi, 1)
        return [f"flag --width: {width_pixels} pixels at {dpi} dpi are too few for the labels; use {least} to {most}"]
    if width_pixels > 12_000:
        return [f"flag --width: {width_pixels} exceeds the maximum of 12000 pixels; use less, or a lower --dpi"]
    return []
