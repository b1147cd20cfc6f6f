"""The flight recorder of a daemon: how it is made of the settings, and what it is shown every second."""

from __future__ import annotations

import logging
import socket
from dataclasses import replace

from ibpulse.aggregator import Snapshot
from ibpulse.capture.alertmanager import AlertDesk
from ibpulse.capture.options import CaptureOptions
from ibpulse.capture.recorder import FlightRecorder
from ibpulse.capture.rules import RuleOptions
from ibpulse.capture.watch import Watch
from ibpulse.config import Settings
from ibpulse.errors import CaptureError
from ibpulse.ring.reader import RingReader
from ibpulse.units import SECOND_NS
from ibpulse.web.parts import CaptureParts

log = logging.getLogger(__name__)


class Captures:
    """The flight recorder with its local rules and its desk for alerts."""

    def __init__(self, settings: Settings, reader: RingReader) -> None:
        capture = settings.capture
        self.recorder = FlightRecorder(reader, _options(settings))
        self._watch = Watch(
            capture.rules,
            capture.cooldown,
            RuleOptions(traffic_window_seconds=settings.analysis.traffic_window / SECOND_NS),
        )
        self.parts = CaptureParts(
            recorder=self.recorder,
            desk=AlertDesk(capture.node or (socket.gethostname(),), capture.cooldown),
            usual_ns=(capture.before, capture.after),
            open_to_all=capture.allow_unauthenticated,
        )

    def note(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot of one more second with the counts of captures, after the rules have looked at it."""
        self.recorder.note(snapshot)
        for trigger in self._watch.look(snapshot):
            try:
                pending = self.recorder.ask(trigger)
            except CaptureError as error:
                log.warning("%s %s: no capture is taken: %s", trigger.reason, dict(trigger.labels), error)
            else:
                log.info("%s %s: capture %s is taken", trigger.reason, dict(trigger.labels), pending.name)
        return replace(snapshot, captures=self.recorder.counts())


def _options(settings: Settings) -> CaptureOptions:
    capture = settings.capture
    return CaptureOptions(
        directory=capture.dir,
        # in a pod the host name is the pod's, and the setting is the node's
        host=capture.node[0] if capture.node else socket.gethostname(),
        before_ns=capture.before,
        after_ns=capture.after,
        max_count=capture.max_count,
        max_bytes=capture.max_bytes,
        min_free_bytes=capture.min_free,
    )
