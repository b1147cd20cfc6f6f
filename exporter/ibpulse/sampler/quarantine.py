"""The ward: devices that are each read on a lane of their own. It reads no counter.

A sick device is one whose read hung: it is tried alone until it answers steadily. A slow one stays until it is let go.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection
from dataclasses import dataclass, replace

from ibpulse.errors import SamplerError
from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.sampler.lane import HUNG_READ_SECONDS, SILENT_SECONDS, Dying, Lane
from ibpulse.sampler.plan import Plan
from ibpulse.sampler.process import MAIN_LANE

log = logging.getLogger(__name__)

STEADY_SECONDS_MAX = 600.0
_DOUBLINGS_MAX = 16


@dataclass(slots=True)
class QuarantinedDevice:
    """A device in the ward; `lane` is None while all lanes are taken.

    One that is merely slow opens its lane when the main sampler has taken up the plan of generation `left`, and so has
    let go of it.
    """

    steady_needed: float
    lane: Lane | None = None
    slow: bool = False
    left: int = 0
    steady_since: float | None = None


class Quarantine:
    """Holds the sick devices of a fabric, and says which have recovered."""

    def __init__(self, ring: RingFile, steady_seconds: float, dying: Dying) -> None:
        self._ring = ring
        self._steady_seconds = steady_seconds
        self._dying = dying
        self._sick: dict[str, QuarantinedDevice] = {}
        self._relapses: dict[str, int] = {}
        self._plan = Plan(0, 0)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices in the ward, in the order in which they came."""
        return tuple(self._sick)

    @property
    def sick_devices(self) -> tuple[str, ...]:
        """Those of them whose read hung."""
        return tuple(device for device, sick in self._sick.items() if not sick.slow)

    def admit(self, device: str) -> None:
        """Take in a device; each relapse doubles the time for which it has to answer steadily."""
        relapses = self._relapses[device] = self._relapses.get(device, -1) + 1
        needed = self._steady_seconds * 2 ** min(relapses, _DOUBLINGS_MAX)
        lane = self._sick[device].lane if device in self._sick else None
        self._sick[device] = QuarantinedDevice(min(STEADY_SECONDS_MAX, needed), lane)

    def seclude(self, slow: Collection[str], generation: int) -> None:
        """Keep these slow devices from the plan of this generation on, and no other slow ones."""
        for device in [device for device, sick in self._sick.items() if sick.slow and device not in slow]:
            self.release(device)
        for device in slow:
            self._sick.setdefault(device, QuarantinedDevice(math.inf, slow=True, left=generation))

    def release(self, device: str) -> None:
        """Let a device go, and end the process that tried it."""
        lane = self._sick.pop(device).lane
        if lane is not None:
            self._dying.add(lane.kill())

    def tell(self, plan: Plan) -> None:
        """Give every lane the part of the plan that is about its device."""
        self._plan = plan
        for device, sick in self._sick.items():
            if sick.lane is not None:
                sick.lane.tell(self._part(device))

    def _part(self, device: str) -> Plan:
        return replace(self._plan, ports=tuple(port for port in self._plan.ports if port.device == device))

    def watch(self) -> list[str]:
        """The devices that have answered for long enough; starts what has to be started."""
        return [device for device, sick in self._sick.items() if self._has_recovered(device, sick)]

    def _has_recovered(self, device: str, sick: QuarantinedDevice) -> bool:
        now = time.monotonic()
        if sick.lane is None:
            main = self._ring.words[at.lane_at(MAIN_LANE) + at.L_PLAN_APPLIED]
            sick.lane = self._open_lane(device) if not sick.slow or main >= sick.left else None
        elif self._is_steady(device, sick, sick.lane, now):
            if sick.steady_since is None:
                sick.steady_since = now
            return now - sick.steady_since > sick.steady_needed
        sick.steady_since = None
        return False

    def _open_lane(self, device: str) -> Lane | None:
        """A lane that tries the device from now on, None while all are taken."""
        taken = {sick.lane.number for sick in self._sick.values() if sick.lane is not None}
        free = next((number for number in range(1, at.LANE_COUNT) if number not in taken), None)
        if free is None:
            return None
        words, begin, main = self._ring.words, at.lane_at(free), at.lane_at(MAIN_LANE)
        # it counts on from where the main sampler is
        for which in (at.L_TICK, at.L_HEARTBEAT_NS):
            words[begin + which] = words[main + which]
        lane = Lane(self._ring, free)
        lane.tell(self._part(device))
        start_or_log(lane)
        return lane

    def _is_steady(self, device: str, sick: QuarantinedDevice, lane: Lane, now: float) -> bool:
        if not lane.is_started() or lane.exit_status() is not None:
            if now - lane.started_monotonic > SILENT_SECONDS:
                start_or_log(lane)
            return False
        stall = lane.look()
        if lane.is_silent(stall):
            self._dying.add(lane.kill())
            return False
        if sick.slow and stall.is_hung_read():
            self._tell_hung(device)
        return lane.word(at.L_PLAN_APPLIED) != 0 and not stall.is_hung_read()

    def _tell_hung(self, device: str) -> None:
        """A slow device hangs: it is a sick one from now on, in the process that it has already."""
        self.admit(device)
        log.error(
            "device %s: a read has hung for over %.2f s in the process that it has for itself",
            device,
            HUNG_READ_SECONDS,
        )

    def stop(self) -> None:
        """Ask all processes to end."""
        for sick in self._sick.values():
            if sick.lane is not None:
                self._dying.add(sick.lane.terminate())


def start_or_log(lane: Lane) -> bool:
    """Whether the lane's process could be started; a machine short of memory or processes may let it another time."""
    try:
        lane.start()
    except SamplerError as error:
        log.error("%s; it is tried again", error)
        return False
    return True
