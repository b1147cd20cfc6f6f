"""What the sampler wrote about itself into the ring's header, as values. Reads words only."""

from __future__ import annotations

from itertools import accumulate

from ibpulse.aggregator.snapshot import Histogram, SamplerSnapshot
from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile

MAIN_LANE = 0
NS_PER_SECOND = 1e9
_LATENESS_BOUNDS = tuple(bound / NS_PER_SECOND for bound in at.LATENESS_BOUNDS_NS)
_DURATION_BOUNDS = tuple(bound / NS_PER_SECOND for bound in at.DURATION_BOUNDS_NS)


def read_sampler(ring: RingFile) -> SamplerSnapshot:
    """What the main sampler counted."""
    begin = at.lane_at(MAIN_LANE)
    words = ring.words[begin : begin + at.LANE_WORDS].tolist()
    return SamplerSnapshot(
        interval_seconds=ring.interval_ns / NS_PER_SECOND,
        ticks=words[at.L_TICKS],
        missed_ticks=words[at.L_MISSED],
        clock_steps=words[at.L_CLOCK_STEPS],
        cpu_seconds=words[at.L_CPU_NS] / NS_PER_SECOND,
        lateness=_histogram(words, at.L_LATENESS, words[at.L_LATENESS_SUM_NS], _LATENESS_BOUNDS),
        tick_duration=_histogram(words, at.L_DURATION, words[at.L_DURATION_SUM_NS], _DURATION_BOUNDS),
    )


def _histogram(words: list[int], first: int, sum_ns: int, bounds: tuple[float, ...]) -> Histogram:
    cumulative = tuple(accumulate(words[first : first + at.BUCKET_COUNT]))
    return Histogram(bounds, cumulative, sum_ns / NS_PER_SECOND)
