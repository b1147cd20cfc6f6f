"""Aligns the clock of a trace with that of a recording, by cross-correlation of the ends of communication.

The profiler converts the GPU's stamps to the clock of its host, so both clocks are the same on one node. A kernel
starts before its traffic, by the time that it waits, but ends with it. Hence the ends are correlated: the falls of the
share of each sample that communication kernels cover, and the falls of the share in which the wire was active.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ibpulse.core.arrays import Floats
from ibpulse.workbench.overlap.intervals import IntervalSet
from ibpulse.workbench.overlap.wire_activity import WireActivity

REACH_NS = 50_000_000
COARSE_NS, FINE_NS = 1_000_000, 50_000
LEAST_CORRELATION, LEAST_LEAD = 0.5, 0.1
APART_SAMPLES = 1.5
"""Lags closer than this share samples with the best one, so they are no rivals; beyond it the clocks differ."""
LEAST_ENDS = 5
LEAST_SAMPLES = 20


@dataclass(frozen=True, slots=True)
class ClockMatch:
    """How well the ends of communication match the ends of traffic, and at which lag.

    `lag_ns` is how much later the wire is than the trace. `rival` is the best correlation at another lag within 50 ms.
    `ends` is the sum of the falls of the wire, about the number of bursts that ended. `problem` says why the clocks
    cannot be aligned, empty if they can.
    """

    lag_ns: int = 0
    correlation: float = 0.0
    rival: float = 0.0
    ends: float = 0.0
    problem: str = ""


def match_clocks(communication: IntervalSet, wire: WireActivity) -> ClockMatch:
    """The lag of the wire behind communication kernels that use it."""
    if not communication.starts.size:
        return ClockMatch(problem="no communication kernel uses the wire")
    begin = int(communication.starts[0]) - 2 * REACH_NS
    end = int(communication.ends[-1]) + 2 * REACH_NS
    first = max(0, int(np.searchsorted(wire.edges_ns, begin, side="right")) - 1)
    last = min(wire.shares.size, int(np.searchsorted(wire.edges_ns, end)))
    if last - first < LEAST_SAMPLES:
        return ClockMatch(problem="the recording has less than 20 samples of the time of the trace")
    edges, shares = wire.edges_ns[first : last + 1], wire.shares[first:last]
    falls = _falls(shares)
    known = ~np.isnan(falls)
    ends = float(falls[known].sum())
    if ends < LEAST_ENDS:
        return ClockMatch(ends=ends, problem=f"only {ends:.0f} bursts end on the wire, and it takes {LEAST_ENDS}")

    def correlate(lag_ns: int) -> float:
        covered = communication.shift(lag_ns).lengths_ns(edges[:-1], edges[1:]) / wire.interval_ns
        return _correlation(_falls(covered)[known], falls[known])

    coarse = np.arange(-REACH_NS, REACH_NS + 1, COARSE_NS)
    found = np.array([correlate(int(lag)) for lag in coarse])
    around = coarse[int(found.argmax())] + np.arange(-COARSE_NS, COARSE_NS + 1, FINE_NS)
    fine = np.array([correlate(int(lag)) for lag in around])
    # of equal lags, the middle one
    best = np.flatnonzero(fine >= fine.max() - 1e-9)
    lag = int(around[best[best.size // 2]])
    apart = np.abs(coarse - lag) > APART_SAMPLES * wire.interval_ns
    rival = float(found[apart].max(initial=0.0))
    match = ClockMatch(lag, float(fine.max()), rival, ends)
    return ClockMatch(lag, match.correlation, rival, ends, _problem(match, wire.interval_ns))


def _problem(match: ClockMatch, interval_ns: float) -> str:
    if match.correlation < LEAST_CORRELATION:
        return (
            f"the correlation of communication with the wire is {match.correlation:.2f}, below {LEAST_CORRELATION}: "
            "another node, another clock, or other traffic"
        )
    if match.correlation - match.rival < LEAST_LEAD:
        return (
            f"the correlation is {match.correlation:.2f} at a lag of {match.lag_ns / 1e6:+.1f} ms and "
            f"{match.rival:.2f} at another one: not clear, communication is too regular or too short for the samples"
        )
    most_ns = APART_SAMPLES * interval_ns
    if abs(match.lag_ns) > most_ns:
        leads = "leads" if match.lag_ns < 0 else "trails"
        return (
            f"the wire {leads} the trace by {abs(match.lag_ns) / 1e6:.1f} ms, beyond {most_ns / 1e6:.0f} ms: "
            f"another node, or a clock that was set in between; if neither, add --shift={-match.lag_ns / 1e6:.1f}ms"
        )
    return ""


def _falls(shares: Floats) -> Floats:
    """How much less is active in each sample than in the one before it: (samples - 1,), NaN next to missing ones."""
    return np.maximum(0.0, -np.diff(shares))


def _correlation(first: Floats, second: Floats) -> float:
    """Pearson's correlation, 0 if one of both is constant."""
    a, b = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else 0.0
