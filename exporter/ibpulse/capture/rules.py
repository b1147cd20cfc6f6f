"""The local rules: what of a node's traffic is worth a capture. Pure functions of what is seen; no clock, no file.

Each rule takes its state and what one second or a few showed, and gives the state after it, and labels when something
happened. A start, an end or a change of the job is nothing that happened: jobs start and end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from ibpulse.capture.sight import CARRYING, QUIET, Sight

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """When something has happened.

    Stalled: after `regular_seconds` of a known step, less than `quiet_part` of the usual traffic for `stall_steps`
    steps, at least `stall_seconds`. Lost: a rail that carried traffic for `carried_seconds` does not for
    `lost_seconds`. MoE saturation: it begins after other traffic of 1.5 `traffic_window_seconds`, the window in which
    the signature is found. Slower: `slow_seconds` of steps longer than those before by `slow_part`, and less traffic.
    """

    regular_seconds: float = 20.0
    quiet_part: float = 0.01
    stall_steps: float = 5.0
    stall_seconds: float = 3.0
    carried_seconds: float = 10.0
    lost_seconds: float = 2.0
    traffic_window_seconds: float = 60.0
    slow_part: float = 0.10
    slow_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class Stall:
    """How long the step was known, its last length, the usual rate, and how long there has been silence since."""

    regular_seconds: float = 0.0
    step_seconds: float = 0.0
    usual_bytes_per_second: float = 0.0
    quiet_seconds: float = 0.0


def find_stall(state: Stall, sight: Sight, options: RuleOptions) -> tuple[Stall, Labels | None]:
    """Traffic that stopped for several step periods after regular stepping."""
    rate = sight.rate_bytes_per_second
    if rate is None:
        return state, None
    if rate > options.quiet_part * state.usual_bytes_per_second:
        return _step_on(state, sight, rate), None
    if state.regular_seconds < options.regular_seconds:
        return Stall(), None
    quiet = state.quiet_seconds + sight.seconds
    if quiet < max(options.stall_seconds, options.stall_steps * state.step_seconds):
        return replace(state, quiet_seconds=quiet), None
    return Stall(), {"step_seconds": f"{state.step_seconds:.3f}", "quiet_seconds": f"{quiet:g}"}


def _step_on(state: Stall, sight: Sight, rate: float) -> Stall:
    if sight.step_seconds is None or rate <= 0:
        return Stall(usual_bytes_per_second=rate)
    # a mean over about ten seconds: single seconds hold more or fewer steps
    usual = state.usual_bytes_per_second or rate
    return Stall(state.regular_seconds + sight.seconds, sight.step_seconds, usual + 0.1 * (rate - usual))


@dataclass(frozen=True, slots=True)
class Rail:
    """How long a rail carried traffic, and how long it has been lost since."""

    carried_seconds: float = 0.0
    lost_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Rails:
    """Every rail that was seen carrying traffic."""

    by_name: Mapping[str, Rail] = field(default_factory=dict)


def find_lost_rail(state: Rails, sight: Sight, options: RuleOptions) -> tuple[Rails, Labels | None]:
    """Rails that carried traffic and now are down, gone, or idle while their siblings are not."""
    after: dict[str, Rail] = {}
    lost: dict[str, str] = {}
    for name in sorted({*state.by_name, *sight.rails}):
        rail, now = state.by_name.get(name, Rail()), sight.rails.get(name, "gone")
        if now == CARRYING:
            after[name] = Rail(rail.carried_seconds + sight.seconds)
        elif now == QUIET:
            after[name] = replace(rail, lost_seconds=0.0)
        elif rail.carried_seconds >= options.carried_seconds:
            after[name] = replace(rail, lost_seconds=rail.lost_seconds + sight.seconds)
            if after[name].lost_seconds >= options.lost_seconds:
                lost[name] = now
                del after[name]
    if not lost:
        return Rails(after), None
    return Rails(after), {"port": ",".join(lost), "state": ",".join(dict.fromkeys(lost.values()))}


@dataclass(frozen=True, slots=True)
class Onset:
    """How long traffic has flowed that does not resemble an MoE run; whether that was long enough."""

    other_seconds: float = 0.0
    armed: bool = False


def find_saturation(state: Onset, sight: Sight, options: RuleOptions) -> tuple[Onset, Labels | None]:
    """Sustained MoE saturation that begins in a node that carried other traffic before."""
    if sight.moe_saturated:
        return Onset(), {"signature": sight.signature} if state.armed else None
    rate = sight.rate_bytes_per_second
    if rate is None:
        return state, None
    # a job that has just begun looks like nothing for a window; it is no change
    if rate <= 0:
        return Onset(), None
    if sight.signature == "moe_like":
        return replace(state, other_seconds=0.0), None
    other = state.other_seconds + sight.seconds
    return Onset(other, state.armed or other >= 1.5 * options.traffic_window_seconds), None


@dataclass(frozen=True, slots=True)
class Steps:
    """Step periods and rates of the last minutes, one pair a sight, oldest first."""

    pairs: tuple[tuple[float, float], ...] = ()


# sights that the steps are compared with, and how many of them there must be
STEPS_KEPT, STEPS_NEEDED = 180, 60
# the period is good to a part in a hundred
PERIOD_ERROR = 0.01


def find_slower_step(state: Steps, sight: Sight, options: RuleOptions) -> tuple[Steps, Labels | None]:
    """Steps that take longer than before, while less flows: a period that doubles alone is another multiple of it."""
    rate = sight.rate_bytes_per_second
    if rate is None:
        return state, None
    if sight.step_seconds is None:
        return Steps(), None
    pairs = (*state.pairs[-STEPS_KEPT:], (sight.step_seconds, rate))
    count = max(1, round(options.slow_seconds / sight.seconds))
    before, now = pairs[:-count], pairs[-count:]
    if len(before) < STEPS_NEEDED:
        return Steps(pairs), None
    usual, usual_rate = median(step for step, _ in before), sum(rate for _, rate in before) / len(before)
    longest = usual * (1 + options.slow_part - PERIOD_ERROR)
    less = sum(rate for _, rate in now) / len(now) < usual_rate * (1 - options.slow_part / 3)
    if not less or any(step < longest for step, _ in now):
        return Steps(pairs), None
    # from here on the new step is the usual one
    return Steps(), {"step_seconds": f"{sight.step_seconds:.3f}", "usual_step_seconds": f"{usual:.3f}"}


@dataclass(frozen=True, slots=True)
class LocalRule:
    """A rule: its state at the start, and its function."""

    start: Any
    find: Callable[[Any, Sight, RuleOptions], tuple[Any, Labels | None]]


RULES: Mapping[str, LocalRule] = {
    "traffic-stalled": LocalRule(Stall(), find_stall),
    "rail-lost": LocalRule(Rails(), find_lost_rail),
    "moe-saturation": LocalRule(Onset(), find_saturation),
    "step-slower": LocalRule(Steps(), find_slower_step),
}
