"""Quarantine: reads hung and slow devices each in a separate process, on its own lane.

A device whose read hung is sampled in isolation until it responds steadily. A slow device stays until it is released.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection
from dataclasses import dataclass

from ibpulse.agent.sampler.lane import (
    HUNG_READ_SECONDS,
    SILENT_SECONDS,
    EndingProcesses,
    Lane,
    StartProcess,
    start_sampler,
)
from ibpulse.agent.sampler.plan import Plan
from ibpulse.agent.sampler.process import MAIN_LANE
from ibpulse.base.clocks import Clock
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile

log = logging.getLogger(__name__)

STEADY_SECONDS_MAX = 600.0
_DOUBLINGS_MAX = 16


@dataclass(slots=True)
class QuarantinedDevice:
    """A device in quarantine; `lane` is None while all lanes are in use.

    The lane of a slow device is opened once the main sampler has applied the plan of `generation`, and thus no longer
    reads the device.
    """

    steady_needed: float
    lane: Lane | None = None
    slow: bool = False
    generation: int = 0
    steady_since: float | None = None


class Quarantine:
    """Isolates hung and slow devices from the others, and detects which have recovered."""

    def __init__(
        self,
        ring: RingFile,
        steady_seconds: float,
        ending: EndingProcesses,
        errors: InternalErrors | None = None,
        clock: Clock = time,
        start_process: StartProcess = start_sampler,
    ) -> None:
        self._clock, self._start_process = clock, start_process
        self._errors = errors or InternalErrors()
        self._ring = ring
        self._steady_seconds = steady_seconds
        self._ending = ending
        self._held: dict[str, QuarantinedDevice] = {}
        self._times_hung: dict[str, int] = {}
        self._plan = Plan(0, 0)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices in quarantine, in the order of their arrival."""
        return tuple(self._held)

    @property
    def lanes(self) -> dict[str, int]:
        """The lane of each device that has one."""
        return {device: held.lane.number for device, held in self._held.items() if held.lane is not None}

    @property
    def hung_devices(self) -> tuple[str, ...]:
        """The devices in quarantine because of a hung read."""
        return tuple(device for device, held in self._held.items() if not held.slow)

    @property
    def silent_devices(self) -> tuple[str, ...]:
        """The devices in quarantine that have not responded for a second; a hung read shows only after a while."""
        steady = self._clock.monotonic() - SILENT_SECONDS
        return tuple(
            device
            for device, held in self._held.items()
            if not held.slow and (held.steady_since is None or held.steady_since > steady)
        )

    def add(self, device: str) -> None:
        """Quarantine a device whose read hung; each time doubles the time for which it has to respond steadily."""
        times_hung = self._times_hung[device] = self._times_hung.get(device, -1) + 1
        needed = self._steady_seconds * 2 ** min(times_hung, _DOUBLINGS_MAX)
        lane = self._held[device].lane if device in self._held else None
        self._held[device] = QuarantinedDevice(min(STEADY_SECONDS_MAX, needed), lane)

    def keep_slow(self, slow: Collection[str], generation: int) -> None:
        """Quarantine these slow devices from the plan of this generation on, and release all other slow ones."""
        for device in [device for device, held in self._held.items() if held.slow and device not in slow]:
            self.release(device)
        for device in slow:
            self._held.setdefault(device, QuarantinedDevice(math.inf, slow=True, generation=generation))

    def release(self, device: str) -> None:
        """Release a device, and end its process."""
        lane = self._held.pop(device).lane
        if lane is not None:
            self._ending.add(lane.kill())

    def write_plans(self, plan: Plan) -> None:
        """Give every lane its device's part of the plan; a lane keeps its plan if that fails."""
        self._plan = plan
        for device, held in self._held.items():
            if held.lane is not None:
                self._write_plan(device, held.lane)

    def is_outdated(self) -> bool:
        """Whether a lane does not have its part of the last plan."""
        lanes = (held.lane for held in self._held.values())
        return any(lane is not None and not lane.has_plan(self._plan.generation) for lane in lanes)

    def _write_plan(self, device: str, lane: Lane) -> None:
        with self._errors.boundary("plan", device):
            lane.write_plan(self._part(device))

    def _part(self, device: str) -> Plan:
        return self._plan._replace(ports=tuple(port for port in self._plan.ports if port.device == device))

    def poll(self) -> list[str]:
        """The devices that have responded for long enough; starts processes as needed."""
        return [device for device, held in self._held.items() if self._has_recovered(device, held)]

    def _has_recovered(self, device: str, held: QuarantinedDevice) -> bool:
        now = self._clock.monotonic()
        if held.lane is None:
            main = self._ring.words[at.lane_at(MAIN_LANE) + at.L_PLAN_APPLIED]
            held.lane = self._open_lane(device) if not held.slow or main >= held.generation else None
        elif self._is_steady(device, held, held.lane, now):
            if held.steady_since is None:
                held.steady_since = now
            return now - held.steady_since > held.steady_needed
        held.steady_since = None
        return False

    def _open_lane(self, device: str) -> Lane | None:
        """A lane that samples the device from now on, None while all are in use."""
        taken = {held.lane.number for held in self._held.values() if held.lane is not None}
        free = next((number for number in range(1, at.LANE_COUNT) if number not in taken), None)
        if free is None:
            return None
        lane = Lane(self._ring, free, self._clock, self._start_process)
        self._start(device, lane)
        return lane

    def _start(self, device: str, lane: Lane) -> None:
        """Start a lane's process with the newest plan, or with the last one written; without any, it is tried later."""
        lane.started_monotonic = self._clock.monotonic()
        words, begin, main = self._ring.words, at.lane_at(lane.number), at.lane_at(MAIN_LANE)
        # it continues from the tick of the main sampler, also when it ended because the wall clock was set
        for which in (at.L_TICK, at.L_BEGUN, at.L_HEARTBEAT_NS):
            words[begin + which] = words[main + which]
        self._write_plan(device, lane)
        if lane.plan is not None:
            start_or_log(lane, self._errors)

    def _is_steady(self, device: str, held: QuarantinedDevice, lane: Lane, now: float) -> bool:
        if not lane.is_started() or lane.exit_status() is not None:
            if now - lane.started_monotonic > SILENT_SECONDS:
                self._start(device, lane)
            return False
        stall = lane.poll()
        if lane.is_silent(stall):
            self._ending.add(lane.kill())
            return False
        if held.slow and stall.is_hung_read() and not lane.is_starved():
            self._report_hung(device)
        return lane.word(at.L_PLAN_APPLIED) != 0 and not stall.is_hung_read()

    def _report_hung(self, device: str) -> None:
        """Treat a slow device as hung from now on; it stays in its process."""
        self.add(device)
        log.error(
            "device %s: a read has hung for over %.2f s in its separate process",
            device,
            HUNG_READ_SECONDS,
        )

    def stop(self) -> None:
        """Ask all processes to end."""
        for held in self._held.values():
            if held.lane is not None:
                self._ending.add(held.lane.terminate())


def start_or_log(lane: Lane, errors: InternalErrors) -> bool:
    """Start the lane's process; false if that failed, because the machine is short of memory or processes."""
    with errors.boundary("plan", f"process {lane.number}"):
        lane.start()
        return True
    return False
