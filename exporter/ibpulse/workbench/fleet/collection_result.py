"""What a collection has written, what it found there already, and what it could not get."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from ibpulse.base.text import count_text, escape_controls, file_size_text, names_text, percent
from ibpulse.workbench.fleet.dataset_columns import make_table
from ibpulse.workbench.fleet.dataset_schema import MISSING, Part
from ibpulse.workbench.fleet.dataset_store import DatasetStore
from ibpulse.workbench.fleet.part_stage import PartSummary

log = logging.getLogger(__name__)
MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class MissingSpan:
    """A span of which nothing was collected, and why."""

    part: Part
    to_ns: int
    reason: str


@dataclass(slots=True)
class CollectionResult:
    """The result of one collection; `problems` are about files and sources, which belong to no node."""

    written: list[PartSummary] = field(default_factory=list)
    kept: set[Part] = field(default_factory=set)
    missing: list[MissingSpan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add_problem(self, sentence: str) -> None:
        """Note and log a problem."""
        log.warning("%s", escape_controls(sentence))
        self.problems.append(sentence)

    def describe(self) -> str:
        """The result in a sentence or two."""
        nodes = {one.part.node for one in self.written}
        tiers, raw = (sum(getattr(one, name) for one in self.written) for name in ("tier_bytes", "raw_bytes"))
        minutes = sum(one.seconds for one in self.written) / 60
        lines = ["nothing new was collected"]
        if self.written:
            lines = [f"collected {count_text(len(self.written), 'part')} of {count_text(len(nodes), 'node')}"]
            observed = sum(one.observed_ratio * one.seconds for one in self.written) / (60 * minutes)
            lines[0] += (
                f": {minutes:.1f} node-minutes, {percent(observed)} of the samples observed, "
                f"{sum(one.steps for one in self.written)} steps, {file_size_text(raw)} raw and "
                f"{file_size_text(tiers)} in the small tiers"
            )
        if self.kept:
            lines.append(f"{count_text(len(self.kept), 'part')} had been collected before")
        if self.missing:
            absent = sorted({span.part.node for span in self.missing})
            lines.append(f"something is missing of {count_text(len(absent), 'node')}: {names_text(absent)}")
        return "\n".join(lines)


def write_missing(store: DatasetStore, spans: Iterable[MissingSpan]) -> None:
    """Write the missing spans down, each where the samples of its part would be.

    Raises:
        DatasetError: they cannot be written.
    """
    for span in spans:
        reason = escape_controls(span.reason)[:MAX_REASON]
        row = {"from_ns": [span.part.start_ns], "to_ns": [span.to_ns], "reason": [reason]}
        store.write_table(MISSING, span.part, make_table(MISSING, row))
        log.warning("%s: %s", span.part.node, reason)
