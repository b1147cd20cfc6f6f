"""The local rules at work: one look at every snapshot, each rule with its cool-down. It must not take a capture."""

from __future__ import annotations

from collections.abc import Sequence

from ibpulse.aggregator.snapshot import Snapshot
from ibpulse.capture.rules import RULES, RuleOptions
from ibpulse.capture.sight import see
from ibpulse.capture.trigger import Trigger

SECOND_NS = 1_000_000_000


class Watch:
    """Some of the rules, by name."""

    def __init__(self, names: Sequence[str], cooldown_ns: int, options: RuleOptions) -> None:
        self._states = {name: RULES[name].start for name in names}
        self._cooldown_ns = cooldown_ns
        self._options = options
        self._before: Snapshot | None = None
        self._fired_tick: dict[str, int] = {}

    def look(self, snapshot: Snapshot) -> list[Trigger]:
        """What the snapshot of one more second asks for."""
        before, self._before = self._before, snapshot
        sight = see(before, snapshot) if before else None
        if sight is None:
            return []
        triggers = []
        for name, state in self._states.items():
            self._states[name], labels = RULES[name].find(state, sight, self._options)
            if labels is not None and self._is_cool(name, snapshot):
                self._fired_tick[name] = snapshot.end_tick
                triggers.append(Trigger(name, name, sight.end_wall_ns, labels))
        return triggers

    def _is_cool(self, name: str, snapshot: Snapshot) -> bool:
        fired = self._fired_tick.get(name)
        if fired is None:
            return True
        passed_seconds = (snapshot.end_tick - fired) * snapshot.sampler.interval_seconds
        return passed_seconds * SECOND_NS >= self._cooldown_ns
