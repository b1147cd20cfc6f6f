"""Recordings: samples of many ports over a time, as a value and as a file.

recording   the value and what it says of itself; numpy alone
columns     the header as JSON, samples as Arrow columns and back; pyarrow, or what to install
writing     values to files
reading     files to values
counter_log logs of other programs, as samples
resampling  samples at uneven instants to a recording
from_ring, from_daemon   the newest samples of a ring or a daemon, in pieces
source      which of both, and its ports
session     pieces into a growing file, and the progress of that
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ibpulse.recordings.recording import RecordedPort, Recording, RecordingMeta, concatenate

if TYPE_CHECKING:
    from ibpulse.recordings.reading import load, read_meta, scan
    from ibpulse.recordings.writing import RecordingWriter, finish, save, save_pieces

__all__ = [
    "RecordedPort",
    "Recording",
    "RecordingMeta",
    "RecordingWriter",
    "concatenate",
    "finish",
    "load",
    "read_meta",
    "save",
    "save_pieces",
    "scan",
]

_WRITING = ("RecordingWriter", "finish", "save", "save_pieces")
_READING = ("load", "read_meta", "scan")


def __getattr__(name: str) -> Any:
    """What needs pyarrow, imported when first asked for: it costs memory, and not everybody has it.

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
