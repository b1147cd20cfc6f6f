"""What every workload yields: steps of piecewise-constant rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

NODE_RAILS = 8
LINE_BYTES_PER_SECOND = 50e9  # 400 Gb/s, one direction


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a job: segments in order, each with a constant rate.

    `durations_ns` is int64 and positive. `rates_bytes_per_second` is float64: the bytes per second of one port of
    full weight, in one direction.
    """

    durations_ns: npt.NDArray[np.int64]
    rates_bytes_per_second: npt.NDArray[np.float64]


class Workload(Protocol):
    """A job as the wire sees it. It is a value: every random number comes from the generator that it is given."""

    @property
    def name(self) -> str:
        """The name that the command line takes."""
        ...

    def step(self, rng: np.random.Generator) -> Step:
        """The next step."""
        ...

    def weights(self, rails: int) -> npt.NDArray[np.float64]:
        """The part of the step's rate that each rail carries, (rails, 2): transmit, receive."""
        ...


def even_weights(rails: int, idle_rails: tuple[int, ...] = ()) -> npt.NDArray[np.float64]:
    """Full weight on every rail except the idle ones of each node of eight, (rails, 2).

    A fabric of more than eight rails repeats the node, one of fewer is cut from it.
    """
    busy = [0.0 if rail % NODE_RAILS in idle_rails else 1.0 for rail in range(rails)]
    return np.repeat(np.array(busy), 2).reshape(rails, 2)


def build_step(spans: list[tuple[float, float, float]], length_seconds: float) -> Step:
    """The step of `length_seconds` in which each span (begin, end, rate) is busy and all else is silent.

    Spans are in seconds, in order, and do not overlap. Edges fall on whole nanoseconds; what rounds to nothing is
    left out.
    """
    edges = [0]
    rates: list[float] = []
    for begin, end, rate in spans:
        edges += [round(begin * 1e9), round(end * 1e9)]
        rates += [0.0, rate]
    edges.append(round(length_seconds * 1e9))
    rates.append(0.0)
    instants: npt.NDArray[np.int64] = np.array(edges, dtype=np.int64)
    durations = instants[1:] - instants[:-1]
    keep = durations > 0
    return Step(durations[keep], np.array(rates)[keep])
