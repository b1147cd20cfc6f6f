"""Invariants under every fault. Each is a function that finds its violations in the evidence of an episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from bench.faults.evidence import Evidence, excuses, gaps
from bench.faults.load import MAX_AGE_SECONDS
from bench.faults.testbed import LASTING_JOBS, WINDOW_SECONDS

HEALTHY_SECONDS = 5.0
NOISE_SECONDS = 1.0
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
    allowed = NOISE_SECONDS + sum(one.effect.lost_seconds for one in mine)
    for device, seconds in evidence.lost_seconds().items():
        if seconds > allowed:
            yield Violation(
                "sampled on", evidence.begin, f"{device} unsampled for {seconds:.2f} s, allowed {allowed:.2f} s"
            )


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


INVARIANTS: tuple[Callable[[Evidence], Iterator[Violation]], ...] = (
    running,
    healthy,
    sampled_on,
    no_false_rate,
    aggregated,
    usable,
    jobs_kept,
)
