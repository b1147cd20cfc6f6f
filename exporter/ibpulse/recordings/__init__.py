"""Recordings: samples of many ports over a time, as a value and as a file.

recording   the value; neither pyarrow nor pydantic. recorded_jobs: its jobs
file_format the header with its version, and samples as Arrow columns
writing, reading        values to files and back
counter_log logs of other programs as samples; resampling brings them to a regular grid
from_ring   samples and events of a ring
from_daemon windows, ports, events and jobs of a daemon
session     pieces into a growing file, and its progress
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ibpulse.recordings.recording import RecordedPort, Recording, RecordingMeta, concatenate

if TYPE_CHECKING:
    from ibpulse.recordings.reading import RecordingExtent, load, read_extent, read_meta, scan
    from ibpulse.recordings.writing import RecordingWriter, finish, save, save_pieces

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
]

_WRITING = ("RecordingWriter", "finish", "save", "save_pieces")
_READING = ("RecordingExtent", "load", "read_extent", "read_meta", "scan")


def __getattr__(name: str) -> Any:
    """Import readers and writers on first use, because pyarrow is optional and takes memory.

    Raises:
        RecordingError: pyarrow is not installed.
    """
    if name in _WRITING:
        from ibpulse.recordings import writing

        return getattr(writing, name)
    if name in _READING:
        from ibpulse.recordings import reading

        return getattr(reading, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
