"""Recordings: samples of many ports over a time, as a value and as a file.

recording   the value, with its events and jobs; neither pyarrow nor pydantic
file_format the header with its version, and samples as Arrow columns
files       values to files and back
from_ring   samples and events of a ring
perfetto    samples, steps, bursts, stalls and what happened, as a trace of Perfetto
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibpulse.base.installation import late_names
from ibpulse.core.recordings.recording import RecordedPort, Recording, RecordingMeta, concatenate

if TYPE_CHECKING:
    from ibpulse.core.recordings.files import (
        RecordingExtent,
        RecordingWriter,
        finish,
        load,
        read_extent,
        read_meta,
        save,
        save_pieces,
        scan,
        scan_part,
    )

__all__ = [
    "RecordedPort",
    "Recording",
    "RecordingExtent",
    "RecordingMeta",
    "RecordingWriter",
    "concatenate",
    "finish",
    "load",
    "read_extent",
    "read_meta",
    "save",
    "save_pieces",
    "scan",
    "scan_part",
]

__getattr__ = late_names(
    __name__,
    dict.fromkeys(
        (
            *("RecordingExtent", "load", "read_extent", "read_meta", "scan", "scan_part"),
            *("RecordingWriter", "finish", "save", "save_pieces"),
        ),
        "files",
    ),
)
"""pyarrow is optional and takes memory."""
