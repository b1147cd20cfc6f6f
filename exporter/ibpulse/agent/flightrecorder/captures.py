"""The flight recorder with the local rules and the alert receiver that trigger it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from ibpulse.agent.aggregator.snapshot import Snapshot
from ibpulse.agent.flightrecorder.alerts import AlertReceiver
from ibpulse.agent.flightrecorder.recorder import FlightRecorder
from ibpulse.agent.flightrecorder.rules import LocalRules
from ibpulse.base.errors import CaptureError
from ibpulse.base.internal_errors import Occurrences

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Captures:
    """The captures of a node, and who may change them: anyone if `allow_unauthenticated`, else requests with a user.

    `default_span_ns` is the default time before and after the trigger of a capture; `failures` says which failures of
    the disk to log.
    """

    recorder: FlightRecorder
    rules: LocalRules
    alert_receiver: AlertReceiver
    default_span_ns: tuple[int, int]
    allow_unauthenticated: bool
    failures: Occurrences = field(default_factory=Occurrences)

    def note(self, snapshot: Snapshot) -> None:
        """Follow the ports of a snapshot, and start the captures that its seconds trigger."""
        self.recorder.note(snapshot)
        for trigger in self.rules.evaluate(snapshot):
            details = ", ".join(f"{name} {value!r}" for name, value in trigger.labels.items())
            try:
                pending = self.recorder.ask(trigger)
            except CaptureError as error:
                log.warning("%s (%s): no capture taken: %s", trigger.reason, details, error)
            else:
                log.info("%s (%s): writing capture %s", trigger.reason, details, pending.name)
