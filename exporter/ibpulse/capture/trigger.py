"""What asks for a capture. A value alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ibpulse.metrics import CAPTURE_ORIGINS

API, ALERTMANAGER, *_ = CAPTURE_ORIGINS


@dataclass(frozen=True, slots=True)
class Trigger:
    """Who asks (`origin`, one of the table's), why in a few words, and around which wall time.

    None for `before_ns` and `after_ns` is what the settings say.
    """

    origin: str
    reason: str
    instant_ns: int
    labels: Mapping[str, str] = field(default_factory=dict)
    before_ns: int | None = None
    after_ns: int | None = None
