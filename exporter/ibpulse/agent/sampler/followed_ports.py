"""The ports of the last scan with the newest states of their links; what changes goes to the event log."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from ibpulse.agent.sampler.lane import explain_errno
from ibpulse.agent.sysfs.links import LinkReading, StatePoller
from ibpulse.base.clocks import Clock
from ibpulse.core.events import EventLog
from ibpulse.core.events.watch import HUNG, UNREADABLE, KnownPort, PortWatch, SeenPort
from ibpulse.core.model import Fabric, Port, PortId
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.reader import RingReader

# even if no link changed, counters may have become unreadable
NOTE_SECONDS = 1.0
# after new readings, none come for about this long
PAUSE_SECONDS = 0.8
# A device that the kernel announces may still be listed for a moment, or not yet: so long after, listings are frequent.
ANNOUNCED_SECONDS = 2.0
# healthy links answer within milliseconds
FIRST_READING_SECONDS = 0.25


class FollowedPorts:
    """Joins what the scan, the state poller, the quarantine and the ring say about each port.

    Without `states`, the states are those of the last scan. `fabric` is replaced when something changes.
    """

    def __init__(self, reader: RingReader, events: EventLog, states: StatePoller | None, clock: Clock = time) -> None:
        self._clock = clock
        self.fabric = Fabric()
        self.outdated = False
        """Whether devices have come or gone since the last scan."""
        self._ring = reader.ring
        self._states = states
        self._watch = PortWatch(events, reader, clock)
        self._scan = Fabric()
        self._readings: Mapping[PortId, LinkReading] = {}
        self._listed: tuple[frozenset[str], frozenset[PortId]] = (frozenset(), frozenset())
        self._listing: frozenset[str] = frozenset()
        self._listed_ns = self._scanned_ns = 0
        self._noted_at = self._poll_at = self._hurried_at = 0.0
        self._begun = False

    def begin_scan(self) -> int:
        """A scan begins. Returns the wall time, for `take_scan`."""
        if self._states is not None:
            # a later listing may have devices that the scan does not see
            self._listing = self._states.listing
        return self._clock.time_ns()

    def take_scan(self, fabric: Fabric, listed_ns: int) -> None:
        """Continue with the ports of a scan, which listed the devices at this wall time.

        The first call waits for the first readings, so it may take a moment.
        """
        self._scan, self._listed_ns, self._scanned_ns = fabric, listed_ns, self._clock.time_ns()
        if self._states is not None:
            self._states.follow(fabric.ports)
            self._listed = (self._listing, self._states.gone)
            self._readings = (
                self._states.poll() if self._begun else self._first_readings(self._states, len(fabric.ports))
            )
            if not self._begun:
                self._listed = (self._states.listing, self._states.gone)
        self._begun, self.outdated = True, False
        self._join()

    def poll(self) -> bool:
        """Take new readings; whether `note` is due. Call it several times a second."""
        now, fresh = self._clock.monotonic(), False
        hurried = now - self._hurried_at < ANNOUNCED_SECONDS
        if self._states is not None and (hurried or now >= self._poll_at):
            if hurried:
                self._states.list_devices()
            readings = self._states.poll()
            self._follow_listing(self._states)
            fresh, self._readings = readings is not self._readings, readings
            # the next round begins a second after this one, and its results are there soon after
            self._poll_at = now + PAUSE_SECONDS if fresh else now
        if not fresh and now < self._noted_at + NOTE_SECONDS:
            return False
        self._join()
        return True

    def hurry(self, unchanged_ns: int) -> None:
        """The kernel says that devices have come or gone, but not before the wall time `unchanged_ns`."""
        now = self._clock.monotonic()
        if not self.outdated and now - self._hurried_at > ANNOUNCED_SECONDS:
            self._watch.confirm(unchanged_ns)
        self._hurried_at = now

    def note(self, slots: Mapping[str, int], silent_devices: Collection[str]) -> None:
        """Record the changes since the last call; `slots` gives the slots of ports in the ring.

        `silent_devices` are those whose counter reads do not return.
        """
        self._noted_at = self._clock.monotonic()
        hung = {*silent_devices, *(self._states.hung_devices if self._states else ())}
        seen = [self._see(port, slots.get(str(port.id)), hung) for port in self.fabric.ports]
        self._watch.update(seen, self._listed_ns, {*hung, *self.fabric.stuck_devices})

    def known_ports(self) -> tuple[KnownPort, ...]:
        """The ports that exist, and those that disappeared within the history, in natural order."""
        return self._watch.known_ports()

    def close(self) -> None:
        """Stop reading states."""
        if self._states is not None:
            self._states.close()

    def _first_readings(self, states: StatePoller, wanted: int) -> Mapping[PortId, LinkReading]:
        """Readings of all ports, or those that are there in time."""
        deadline = self._clock.monotonic() + FIRST_READING_SECONDS
        while len(readings := states.poll()) < wanted and self._clock.monotonic() < deadline:
            self._clock.sleep(FIRST_READING_SECONDS / 50)
        return readings

    def _follow_listing(self, states: StatePoller) -> None:
        listed = (states.listing, states.gone)
        if listed == self._listed:
            self._listed_ns = self._scanned_ns = states.listed_ns
        else:
            # until the next scan, nothing is known to exist later than at the last listing that was as before
            self.outdated = True

    def _join(self) -> None:
        """Bring the ports of the scan up to the newest readings."""
        ports = tuple(_apply(self._readings.get(port.id), port) for port in self._scan.ports)
        fabric = replace(self._scan, ports=ports)
        if fabric != self.fabric or fabric.counters is not self.fabric.counters:
            self.fabric = fabric

    def _see(self, port: Port, slot: int | None, hung: Collection[str]) -> SeenPort:
        reading = self._readings.get(port.id)
        problem, reason = self._find_problem(port, reading, slot, hung)
        stride = 1 if slot is None else max(1, self._ring.slot_word(slot, at.S_STRIDE))
        if reading is None:
            return SeenPort(port, self._scanned_ns, 0, "", stride, problem, reason, link_known=bool(port.state))
        return SeenPort(
            port=port,
            time_ns=reading.taken_ns,
            previous_ns=reading.previous_ns,
            physical=reading.physical,
            stride=stride,
            problem=problem,
            reason=reason,
            downs=reading.link_downed,
            link_known=not reading.problem and port.id.device not in hung,
        )

    def _find_problem(
        self, port: Port, reading: LinkReading | None, slot: int | None, hung: Collection[str]
    ) -> tuple[str, str]:
        """A word of `PROBLEMS` and a sentence, both empty for a healthy port."""
        if port.id.device in hung:
            return HUNG, "a read of its device does not return"
        if slot is not None and self._ring.slot_word(slot, at.S_STATUS) == at.LEFT_ALONE:
            number = self._ring.slot_word(slot, at.S_LAST_ERRNO)
            return UNREADABLE, f"its byte counters cannot be read ({explain_errno(number)})"
        if reading is not None and reading.problem:
            return reading.problem, reading.reason
        return "", ""


def _apply(reading: LinkReading | None, port: Port) -> Port:
    """The port of a scan with the state and the rate of a newer reading."""
    if reading is None or reading.problem:
        return port
    rate, rate_text = reading.rate_bytes_per_second, reading.rate_text if reading.active else port.identity.rate
    scanned = (port.active, port.state, port.rate_bytes_per_second, port.identity.rate)
    if scanned == (reading.active, reading.state, rate, rate_text):
        return port
    identity = replace(port.identity, rate=rate_text)
    return replace(port, active=reading.active, state=reading.state, rate_bytes_per_second=rate, identity=identity)
