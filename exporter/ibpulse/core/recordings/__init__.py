"""Recordings: samples of many ports over a time, as a value and as a file.

recording   the value, with its events and jobs; neither pyarrow nor pydantic
file_format the header with its version, and samples as Arrow columns
writing, reading        values to files and back
from_ring   samples and events of a ring
perfetto    samples, steps, bursts, stalls and what happened, as a trace of Perfetto
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibpulse.base.installation import late_names
from ibpulse.core.recordings.recording import RecordedPort, Recording, RecordingMeta, concatenate

if TYPE_CHECKING:
    from ibpulse.core.recordings.reading import RecordingExtent, load, read_extent, read_meta, scan, scan_part
    from ibpulse.core.recordings.writing import RecordingWriter, finish, save, save_pieces

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
    {
        **dict.fromkeys(("RecordingWriter", "finish", "save", "save_pieces"), "writing"),
        **dict.fromkeys(("RecordingExtent", "load", "read_extent", "read_meta", "scan", "scan_part"), "reading"),
    },
)
"""pyarrow is optional and takes memory."""
