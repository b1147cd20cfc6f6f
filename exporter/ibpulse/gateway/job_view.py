"""One choice of rows of a job, encoded once for all of its viewers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import orjson

from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.http.stream import batch_event, event, gap_event
from ibpulse.gateway.job_polls import KEPT_MS, JobPolls
from ibpulse.gateway.job_summary import JobNumbers, describe_rows
from ibpulse.gateway.jobs import MAX_ROWS, Row, describe_row, rows_of
from ibpulse.gateway.nodes.table import NodeState
from ibpulse.gateway.samples import bin_samples, common_interval, find_places

MAX_STATES = 200
# the longest that a batch waits for a node, and the longest span of one
WAIT_MS, BATCH_SPAN_MS = 1100, 1000
RESUME_MS = 60_000
# up to so many rows, the time of a value is at most so long, unless the samples are further apart
VALUES_MS = ((4, 10), (8, 20), (16, 50), (MAX_ROWS, 100))
SAMPLES = (100, 50, 20, 10, 5, 2, 1)
STATE_MEMBERS = ("state", "active", "rate_bytes_per_second", "problem")


class JobView:
    """The rows of some nodes, or their rails, and the time up to which they were sent."""

    def __init__(self, polls: JobPolls, nodes: Sequence[str], *, rails: bool, version: str, begin_ms: int) -> None:
        self._polls, self._nodes, self._rails, self._version = polls, nodes, rails, version
        self._rows: list[Row] = []
        self._states: dict[str, list[dict[str, Any]]] = {}
        # up to which time each row was sent, if that is not `sent_ms`
        self._row_sent_ms: dict[str, int] = {}
        self._layout = 0
        self.batch_ms = 0
        self.rows = b""
        self.summary = b""
        self.refresh(begin_ms)
        self.sent_ms = begin_ms // self.batch_ms * self.batch_ms

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self._rows)

    def refresh(self, now_ms: int) -> tuple[bool, bool]:
        """Update `rows`. Returns whether they are other ones, and whether anything changed."""
        nodes = self._polls.nodes
        table: dict[str, NodeState] = {name: data.state for name, data in nodes.items() if data.state}
        rows = rows_of(self._polls.job, table, self._nodes, rails=self._rails)[:MAX_ROWS]
        intervals = (data.samples.interval_ms for data in nodes.values() if data.samples and data.samples.end_ms)
        # one node that samples seldom does not hide what the others have
        interval_ms = common_interval(intervals, 10)
        longest_ms = next(most_ms for most, most_ms in VALUES_MS if len(rows) <= most)
        batch_ms = next((times * interval_ms for times in SAMPLES if times * interval_ms <= longest_ms), interval_ms)
        others = (batch_ms, [row.name for row in rows]) != (self.batch_ms, [row.name for row in self._rows])
        if others and self.batch_ms:
            self.sent_ms = -(-self.sent_ms // batch_ms) * batch_ms
            self._row_sent_ms.clear()
        self._layout += others
        self._rows, self.batch_ms = rows, batch_ms
        self._states = {row.name: self._states[row.name] for row in rows if row.name in self._states}
        document = {
            "version": self._version,
            "interval_ms": interval_ms,
            "batch_ms": batch_ms,
            "history_ms": max((data.history_ms for data in nodes.values()), default=0),
            "simulated": any(state.ports is not None and bool(state.ports.simulated) for state in table.values()),
            "job": self._polls.job.about(),
            "nodes": list(nodes),
            "rows": [self._describe(row, now_ms) for row in rows],
        }
        before, self.rows = self.rows, event("rows", orjson.dumps(document))
        return others, before != self.rows

    def _describe(self, row: Row, now_ms: int) -> dict[str, Any]:
        data = self._polls.nodes[row.node]
        found = describe_row(row, self._polls.job, data.state, data.problem)
        left = data.samples.left_out(row.rails) if data.samples and data.answering and row.port is None else []
        if left and not found["problem"]:
            found["problem_text"] = f"no samples of {', '.join(left)}, left out of the sum"
        now = {name: found[name] for name in STATE_MEMBERS}
        states = self._states.setdefault(row.name, [])
        if not states or any(states[-1][name] != now[name] for name in STATE_MEMBERS):
            states.append({"from_ms": now_ms, **now})
            del states[:-MAX_STATES]
        return {**found, "states": states}

    def advance(self, now_ms: int) -> list[bytes]:
        """The batches of what is new, those of rows that were late first."""
        if not now_ms - KEPT_MS <= self.sent_ms <= now_ms + BATCH_SPAN_MS:
            # the clock was set, or the machine slept
            self.sent_ms = (now_ms - WAIT_MS) // self.batch_ms * self.batch_ms
            self._row_sent_ms.clear()
        end_ms = self._end(now_ms)
        found = [*self._late_batches(), *self._batches(self.sent_ms, end_ms)]
        for row in self._rows:
            if (own := self._available(row)) < end_ms:
                self._row_sent_ms[row.name] = max(self._row_sent_ms.get(row.name, self.sent_ms), min(own, end_ms))
        self.sent_ms = max(self.sent_ms, end_ms)
        return found

    def resume(self, from_ms: int, to_ms: int) -> Iterator[bytes]:
        """The batches from a time up to another one, preceded by the part that is too old; until the rows change."""
        kept_ms = to_ms - RESUME_MS
        oldest = -(-max(from_ms, kept_ms) // self.batch_ms) * self.batch_ms
        gap = [gap_event(from_ms * MILLISECOND_NS, oldest * MILLISECOND_NS)] if from_ms < kept_ms else []
        return itertools.chain(gap, self._until_other_rows(self._layout, self._batches(oldest, to_ms)))

    def _until_other_rows(self, layout: int, batches: Iterator[bytes]) -> Iterator[bytes]:
        while self._layout == layout and (found := next(batches, None)) is not None:
            yield found

    def describe_second(self, numbers: JobNumbers) -> bytes:
        """The event `summary` of a second, which stays in `summary`."""
        self.summary = event("summary", orjson.dumps(describe_rows(numbers, self._rows)))
        return self.summary

    def _end(self, now_ms: int) -> int:
        """Up to where all answering nodes have samples, or at most `WAIT_MS` ago."""
        nodes = self._polls.nodes
        # a row of longer samples follows later, as one that is late
        ends = [
            self._available(row)
            for row in self._rows
            if (data := nodes[row.node]).answering and not (data.samples and data.samples.interval_ms > self.batch_ms)
        ]
        latest = now_ms // self.batch_ms * self.batch_ms
        oldest = (now_ms - WAIT_MS) // self.batch_ms * self.batch_ms
        return max(self.sent_ms, oldest, min(latest, *ends) if ends else oldest)

    def _available(self, row: Row) -> int:
        """The end of the last bin of which all samples of a row were read, 0 without any."""
        samples = self._polls.nodes[row.node].samples
        return samples.end_ms // self.batch_ms * self.batch_ms if samples else 0

    def _late_batches(self) -> Iterator[bytes]:
        """The bins that were sent without some rows, which have samples of them now."""
        late = {
            row.name: (max(sent, self.sent_ms - KEPT_MS), min(self._available(row), self.sent_ms))
            for row in self._rows
            if (sent := self._row_sent_ms.get(row.name, self.sent_ms)) < min(self._available(row), self.sent_ms)
        }
        for name, (_, end) in late.items():
            self._row_sent_ms[name] = end
            if end >= self.sent_ms:
                del self._row_sent_ms[name]
        begin = -(-min((first for first, _ in late.values()), default=0) // self.batch_ms) * self.batch_ms
        end = max((end for _, end in late.values()), default=0)
        yield from self._batches(begin, end, late)

    def _batches(self, from_ms: int, to_ms: int, only: dict[str, tuple[int, int]] | None = None) -> Iterator[bytes]:
        step_ms = max(self.batch_ms, BATCH_SPAN_MS // self.batch_ms * self.batch_ms)
        for first in range(from_ms, to_ms, step_ms):
            yield self._batch(first, min(first + step_ms, to_ms), only)

    def _batch(self, from_ms: int, to_ms: int, only: dict[str, tuple[int, int]] | None = None) -> bytes:
        """A batch; with `only`, of these rows and spans, and null for all others."""
        bins = (to_ms - from_ms) // self.batch_ms
        values = np.full((2 * len(self._rows), bins), np.nan)
        marks = np.zeros(values.shape, dtype=np.bool_)
        for place, row in enumerate(self._rows):
            samples = self._polls.nodes[row.node].samples
            first, end = (from_ms, to_ms) if only is None else only.get(row.name, (0, 0))
            first, end = max(first, from_ms), min(end, to_ms, self._available(row))
            if samples is None or first >= end:
                continue
            part = slice((first - from_ms) // self.batch_ms, (end - from_ms) // self.batch_ms)
            found = bin_samples(samples, row.rails, first, end, self.batch_ms, live=True)
            values[2 * place : 2 * place + 2, part], marks[2 * place : 2 * place + 2, part] = found
        return batch_event(to_ms, from_ms * MILLISECOND_NS, values, find_places(marks))
