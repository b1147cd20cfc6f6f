"""Compares the signs that ibpulse finds on simulated ports with the truth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.congestion.drivers import Observation, observe
from tests.congestion.network import PORTS, Limit
from tests.congestion.readings import LABELS, UNKNOWN, label
from tests.congestion.scenarios import draw

SCENARIOS = 200
BLAMES = [LABELS.index("path"), LABELS.index("receiver")]
# The sign of each limit; of a port at the speed of its line, where nothing else limits, no sign speaks.
EXPECTED = {
    Limit.SOURCE: "source",
    Limit.UPLINK: "path",
    Limit.EGRESS: "path",
    Limit.DRAIN: "receiver",
    Limit.BUFFERS: "receiver",
    Limit.LOSS: "loss",
    Limit.LINK: "link",
    Limit.LINE: UNKNOWN,
}
LIMITED = [limit for limit, expected in EXPECTED.items() if expected != UNKNOWN]
ROWS = {
    Limit.SOURCE: "the source offers less",
    Limit.UPLINK: "an uplink shared with others",
    Limit.EGRESS: "the switch port of the receiver",
    Limit.DRAIN: "a receiver that empties its buffer slowly",
    Limit.BUFFERS: "a receiver without posted buffers",
    Limit.LOSS: "lost packets",
    Limit.LINK: "its own link",
    Limit.LINE: "nothing but its line rate",
}


@dataclass(frozen=True)
class Score:
    """How many intervals of each limit had each sign: `counts` is (`Limit`, `LABELS`).

    Of the intervals that `only_source` limits, `blamed` have a sign of path or receiver.
    """

    counts: Any
    only_source: int
    blamed: int

    def right(self) -> float:
        """Share of the signs that are the truth; none is, where only the line rate limits."""
        signs = self.counts[:, : LABELS.index(UNKNOWN)]
        good = sum(self.counts[limit, LABELS.index(EXPECTED[limit])] for limit in LIMITED)
        return float(good / signs.sum())

    def unknown(self) -> float:
        """Share of the intervals in which something limits that have no sign."""
        return float(self.counts[LIMITED, LABELS.index(UNKNOWN)].sum() / self.counts[LIMITED].sum())

    def shares(self, limit: Limit) -> Any:
        """Share of each label in the intervals of a limit (LABELS,)."""
        return self.counts[limit] / max(1, self.counts[limit].sum())


def score(observations: Iterable[Observation], live: bool = False) -> Score:
    """Compare the truth with the label of each port; idle ports do not count.

    With `live`, only where the counters tell.
    """
    counts, source, blamed = np.zeros((len(Limit), len(LABELS)), np.int64), 0, 0
    for seen in observations:
        labels = np.stack([label(seen, port) for port in range(PORTS)])
        kept = seen.live() if live else np.ones(labels.shape, bool)
        np.add.at(counts, (seen.truth()[kept], labels[kept]), 1)
        source += int((seen.only_source() & kept).sum())
        blamed += int(np.isin(labels[seen.only_source() & kept], BLAMES).sum())
    counts[Limit.IDLE] = 0
    return Score(counts, source, blamed)


def measure(scenarios: int = SCENARIOS) -> Mapping[str, Sequence[str]]:
    """The cells of the tables in docs/accuracy.md, by the first cell of their rows."""
    observations = observe([draw(seed) for seed in range(scenarios)])
    both = [score(observations, live=True), score(observations)]
    live, _ = both
    rows = {name: [f"{live.counts[limit].sum():,}"] for limit, name in ROWS.items()}
    for limit, name in ROWS.items():
        rows[name] += [f"{100 * share:.1f}" for share in live.shares(limit)]
    rows["signs that are right"] = [f"{100 * each.right():.1f} %" for each in both]
    rows["unknown, where something limits"] = [f"{100 * each.unknown():.1f} %" for each in both]
    rows["path or receiver, where only the source limits"] = [f"{each.blamed} of {each.only_source:,}" for each in both]
    return rows
