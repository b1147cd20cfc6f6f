"""Signals with exactly known bytes at every instant, and their statistics computed directly from the definitions.

It does not use `analysis`, because these signals serve to test that package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from ibpulse.workbench.simulate.timeline import Schedule, Workload

Floats = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]

RAILS = 8
RATE = 20e9
TICK_NS = 10_000_000
ACTIVE = 0.1e9
SECONDS = 90
TIMESCALES_MS = (10, 50, 100, 1000)


@dataclass(frozen=True)
class Signal:
    """`flowed` returns the bytes (instants, rails, 2) since instant 0; `period` is set for periodic signals."""

    flowed: Callable[[Times], Floats]
    period: float = float("nan")


def everywhere(one: Callable[[Floats], Floats]) -> Callable[[Times], Floats]:
    """The same bytes on all rails in both directions."""
    return lambda times: np.broadcast_to(one(times / 1e9)[:, None, None], (len(times), RAILS, 2))


def wave(period: float, duty: float, shift: float = 0.0) -> Callable[[Floats], Floats]:
    """Bytes of a square wave that is busy for `duty` of every period, from `shift` on."""

    def flowed(seconds: Floats) -> Floats:
        whole, rest = np.divmod(seconds + shift, period)
        return RATE * (whole * period * duty + np.minimum(rest, period * duty))

    return flowed


def shifted(period: float, duty: float) -> Callable[[Times], Floats]:
    """A square wave on every rail, each delayed by an eighth of the period relative to its neighbour."""
    ways = [wave(period, duty, rail * period / RAILS) for rail in range(RAILS)]

    def flowed(times: Times) -> Floats:
        rails = np.stack([way(times / 1e9) for way in ways], axis=1)
        return np.repeat(rails[:, :, None], 2, axis=2)

    return flowed


def ramp(period: float) -> Callable[[Floats], Floats]:
    """Bytes of a rate that rises from 0 to the full rate in every period."""

    def flowed(seconds: Floats) -> Floats:
        whole, rest = np.divmod(seconds, period)
        return RATE * (whole * period / 2 + rest**2 / (2 * period))

    return flowed


def poisson(busy: float, idle: float) -> Callable[[Floats], Floats]:
    """Bytes of bursts and gaps with exponentially distributed lengths with these means."""
    rng = np.random.default_rng(7)
    count = int(2 * SECONDS / (busy + idle))
    lengths = np.stack([rng.exponential(busy, count), rng.exponential(idle, count)], axis=1)
    edges = np.concatenate([[0.0], np.cumsum(lengths)])
    moved = np.concatenate([[0.0], np.cumsum(lengths * np.array([RATE, 0.0]))])
    return lambda seconds: np.interp(seconds, edges, moved)


def played(workload: Workload, idle: Sequence[int] = ()) -> Signal:
    """A simulated workload with idle rails; its period is the mean step of its schedule."""
    carrying = np.ones((RAILS, 1))
    carrying[list(idle)] = 0
    schedule = Schedule(workload, rails=RAILS)
    starts = schedule.step_starts_ns(0, SECONDS * 1_000_000_000)
    period = float(np.diff(starts).mean()) / 1e9
    return Signal(lambda times: schedule.cumulative_bytes(times) * carrying, period)


def find_truth(signal: Signal, begin_ns: int, end_ns: int) -> dict[str, float]:
    """All statistics by definition, from exact bins of the tick and of each time scale."""
    edges = np.arange(begin_ns, end_ns + 1, TICK_NS)
    flowed = signal.flowed(edges)
    rates = np.diff(flowed.sum(axis=(1, 2))) / (TICK_NS / 1e9)
    active = rates > ACTIVE
    runs = [(busy, len(list(group))) for busy, group in groupby(active.tolist())][1:-1]
    rails = (flowed[-1] - flowed[0]).sum(axis=1)
    found = {
        "mean": rates.mean(),
        "mean when active": rates[active].mean(),
        "peak": rates.max(),
        "duty cycle": active.mean(),
        "burst length": _mean([length for busy, length in runs if busy]) * TICK_NS / 1e9,
        "gap length": _mean([length for busy, length in runs if not busy]) * TICK_NS / 1e9,
        "bursts": float(sum(busy for busy, _ in runs)),
        "Jain index": rails.sum() ** 2 / (RAILS * (rails**2).sum()),
        "step period": signal.period,
    }
    for scale_ms in TIMESCALES_MS:
        merged = rates.reshape(-1, scale_ms * 1_000_000 // TICK_NS).mean(axis=1)
        busy = merged[merged > ACTIVE]
        found[f"CV at {scale_ms} ms"] = busy.std() / busy.mean()
    return {name: float(value) for name, value in found.items()}


def _mean(values: Sequence[int]) -> float:
    return float(np.mean(values)) if values else float("nan")
