"""Finds the phases of a job in its traffic: first traffic, first regular step, quiet at a barrier, checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ibpulse.analysis.checkpoints import find_checkpoints
from ibpulse.analysis.phase import BARRIER, FIRST_STEP, FIRST_TRAFFIC, Phase, PhaseRules, PhaseTraffic
from ibpulse.analysis.regular_steps import TOLERANCE
from ibpulse.analysis.traffic_parts import PeriodFinder, Stretch, TrafficParts

# the steps at the beginning that have no edge on both sides, and the one in which the edge lies
EDGE_STEPS = 3


def find_phases(traffic: PhaseTraffic, find_period: PeriodFinder, rules: PhaseRules | None = None) -> tuple[Phase, ...]:
    """The phases in order of their beginning; `find_period` is asked for parts of the samples.

    Law: multiplying all rates, the active threshold and the bytes of the rules by the same number changes only the
    bytes. Missing data never counts as silence.
    """
    parts = TrafficParts(traffic, find_period, rules or PhaseRules())
    found = list(find_checkpoints(parts))
    for stretch in parts.stretches:
        found += [*_find_start(parts, stretch, found), *_find_barriers(parts, stretch, found)]
    return tuple(sorted(found, key=lambda phase: phase.first))


def _find_start(parts: TrafficParts, stretch: Stretch, found: Sequence[Phase]) -> Iterator[Phase]:
    """The first traffic of a stretch and its first regular step; nothing if a checkpoint explains the silence."""
    start = _find_first_traffic(parts, stretch)
    quiet = stretch.first - parts.start_quiet, stretch.first
    if start is not None and not any(each.certain and each.overlaps(*quiet) for each in found):
        yield start
        yield from _find_first_step(parts, stretch, start)


def _find_first_traffic(parts: TrafficParts, stretch: Stretch) -> Phase | None:
    if stretch.lead is None:
        return None
    pauses, rules, traffic, lead = parts.pauses, parts.rules, parts.traffic, stretch.lead
    length, missing, tail = (int(each[lead]) for each in (pauses.samples, pauses.missing, pauses.tail))
    long = tail >= parts.start_quiet
    silent = tail if long else length - missing
    # a shorter silence is a guess if the rest of it is missing or came before the data
    if silent < max(parts.samples(rules.least_quiet_seconds), parts.long_pause(stretch.steps)):
        return None
    if not long and missing > rules.most_missing * length:
        return None
    if traffic.troubled[stretch.first - silent : stretch.first + 1].any():
        doubt = "the link of a rail was down in the silence"
    elif missing and not long:
        doubt = parts.missing_text(missing)
    elif not long:
        doubt = "the silence before it began earlier than the data"
    else:
        doubt = _doubt_duration(parts, stretch)
    first = stretch.first if tail else int(np.flatnonzero(~np.isnan(traffic.rails[: stretch.first]))[-1]) + 1
    return Phase(FIRST_TRAFFIC, first, stretch.first + 1, traffic.resolution, doubt, parts.seconds(silent))


def _doubt_duration(parts: TrafficParts, stretch: Stretch) -> str:
    seconds = parts.seconds(stretch.end - stretch.first)
    if seconds >= parts.rules.lasting_seconds:
        return ""
    return f"the {'data' if stretch.end == len(parts.traffic.rails) else 'traffic'} ends {seconds:.2f} s later"


def _find_first_step(parts: TrafficParts, stretch: Stretch, start: Phase) -> Iterator[Phase]:
    steps, pauses = stretch.steps, parts.pauses
    index = steps.in_a_row()
    if index is None:
        return
    first, end, late = round(steps.begin[index]), round(steps.end[index]), 0
    missing = int(np.isnan(parts.traffic.rails[start.first : end]).sum())
    doubts = [start.doubt] if start.doubt else [parts.missing_text(missing)] if missing else []
    silences = (pauses.samples >= parts.long_pause(steps)) & (pauses.end <= first)
    begin = int(pauses.end[silences].max(initial=stretch.first))
    ahead = first - begin
    if not steps.visible and ahead > EDGE_STEPS * steps.length:
        late = math.ceil(EDGE_STEPS * steps.length)
        doubts.append("no silence separates the steps, so it may be up to three steps earlier")
    elif ahead and (not steps.visible or ahead < (1 - TOLERANCE) * steps.length):
        first, end, late = begin, begin + round(steps.length), ahead
        doubts.append(f"regular steps are only seen from {parts.seconds(ahead):.2f} s later on")
    yield Phase(FIRST_STEP, first, end, parts.traffic.resolution + late, "; ".join(doubts))


def _find_barriers(parts: TrafficParts, stretch: Stretch, found: Sequence[Phase]) -> Iterator[Phase]:
    """Long silences of all rails within regular steps, but not those of checkpoints or with a link down."""
    pauses, steps, least = parts.pauses, stretch.steps, parts.long_pause(stretch.steps)
    silent = pauses.samples - pauses.missing
    chosen = (pauses.first > stretch.first) & (pauses.end < stretch.end) & (silent >= max(1, least))
    chosen &= pauses.missing <= parts.rules.most_missing * pauses.samples
    for index in np.flatnonzero(chosen) if least else ():
        first, end, missing = (int(each[index]) for each in (pauses.first, pauses.end, pauses.missing))
        other = parts.traffic.troubled[first:end].any() or any(each.overlaps(first, end) for each in found)
        if not other and parts.near(steps, first, -1):
            doubts = [parts.missing_text(missing)] if missing else []
            doubts += [] if parts.near(steps, end, 1) else ["no regular steps follow it"]
            seconds = parts.seconds(silent[index])
            yield Phase(BARRIER, first, end, parts.traffic.resolution, "; ".join(doubts), seconds)
