"""A finding: what one check says of one subject. It must not know of facts or of how it is shown."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Level(enum.IntEnum):
    """How a finding stands.

    OK: nothing to do. WARN: the numbers are true, but not all that they could be, or something of the node needs a
    look. FAIL: numbers are missing, or would be wrong.
    """

    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the page.

    `topic` is the name of the check, filled in by whoever runs it. `subject` is a port, a device, a card, or what else
    the sentence is about, and may be empty. `meaning` says what follows from it, `advice` what to do; both may be empty
    when all is well.
    """

    level: Level
    subject: str
    sentence: str
    meaning: str = ""
    advice: str = ""
    topic: str = ""


def passed(subject: str, sentence: str) -> Finding:
    """A finding that all is well."""
    return Finding(Level.OK, subject, sentence)


def worst_level(findings: Iterable[Finding]) -> Level:
    """The worst level of all, OK without any."""
    return max((finding.level for finding in findings), default=Level.OK)
