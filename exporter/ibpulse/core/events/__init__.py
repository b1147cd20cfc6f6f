"""What happened on this node and when, and the state of every port at any moment of the past.

`event` defines the kinds and their form as JSON, `event_file` keeps them on disk, `log` holds them in memory,
`port_history` answers which state a port was in, `watch` compares each scan of the node with the one before,
`phase_events` records what the aggregator finds.
"""

from ibpulse.core.events.event import KINDS, Event
from ibpulse.core.events.log import EventLog
from ibpulse.core.events.port_history import PortHistory

__all__ = ["KINDS", "Event", "EventLog", "PortHistory"]
