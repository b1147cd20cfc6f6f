"""The progress of a recording: as numbers, as text, and as a line on the terminal or in the log."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ibpulse.text import elapsed_text, file_size_text, percent

log = logging.getLogger(__name__)

LOG_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a recording is. `bandwidth_bytes_per_second` is that of the last piece, None where it is all holes."""

    seconds: float
    ticks: int
    ports: int
    kept_ratio: float
    bandwidth_bytes_per_second: float | None
    bytes_written: int
    remaining_seconds: float | None


class ProgressLine:
    """The state of a recording: on a terminal one line that changes, elsewhere a line of the log now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._logged = time.monotonic()

    def show(self, progress: Progress) -> None:
        """Say how far it is."""
        if self._live:
            # back to the first column, and clear to the end of the line
            self._stream.write(f"\r{say_progress(progress)}\x1b[K")
            self._stream.flush()
        elif time.monotonic() - self._logged >= LOG_SECONDS:
            self._logged = time.monotonic()
            log.info("recorded %s", say_progress(progress))

    def end(self) -> None:
        """Leave the line."""
        if self._live:
            self._stream.write("\n")
            self._stream.flush()


def say_progress(progress: Progress) -> str:
    """One line: time, bandwidth of the rails, size of the file and how it grows, time left if there is a bound."""
    bandwidth = progress.bandwidth_bytes_per_second
    parts = [
        f"{elapsed_text(progress.seconds)} of {progress.ports} ports",
        "nothing measured" if bandwidth is None else f"{bandwidth / 1e9:.1f} GB/s",
        f"{file_size_text(progress.bytes_written)}"
        + (f" ({file_size_text(progress.bytes_written / progress.seconds)}/s)" if progress.seconds else ""),
    ]
    if progress.kept_ratio < 1:
        parts.append(f"{percent(progress.kept_ratio)} kept")
    if progress.remaining_seconds is not None:
        parts.append(f"{elapsed_text(progress.remaining_seconds)} left")
    return ", ".join(parts)


def say_end(path: Path, progress: Progress, file_bytes: int, trimmed_seconds: float) -> str:
    """What was recorded: one sentence."""
    cut = f"; {elapsed_text(trimmed_seconds)} of silence cut off" if trimmed_seconds >= 0.05 else ""
    return (
        f"{path}: {elapsed_text(progress.seconds - trimmed_seconds)} of {progress.ports} ports, "
        f"{progress.ticks} ticks read, {percent(progress.kept_ratio)} of their samples kept, "
        f"{file_size_text(file_bytes)}{cut}"
    )
