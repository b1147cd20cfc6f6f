"""Finds checkpoints: what a job writes to storage ports while its rails are silent or its steps are interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ibpulse.analysis.phase import CHECKPOINT, Phase
from ibpulse.analysis.regular_steps import NO_STEPS, RegularSteps, find_runs
from ibpulse.analysis.traffic_parts import TrafficParts
from ibpulse.arrays import Floats


def find_checkpoints(parts: TrafficParts) -> Iterator[Phase]:
    """The checkpoints in order; none without storage ports.

    Only what is transmitted counts: what a job receives from storage is input. A burst that comes without traffic of
    the rails shortly before it belongs to no job and is no checkpoint.
    """
    storage, rules = parts.traffic.storage, parts.rules
    if storage is None:
        return
    firsts, ends = find_runs(storage[0] > rules.active_bytes_per_second)
    if not len(firsts):
        return
    apart = firsts[1:] - ends[:-1] > parts.samples(rules.checkpoint_pause_seconds)
    chosen = zip(firsts[np.insert(apart, 0, True)].tolist(), ends[np.append(apart, True)].tolist(), strict=True)
    for first, end in chosen:
        burst = _Burst(first, end, storage[:, first:end])
        sent, received = (burst.moved * parts.traffic.interval_seconds).tolist()
        if sent >= rules.checkpoint_bytes and sent >= received:
            yield from _judge(parts, burst, sent, received)


@dataclass(frozen=True, slots=True)
class _Burst:
    """A burst on the storage ports, from sample `first` to before `end`; `rates` is (2, samples)."""

    first: int
    end: int
    rates: Floats

    @property
    def moved(self) -> Floats:
        """Transmitted and received, in bytes per second x samples."""
        return np.asarray(np.nansum(self.rates, axis=1))

    def share(self, first: int, end: int) -> float:
        """The share of what is transmitted that is transmitted in a part of the samples."""
        inside = self.rates[0, max(0, first - self.first) : max(0, end - self.first)]
        return float(np.nansum(inside) / self.moved[0])


def _judge(parts: TrafficParts, burst: _Burst, sent: float, received: float) -> Iterator[Phase]:
    traffic, rules = parts.traffic, parts.rules
    steps = next((each.steps for each in reversed(parts.stretches) if each.first < burst.first), NO_STEPS)
    silences = _find_silences(parts, burst, steps)
    stopped = any(burst.share(*part) >= rules.checkpoint_share for part in silences)
    part = max(silences if stopped else _find_interruptions(steps), key=lambda part: burst.share(*part), default=(0, 0))
    share, (first, end) = burst.share(*part), part
    if share < rules.checkpoint_share:
        return
    doubts = []
    if not stopped:
        doubts.append("regular steps are interrupted, but the rails are not silent")
    elif not parts.near(steps, first, -1):
        doubts.append("no regular steps come before it")
    elif share < rules.certain_share:
        doubts.append(f"only {100 * share:.0f} % of it was written while the rails were silent")
    missing = np.isnan(burst.rates).any(axis=0).sum() + np.isnan(traffic.rails[first:end]).sum()
    if missing:
        doubts.append(parts.missing_text(int(missing)))
    if stopped and traffic.troubled[first:end].any():
        doubts.append("the link of a rail was down in the silence")
    if burst.first == 0 or burst.end == len(traffic.rails):
        doubts.append("the data does not show all of it")
    silent = max(0, min(end, burst.end) - max(first, burst.first)) if stopped else 0
    yield Phase(
        CHECKPOINT,
        burst.first,
        burst.end,
        traffic.resolution,
        "; ".join(doubts),
        parts.seconds(silent),
        sent,
        received,
    )


def _find_silences(parts: TrafficParts, burst: _Burst, steps: RegularSteps) -> list[tuple[int, int]]:
    """Long silences of the rails with a part of the burst, which begin with the end of traffic not long before it."""
    pauses = parts.pauses
    least = max(parts.samples(parts.rules.least_quiet_seconds), parts.long_pause(steps))
    fits = (pauses.first < burst.end) & (pauses.end > burst.first) & (pauses.samples - pauses.missing >= least)
    fits &= (pauses.first > 0) & (pauses.first >= burst.first - parts.start_quiet)
    return list(zip(pauses.first[fits].tolist(), pauses.end[fits].tolist(), strict=True))


def _find_interruptions(steps: RegularSteps) -> list[tuple[int, int]]:
    """The parts between regular steps that are at least as long as a step."""
    parts = zip(steps.end[:-1].tolist(), steps.begin[1:].tolist(), strict=True)
    return [(round(end), round(begin)) for end, begin in parts if begin - end >= steps.length]
