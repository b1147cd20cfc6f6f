"""A finding of a report about many nodes, and the words that its sentences share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ibpulse.base.text import escape_controls, names_text
from ibpulse.base.units import MILLISECOND_NS

Kind = Literal[
    "stall",
    "late",
    "fewer-steps",
    "failover",
    "idle-port",
    "different-port",
    "hot-rail",
    "different-node",
    "place",
    "change",
    "ends-apart",
    "rhythm",
    "shared-leaf",
    "missing",
    "not-collected",
    "coarse",
    "unknown-late",
    "nobody-late",
    "clocks",
]
"""The kinds of findings, the most severe first; what was not found, and what limits a report, comes last."""


@dataclass(frozen=True, slots=True)
class FleetFinding:
    """A sentence, the evidence for it, and what limits it. `subjects` are the nodes, ports or places that it names."""

    kind: Kind
    sentence: str
    evidence: str
    limit: str
    subjects: tuple[str, ...] = ()


def shown_names(names: Iterable[str]) -> str:
    """Names of unknown origin, safe to print."""
    return names_text(map(escape_controls, names))


def milliseconds_text(ms: float) -> str:
    """A time in ms with as many decimals as it deserves: `20.1 ms`, `0.25 ms`."""
    return f"{ms:.0f} ms" if abs(ms) >= 100 else f"{ms:.1f} ms" if abs(ms) >= 1 else f"{ms:.2f} ms"


def bound_text(bound_ns: int | None) -> str:
    """The bound of a clock in words."""
    return "is not known" if bound_ns is None else f"is known to ± {milliseconds_text(bound_ns / MILLISECOND_NS)}"


def factor_text(factor: float) -> str:
    """A factor as more or less than usual: `30 % more`, `half as much` is `50 % less`."""
    return f"{100 * abs(factor - 1):.0f} % {'more' if factor > 1 else 'less'}"
