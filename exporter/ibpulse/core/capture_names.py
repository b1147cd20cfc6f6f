"""The names of capture files: when the trigger was, its reason, and an id."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

from ibpulse.base.units import MILLISECOND_NS

REASON_LENGTH = 64
_NAME = re.compile(r"([0-9]{8}T[0-9]{6})\.([0-9]{3})Z-([A-Za-z0-9][A-Za-z0-9-]{0,63})-([0-9a-f]{8})\.parquet", re.ASCII)
_FORMAT = "%Y%m%dT%H%M%S"
MEDIA_TYPE = "application/vnd.apache.parquet"


@dataclass(frozen=True, slots=True, order=True)
class CaptureName:
    """A parsed file name: wall time of the trigger in ms, reason, id. Sorts by time."""

    trigger_ms: int
    reason: str
    id: str

    def __str__(self) -> str:
        instant = datetime.fromtimestamp(self.trigger_ms // 1000, UTC)
        return f"{instant.strftime(_FORMAT)}.{self.trigger_ms % 1000:03d}Z-{self.reason}-{self.id}.parquet"


def make_name(trigger_ns: int, reason: str) -> CaptureName:
    """A new name for a capture, with the reason shortened to the characters that file names allow."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", reason)[:REASON_LENGTH].strip("-")
    return CaptureName(trigger_ns // MILLISECOND_NS, slug or "capture", secrets.token_hex(4))


def parse_name(text: str) -> CaptureName | None:
    """The parsed name, or None if the text is not the name of a capture."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    try:
        instant = datetime.strptime(found[1], _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
    return CaptureName(int(instant.timestamp()) * 1000 + int(found[2]), found[3], found[4])
