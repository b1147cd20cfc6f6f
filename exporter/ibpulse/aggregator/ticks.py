"""The sum over rails tick by tick, which every number of the node is made of. It must not keep anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.aggregator.samples import Seconds

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NodeTicks:
    """Rates of all rails together over whole seconds.

    `directions` is (2, seconds, ticks), 0 in holes; `measured` (seconds, ticks) is the time that a tick stands for, 0
    in holes; `good` (seconds, ticks) says which ticks are none.
    """

    directions: Floats
    measured: Floats
    good: npt.NDArray[np.bool_]

    @property
    def bandwidth(self) -> Floats:
        """Transmit + receive: (seconds, ticks), 0 in holes."""
        return np.asarray(self.directions[0] + self.directions[1])


def sum_rails(rails: Seconds) -> NodeTicks:
    """Sum over the rails that were sampled in a second.

    A tick at which one of those rails is a hole is a hole of the node. A rail without any sample in a second does
    not hide the others.
    """
    sampled = np.asarray(rails.good.any(axis=-1))
    whole = np.all(rails.good | ~sampled[..., None], axis=0)
    good = np.asarray(whole & np.any(sampled, axis=0)[:, None])
    rate = np.where(good, rails.bytes_per_second.sum(axis=0), 0.0)
    # the reads of one tick are microseconds apart: the node's tick lasts as long as theirs on average
    reads = np.maximum(2 * np.count_nonzero(sampled, axis=0), 1)[:, None]
    measured = np.where(good, rails.seconds.sum(axis=(0, 1)) / reads, 0.0)
    return NodeTicks(rate, measured, good)
