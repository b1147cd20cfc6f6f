"""One recording rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording rule; `text` describes its value."""

    record: str
    expr: str
    text: str
