"""Invariants under every fault. Each is a function that finds its violations in the evidence of an episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bench.faults.evidence import Evidence, excuses, gaps, seconds_of
from bench.faults.load import MAX_AGE_SECONDS
from bench.faults.testbed import HEIGHT, LASTING_JOBS, WINDOW_SECONDS
from ibpulse.base.errors import RecordingError
from ibpulse.core.recordings import load
from ibpulse.core.statistics.plausible import STEPS

HEALTHY_SECONDS = 5.0
NOISE_SECONDS = 2.0
# the longest gaps that a violation names
MAX_SHOWN = 3
# a peak stays in its window, and in the answers until the next second
LINGER_SECONDS = WINDOW_SECONDS + 5.0


@dataclass(frozen=True)
class Violation:
    """An invariant that did not hold, the time on the monotonic clock, and the value that shows it."""

    invariant: str
    at: float
    value: str


def sampled_on(evidence: Evidence) -> Iterator[Violation]:
    """Devices without a fault of their own are sampled throughout."""
    mine = [one for one in evidence.happened if one.end >= evidence.begin]
    # a busy machine costs the two daemons about the same, but neither the same moments nor the same short gaps
    machine = 2 * seconds_of(evidence.control_gaps)
    allowed = NOISE_SECONDS + machine + sum(one.effect.lost_seconds for one in mine)
    for device, spans in evidence.unsampled.items():
        if (seconds := seconds_of(spans)) > allowed:
            longest = ", ".join(
                f"{end - begin:.2f} s {begin - evidence.begin:.2f} s after the start"
                for begin, end in sorted(spans, key=lambda span: span[0] - span[1])[:MAX_SHOWN]
            )
            value = f"{device} unsampled for {seconds:.2f} s, allowed {allowed:.2f} s; {len(spans)} times, {longest}"
            yield Violation("sampled on", evidence.begin, value)


def healthy(evidence: Evidence) -> Iterator[Violation]:
    """/-/healthy answers 200 within the bound."""
    for probe in evidence.load.probes:
        # a probe that waits out a silence is excused by any part of it
        excused = any(begin <= probe.at + probe.seconds and probe.at <= end for begin, end in evidence.silent)
        if evidence.within(probe.at) and not excused and (probe.answer != 200 or probe.seconds > HEALTHY_SECONDS):
            yield Violation(
                "healthy", probe.at, f"{probe.answer} after {probe.seconds:.2f} s, allowed {HEALTHY_SECONDS:g} s"
            )


def no_false_rate(evidence: Evidence) -> Iterator[Violation]:
    """No exported rate, peak or total exceeds the truth by more than its documented uncertainty."""
    lies = [
        (one.occurrence.device, (one.begin, one.end + LINGER_SECONDS)) for one in evidence.happened if one.effect.lies
    ]
    for excess in evidence.load.rates.excesses:
        # the node is the sum of all devices
        spans = [span for device, span in lies if excess.device in (device, "")]
        if evidence.within(excess.at) and not excuses(spans, excess.at):
            who = excess.device or "node"
            yield Violation(
                "no false rate", excess.at, f"{who}: {excess.what} {excess.value:.4g}, truth {excess.bound:.4g}"
            )


def aggregated(evidence: Evidence) -> Iterator[Violation]:
    """Every second is aggregated: the newest one moves on, and none is skipped."""
    mine = [one for one in evidence.load.aggregated if evidence.within(one.at)]
    moved = [later.at for one, later in pairwise(mine) if later.until != one.until]
    for begin, end in gaps(moved, evidence, evidence.silent):
        if end - begin > MAX_AGE_SECONDS:
            yield Violation("aggregated", begin, f"/metrics shows no newer second for {end - begin:.1f} s")
    for one, later in pairwise(mine):
        if one.life == later.life and later.skipped > one.skipped:
            yield Violation("aggregated", later.at, f"{later.skipped - one.skipped:g} s skipped")
    if mine and not mine[-1].is_fresh:
        yield Violation("aggregated", mine[-1].at, f"the newest second is {mine[-1].age:.1f} s old")


def usable(evidence: Evidence) -> Iterator[Violation]:
    """Every answer can be parsed, whatever the names and numbers in it are."""
    for at, error in evidence.load.broken:
        if evidence.within(at):
            yield Violation("usable", at, error)


def jobs_kept(evidence: Evidence) -> Iterator[Violation]:
    """The jobs that last throughout are listed, each with one begin."""
    hidden = evidence.hidden
    mine = [one for one in evidence.load.listed if evidence.within(one.at) and not excuses(hidden, one.at)]
    for one in mine:
        if missing := LASTING_JOBS - one.begins.keys():
            yield Violation("jobs kept", one.at, f"{', '.join(sorted(missing))} not listed")
    for one, later in pairwise(mine):
        if one.begins != later.begins and not any(one.at < begin < later.at for begin, _ in hidden):
            yield Violation("jobs kept", later.at, f"begins were {one.begins}, are {later.begins}")


def running(evidence: Evidence) -> Iterator[Violation]:
    """The daemon runs until it is killed."""
    killed = [(one.begin, one.end) for one in evidence.happened if one.effect.ends_daemon]
    for at, words in evidence.testbed.service.ends:
        if evidence.within(at) and not excuses(killed, at):
            yield Violation("running", at, words)


def gateway_whole(evidence: Evidence) -> Iterator[Violation]:
    """The gateway lists jobs and the node that nothing happens to, whatever other nodes say."""
    for at, wrong in evidence.load.gateway:
        # its polls of a node that was slow are repeated after seconds
        late = [(begin, end + HEALTHY_SECONDS) for begin, end in evidence.stalls]
        if wrong and evidence.within(at) and not excuses(late, at):
            yield Violation("gateway whole", at, wrong)


def captures_true(evidence: Evidence) -> Iterator[Violation]:
    """No capture has a rate above the truth and its own uncertainty; an alert has one capture in its cool-down."""
    lies = [one for one in evidence.happened if one.effect.lies]
    for path in [] if lies else (evidence.testbed.place / "captures").rglob("*.parquet"):
        try:
            recording = load(path)
        except RecordingError:
            # it was displaced, or is of a disk that is full
            continue
        steps = recording.steps if recording.steps is not None else np.zeros(recording.bytes_per_second.shape)
        # they are rounded to whole steps
        bounds = HEIGHT * (1 + (steps + 1) / STEPS)
        above = np.nan_to_num(recording.bytes_per_second - bounds)
        if above.max(initial=0.0) > 0:
            place = np.unravel_index(above.argmax(), above.shape)
            most, bound = recording.bytes_per_second[place], bounds[place]
            yield Violation("captures true", evidence.end, f"{path.name}: {most:.4g} B/s, truth {bound:.4g} at most")
    mine = [one.effect for one in evidence.happened if one.end >= evidence.begin]
    taken = [at for at in evidence.load.alert_captures if evidence.within(at)]
    # another life of the daemon, and one without space for captures, takes another one
    if len(taken) > 1 and all(effect.settle_seconds for effect in mine):
        yield Violation("captures true", taken[-1], f"{len(taken)} captures of one alert within its cool-down")


INVARIANTS: tuple[Callable[[Evidence], Iterator[Violation]], ...] = (
    running,
    healthy,
    sampled_on,
    no_false_rate,
    aggregated,
    usable,
    jobs_kept,
    gateway_whole,
    captures_true,
)
