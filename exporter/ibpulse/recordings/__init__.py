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

from typing import TYPE_CHECKING

from ibpulse.base.late_names import late_names
from ibpulse.recordings.recording import RecordedPort, Recording, RecordingMeta, concatenate

if TYPE_CHECKING:
    from ibpulse.recordings.from_daemon import daemon_source, fetch_recent
    from ibpulse.recordings.reading import RecordingExtent, load, read_extent, read_meta, scan
    from ibpulse.recordings.writing import RecordingWriter, finish, save, save_pieces

__all__ = [
    "RecordedPort",
    "Recording",
    "RecordingExtent",
    "RecordingMeta",
    "RecordingWriter",
    "concatenate",
    "daemon_source",
    "fetch_recent",
    "finish",
    "load",
    "read_extent",
    "read_meta",
    "save",
    "save_pieces",
    "scan",
]

__getattr__ = late_names(
    __name__,
    {
        **dict.fromkeys(("RecordingWriter", "finish", "save", "save_pieces"), "writing"),
        **dict.fromkeys(("RecordingExtent", "load", "read_extent", "read_meta", "scan"), "reading"),
        **dict.fromkeys(("daemon_source", "fetch_recent"), "from_daemon"),
    },
)
"""pyarrow is optional and takes memory; httpx is slow to import."""
