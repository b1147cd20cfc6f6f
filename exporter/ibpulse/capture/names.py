"""File names of captures: `20251121T000003.030Z-rail-lost-1f6c0a2e.parquet`. It must not touch a file.

Nothing else is ever a capture's name, so no name leads out of the directory.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

MILLISECOND_NS = 1_000_000
REASON_LENGTH = 40
_NAME = re.compile(r"([0-9]{8}T[0-9]{6})\.([0-9]{3})Z-([a-z0-9][a-z0-9-]{0,39})-([0-9a-f]{8})\.parquet", re.ASCII)
_FORMAT = "%Y%m%dT%H%M%S"


@dataclass(frozen=True, slots=True, order=True)
class CaptureName:
    """A name taken apart: wall time of the trigger in ms, reason, id. Sorted by time."""

    trigger_ms: int
    reason: str
    id: str

    def __str__(self) -> str:
        instant = datetime.fromtimestamp(self.trigger_ms // 1000, UTC)
        return f"{instant.strftime(_FORMAT)}.{self.trigger_ms % 1000:03d}Z-{self.reason}-{self.id}.parquet"


def make_name(trigger_ns: int, reason: str) -> CaptureName:
    """A new name for a capture; of the reason what a file name can hold."""
    slug = re.sub(r"[^a-z0-9]+", "-", reason.lower())[:REASON_LENGTH].strip("-")
    return CaptureName(trigger_ns // MILLISECOND_NS, slug or "capture", secrets.token_hex(4))


def parse_name(text: str) -> CaptureName | None:
    """The name that a text is, or None when it is the name of no capture."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    try:
        instant = datetime.strptime(found[1], _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
    return CaptureName(int(instant.timestamp()) * 1000 + int(found[2]), found[3], found[4])
