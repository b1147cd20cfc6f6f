"""Triggers of captures: the local rules on each second, and notifications of Alertmanager (webhook, version 4).

Source: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median
from typing import Any

from ibpulse.agent.aggregator.snapshot import CARRYING, QUIET, Observation, Snapshot
from ibpulse.base.units import SECOND_NS
from ibpulse.core.captures import NODE_LABELS, Alert, Cooldown, host_of, join_labels
from ibpulse.core.defaults import TRAFFIC_WINDOW_NS
from ibpulse.core.events.event import is_port_name
from ibpulse.core.model import CAPTURE_ORIGINS

API, ALERTMANAGER, *_ = CAPTURE_ORIGINS
# earlier observations that the steps are compared with: at most, and at least
STEPS_KEPT, STEPS_NEEDED = 180, 60
# the period is accurate to 1 %
PERIOD_ERROR = 0.01
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Trigger:
    """A request for a capture: its `origin` (one of `CAPTURE_ORIGINS`), a short reason, and the wall time.

    `before_ns` and `after_ns` default to the settings when None.
    """

    origin: str
    reason: str
    instant_ns: int
    labels: Mapping[str, str] = field(default_factory=dict)
    before_ns: int | None = None
    after_ns: int | None = None


def ports_of(labels: Labels) -> str:
    """The ports or devices that labels name, like "mlx5_4:1, mlx5_5:1"; empty if they name none.

    Rules name a port as `mlx5_4:1`, alerts with two labels. Of several joined alerts, the ports are known only if all
    have one number.
    """
    devices, ports = (labels[name].split(",") if labels.get(name) else [] for name in ("device", "port"))
    if devices and len(ports) == 1:
        return ", ".join(f"{device}:{ports[0]}" for device in devices)
    return ", ".join(devices or filter(is_port_name, ports))


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """The thresholds of the rules.

    Stalled: after `regular_seconds` with a known step, traffic stays below `quiet_part` of the usual rate for
    `stall_steps` steps and at least `stall_seconds`. Lost: a rail that carried traffic for `carried_seconds` carries
    none for `lost_seconds`. MoE saturation: it begins after other traffic for 1.5 times `traffic_window_seconds`, the
    window used to find the signature. Slower: steps are longer by `slow_part` for `slow_seconds`, with less traffic.
    """

    regular_seconds: float = 20.0
    quiet_part: float = 0.01
    stall_steps: float = 5.0
    stall_seconds: float = 3.0
    carried_seconds: float = 10.0
    lost_seconds: float = 2.0
    traffic_window_seconds: float = TRAFFIC_WINDOW_NS / SECOND_NS
    slow_part: float = 0.10
    slow_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class StallState:
    """Seconds with a known step, its last length, the usual rate, and seconds of silence since."""

    regular_seconds: float = 0.0
    step_seconds: float = 0.0
    usual_bytes_per_second: float = 0.0
    quiet_seconds: float = 0.0


def find_stall(state: StallState, observation: Observation, options: RuleOptions) -> tuple[StallState, Labels | None]:
    """Detect traffic that stopped for several step periods after regular steps."""
    rate = observation.rate_bytes_per_second
    if rate is None:
        return state, None
    if rate > options.quiet_part * state.usual_bytes_per_second:
        return _step_on(state, observation, rate), None
    if state.regular_seconds < options.regular_seconds:
        return StallState(), None
    quiet = state.quiet_seconds + 1
    if quiet < max(options.stall_seconds, options.stall_steps * state.step_seconds):
        return replace(state, quiet_seconds=quiet), None
    return StallState(), {"step_seconds": f"{state.step_seconds:.3f}", "quiet_seconds": f"{quiet:g}"}


def _step_on(state: StallState, observation: Observation, rate: float) -> StallState:
    if observation.step_seconds is None or rate <= 0:
        return StallState(usual_bytes_per_second=rate)
    # a mean over about ten seconds, because the number of steps per second varies
    usual = state.usual_bytes_per_second or rate
    return StallState(state.regular_seconds + 1, observation.step_seconds, usual + 0.1 * (rate - usual))


@dataclass(frozen=True, slots=True)
class RailTimes:
    """Seconds for which a rail carried traffic, and seconds since it was lost."""

    carried_seconds: float = 0.0
    lost_seconds: float = 0.0


Rails = Mapping[str, RailTimes]
"""The rails that have carried traffic, by name."""


def find_lost_rail(rails: Rails, observation: Observation, options: RuleOptions) -> tuple[Rails, Labels | None]:
    """Detect rails that carried traffic and now are down, gone, or idle while others are busy."""
    after: dict[str, RailTimes] = {}
    lost: dict[str, str] = {}
    for name in sorted({*rails, *observation.rails}):
        rail, now = rails.get(name, RailTimes()), observation.rails.get(name, "gone")
        if now == CARRYING:
            after[name] = RailTimes(rail.carried_seconds + 1)
        elif now == QUIET:
            after[name] = replace(rail, lost_seconds=0.0)
        elif rail.carried_seconds >= options.carried_seconds:
            after[name] = replace(rail, lost_seconds=rail.lost_seconds + 1)
            if after[name].lost_seconds >= options.lost_seconds:
                lost[name] = now
                del after[name]
    return after, {"port": ",".join(lost), "state": ",".join(dict.fromkeys(lost.values()))} if lost else None


@dataclass(frozen=True, slots=True)
class OtherTrafficState:
    """Seconds of traffic that does not resemble an MoE run, and whether that was long enough."""

    other_seconds: float = 0.0
    armed: bool = False


def find_saturation(
    state: OtherTrafficState, observation: Observation, options: RuleOptions
) -> tuple[OtherTrafficState, Labels | None]:
    """Detect sustained MoE saturation on a node that carried other traffic before."""
    if observation.moe_saturated:
        return OtherTrafficState(), {"signature": observation.signature} if state.armed else None
    rate = observation.rate_bytes_per_second
    if rate is None:
        return state, None
    # a job that has just begun has no signature for one window, which is not a change
    if rate <= 0:
        return OtherTrafficState(), None
    if observation.signature == "moe_like":
        return replace(state, other_seconds=0.0), None
    other = state.other_seconds + 1
    return OtherTrafficState(other, state.armed or other >= 1.5 * options.traffic_window_seconds), None


Steps = tuple[tuple[float, float], ...]
"""Step periods and rates of the last minutes, one pair per observation, oldest first."""


def find_slower_step(earlier: Steps, observation: Observation, options: RuleOptions) -> tuple[Steps, Labels | None]:
    """Detect steps that take longer while traffic drops; a longer period alone may be a multiple of the true one."""
    rate = observation.rate_bytes_per_second
    if rate is None:
        return earlier, None
    if observation.step_seconds is None:
        return (), None
    pairs = (*earlier[-STEPS_KEPT:], (observation.step_seconds, rate))
    count = max(1, round(options.slow_seconds))
    before, now = pairs[:-count], pairs[-count:]
    if len(before) < STEPS_NEEDED:
        return pairs, None
    usual, usual_rate = median(step for step, _ in before), sum(rate for _, rate in before) / len(before)
    longest = usual * (1 + options.slow_part - PERIOD_ERROR)
    less = sum(rate for _, rate in now) / len(now) < usual_rate * (1 - options.slow_part / 3)
    if not less or any(step < longest for step, _ in now):
        return pairs, None
    # the new step is the usual one from now on
    return (), {"step_seconds": f"{observation.step_seconds:.3f}", "usual_step_seconds": f"{usual:.3f}"}


RULES: Mapping[str, tuple[Any, Callable[[Any, Observation, RuleOptions], tuple[Any, Labels | None]]]] = {
    "traffic-stalled": (StallState(), find_stall),
    "rail-lost": ({}, find_lost_rail),
    "moe-saturation": (OtherTrafficState(), find_saturation),
    "step-slower": ((), find_slower_step),
}
"""The initial state and the function of each rule."""


class LocalRules:
    """Evaluates the rules of the given names on every second."""

    def __init__(self, names: Sequence[str], cooldown_ns: int, options: RuleOptions) -> None:
        self._states = {name: RULES[name][0] for name in names}
        self._cooldown_ns = cooldown_ns
        self._options = options
        self._fired_tick: dict[str, int] = {}

    def evaluate(self, snapshot: Snapshot) -> list[Trigger]:
        """The captures triggered by the seconds of a snapshot; call it once for each snapshot."""
        tick_seconds = snapshot.sampler.interval_seconds
        return [trigger for second in snapshot.seconds for trigger in self._evaluate_second(second, tick_seconds)]

    def _evaluate_second(self, second: Observation, tick_seconds: float) -> Iterator[Trigger]:
        for name, state in self._states.items():
            self._states[name], labels = RULES[name][1](state, second, self._options)
            elapsed_ns = (second.end_tick - self._fired_tick.get(name, -inf)) * tick_seconds * SECOND_NS
            if labels is not None and elapsed_ns >= self._cooldown_ns:
                self._fired_tick[name] = second.end_tick
                yield Trigger(name, name, second.end_wall_ns, labels)


class AlertReceiver:
    """Selects the alerts that trigger a capture: those firing on this node, each once per cool-down.

    Times are those of the monotonic clock.
    """

    def __init__(self, names: Collection[str], cooldown_ns: int) -> None:
        self._names = tuple(name.lower() for name in names)
        self._cooldown = Cooldown(cooldown_ns)

    def choose(self, alerts: Iterable[Alert], now_ns: int) -> list[Alert]:
        """The firing alerts that name this node or no node and were not captured within the cool-down."""
        return [
            alert
            for alert in alerts
            if alert.firing and self._is_here(alert.labels) and not self._cooldown.covers(alert.fingerprint, now_ns)
        ]

    def remember(self, alerts: Iterable[Alert], now_ns: int) -> None:
        """Record that these alerts were captured."""
        for alert in alerts:
            self._cooldown.begin(alert.fingerprint, now_ns)

    def _is_here(self, labels: Mapping[str, str]) -> bool:
        named = [host_of(labels[label]) for label in NODE_LABELS if labels.get(label)]
        return not named or any(self._is_mine(host) for host in named)

    def _is_mine(self, host: str) -> bool:
        try:
            return is_own_address(ipaddress.ip_address(host))
        except ValueError:
            return host == "localhost" or any(_same_host(host, name) for name in self._names)


def make_trigger(alerts: Sequence[Alert], now_ns: int, oldest_ns: int) -> Trigger:
    """The trigger for these alerts at their earliest start, or at `now_ns` if none began since `oldest_ns`."""
    starts = [alert.starts_ns for alert in alerts if alert.starts_ns is not None]
    began_ns = min((start for start in starts if oldest_ns <= start <= now_ns), default=now_ns)
    labels = join_labels([alert.labels for alert in alerts])
    return Trigger(ALERTMANAGER, labels.get("alertname", "alert"), began_ns, labels)


def is_own_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address belongs to this node, checked by binding a socket to it. Sends no packet."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    if address.is_unspecified:
        return False
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _same_host(host: str, name: str) -> bool:
    """Whether two host names are equal, or one is the short form of the other."""
    if "." in host and "." in name:
        return host == name
    return host.partition(".")[0] == name.partition(".")[0]
