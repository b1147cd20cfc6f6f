"""The events of this node, and the state of every port at any moment of the past.

`event` defines the kinds and their form as JSON, `log` holds them in memory and on disk and answers which state a port
was in, `watch` records what changes from scan to scan and what the aggregator finds.
"""

from ibpulse.core.events.event import KINDS, Event
from ibpulse.core.events.log import EventLog, PortHistory

__all__ = ["KINDS", "Event", "EventLog", "PortHistory"]
