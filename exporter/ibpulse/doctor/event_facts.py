"""What the event log of a running daemon says about the time before doctor ran."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ibpulse.events.event import Event, started_states
from ibpulse.events.event_file import NAME, read_events
from ibpulse.units import SECOND_NS

# links that flap and clocks that are set are reported for so long
RECENT_NS = 3600 * SECOND_NS
# a port that neither the fabric nor the ring has is reported for so long
GONE_NS = 24 * RECENT_NS
UNREADABLE = frozenset({"unreadable", "hung"})
_SUBJECT = re.compile(r"[\w.-]*(?::[0-9]+)?", re.ASCII)
_UNPRINTABLE = re.compile(r"[^ -~]+")


@dataclass(frozen=True, slots=True)
class EventFacts:
    """The events of the running daemon in the order in which they were noticed, read at the wall time `now_ns`.

    `problem` is the reason if the log cannot be read; a daemon of version 0.1 has no log and thus no events.
    """

    events: tuple[Event, ...] = ()
    now_ns: int = 0
    problem: str = ""

    def gone_ports(self) -> dict[str, Event]:
        """The ports that have disappeared and not come back, each with the event."""
        return {name: event for name, event in self._last_changes().items() if event.after is None}

    def unreadable_ports(self) -> dict[str, Event]:
        """The ports that the daemon cannot read, each with the event since which that is so."""
        begins: dict[str, Event] = {}
        last = self._last_changes()
        for event in self.events:
            if event.after is not None and (event.before is None or event.before.problem != event.after.problem):
                begins[event.subject] = event
        return {
            name: begins.get(name, event)
            for name, event in last.items()
            if event.after is not None and event.after.problem in UNREADABLE
        }

    def recent(self, *kinds: str) -> list[Event]:
        """The events of these kinds in the last hour."""
        return [event for event in self.events if event.kind in kinds and self.is_within(event, RECENT_NS)]

    def is_within(self, event: Event, span_ns: int) -> bool:
        """Whether the event is not older than this."""
        return self.now_ns - event.time_ns <= span_ns

    def link_downs(self) -> Counter[str]:
        """How often the link of each port went down in the last hour."""
        downs: Counter[str] = Counter()
        for event in self.recent("link-down", "link-flap"):
            flaps = event.details.get("link_downed", 1)
            downs[event.subject] += flaps if event.kind == "link-flap" and isinstance(flaps, int) and flaps > 0 else 1
        return downs

    def _last_changes(self) -> Mapping[str, Event]:
        """The last event that gave each port a state, or took it away."""
        last: dict[str, Event] = {}
        for event in self.events:
            for name, state in (started_states(event) or {}).items():
                last.setdefault(name, replace(event, subject=name, after=state))
            if event.before is not None or event.after is not None:
                last[event.subject] = event
        return {name: event for name, event in last.items() if name.count(":") == 1 and _SUBJECT.fullmatch(name)}


def read_event_facts(ring_dir: Path) -> EventFacts:
    """The events next to the ring, without subjects and characters that a terminal would not show as text."""
    now_ns = time.time_ns()
    try:
        events = read_events(ring_dir / NAME)
    except OSError as error:
        return EventFacts(now_ns=now_ns, problem=f"event log {ring_dir / NAME} cannot be read: {error.strerror}")
    except ValueError as error:
        return EventFacts(now_ns=now_ns, problem=_UNPRINTABLE.sub("?", str(error)))
    return EventFacts(_make_printable(events), now_ns)


def _make_printable(events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(
        replace(event, text=_UNPRINTABLE.sub("?", event.text)) for event in events if _SUBJECT.fullmatch(event.subject)
    )


def moment_text(event: Event) -> str:
    """The time of an event: `2025-11-21 00:00:03 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(event.time_ns // SECOND_NS))
