"""Which count of the flight recorder is which metric. It formats nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ibpulse import metrics
from ibpulse.exposition.lines import Family, known
from ibpulse.model import CaptureCounts


def capture_families(counts: CaptureCounts) -> Iterator[Family]:
    """All families of the flight recorder."""
    yield metrics.CAPTURES, [((reason,), taken) for reason, taken in counts.taken]
    yield metrics.CAPTURE_ERRORS, [((), counts.errors)]
    yield metrics.CAPTURES_STORED, [((), counts.stored)]
    yield metrics.CAPTURE_STORED_BYTES, [((), counts.stored_bytes)]
    yield metrics.CAPTURE_LAST, known([((), counts.newest_seconds)])
