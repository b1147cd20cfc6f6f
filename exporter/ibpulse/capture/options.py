"""What the flight recorder is told by the settings. It must not read any setting itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """Where captures go, what they cover unless asked otherwise, and what all of them together may take.

    A new capture is refused while `max_pending` wait to be written. `min_free_bytes` are left free on the disk.
    `host` is the node's name as the files have it. `writer_seconds` bounds the time that writing one may take.
    """

    directory: Path
    host: str
    before_ns: int = 60 * SECOND_NS
    after_ns: int = 10 * SECOND_NS
    max_count: int = 100
    max_bytes: int = 1_000_000_000
    min_free_bytes: int = 500_000_000
    max_pending: int = 4
    writer_seconds: float = 30.0
