"""Jobs on simulated fabrics: each with traffic of its own or a share of one on several nodes, and a document."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.arrays import Counts, Floats
from ibpulse.core.jobs import is_job_id
from ibpulse.workbench.simulate.timeline import NODE_RAILS, Schedule, Step, Workload
from ibpulse.workbench.simulate.tree import Device
from ibpulse.workbench.simulate.workloads import DENSE, MOE, Fsdp

STRAGGLER_DELAY_NS = 20 * MILLISECOND_NS
"""Extra computation of the straggler in every step, before it first transmits."""
AHEAD_BYTES = 4 * 2**22
"""Bytes that a port of full weight sends before its ring stops at a late member: four channels, buffers of 4 MiB."""
HOT_RAIL = 1
OTHER_RAILS_SHARE = 0.75
"""The traffic of every other rail, as a part of the hot rail's."""
JOBS_FOLDER = "jobs"
FIRST_ID = 1001
# by half of the ports: the workload, and for how many seconds a job runs until the next one begins after a pause
TURNS = ((DENSE, 240, 30), (MOE, 330, 60))
JOBS_EXAMPLE = '{"7": {"workload": "moe", "devices": ["mlx5_0", "mlx5_1"]}}'
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RingMember:
    """A workload as one member of the ring transmits it; the next member receives the same.

    In each step one member, the straggler, computes `STRAGGLER_DELAY_NS` longer before it first transmits. The others
    begin on time, fill the buffers of their connections and wait for it: the job is as slow as its slowest member.
    All rails of a node are busy until the hot rail has sent its larger share.
    """

    workload: Workload
    rails: int
    straggler: bool = False

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self.workload.name

    def step(self, rng: np.random.Generator) -> Step:
        """A step of the workload, with the wait for the straggler in its first burst."""
        step = self.workload.step(rng)
        durations, rates = step.durations_ns, step.rates_bytes_per_second
        busy = rates > 0
        # of a burst, for the same bytes as with equal shares
        slowness = float(self.workload.weights(self.rails).sum() / self.weights(self.rails).sum())
        durations = np.where(busy, np.rint(durations * slowness), durations).astype(np.int64)
        # without pauses there is no first burst
        if busy.all() or not busy.any():
            return Step(durations, rates)
        first = int(busy.argmax())
        lasts, carried = self._wait(int(durations[first]), float(rates[first]))
        return Step(
            np.concatenate([durations[:first], lasts, durations[first + 1 :]]),
            np.concatenate([rates[:first], carried, rates[first + 1 :]]),
        )

    def _wait(self, burst_ns: int, rate: float) -> tuple[Counts, Floats]:
        """The first burst and the wait before its end: durations and rates, together equally long on all members."""
        if self.straggler:
            return np.array([STRAGGLER_DELAY_NS, burst_ns]), np.array([0.0, rate])
        # at a low rate the buffers never fill up
        ahead_ns = min(round(AHEAD_BYTES / rate * SECOND_NS), burst_ns // 2, STRAGGLER_DELAY_NS // 2)
        durations = np.array([ahead_ns, STRAGGLER_DELAY_NS - ahead_ns, burst_ns])
        return durations, np.array([rate, 0.0, rate * (burst_ns - ahead_ns) / burst_ns])

    def weights(self, rails: int) -> Floats:
        """The shares of the workload, full on the hot rail and smaller on the others."""
        shares = np.full(rails, OTHER_RAILS_SHARE)
        shares[HOT_RAIL if rails > HOT_RAIL else 0] = 1.0
        weights: Floats = self.workload.weights(rails) * shares[:, None]
        return weights


class SharedTraffic:
    """The traffic of one node in time of its own clock, which is `offset_ns` ahead: that of a job, in both directions.

    It has the methods of a `Schedule` that a fabric needs.
    """

    def __init__(self, transmit: Schedule, receive: Schedule, offset_ns: int) -> None:
        self.workload, self.seed, self.rails = transmit.workload, transmit.seed, transmit.rails
        self.offset_ns = offset_ns
        self.start_ns = transmit.start_ns + offset_ns
        self._directions = (transmit, receive)

    def cumulative_bytes(self, time_ns: int) -> Counts:
        """Bytes of each rail since the start, (rails, 2): transmit, receive."""
        true_ns = time_ns - self.offset_ns
        transmit, receive = self._directions
        sent = transmit.cumulative_bytes(true_ns)
        if receive is not transmit:
            sent[:, 1] = receive.cumulative_bytes(true_ns)[:, 1]
        return sent

    def port_bytes(self, time_ns: int, rail: int, direction: int) -> int:
        """Bytes since the start of one rail in one direction."""
        return self._directions[direction].port_bytes(time_ns - self.offset_ns, rail, direction)

    def latest_within(self, begin_ns: int, end_ns: int, most_bytes: float) -> int:
        """The latest instant up to `end_ns` until which no port moves more than `most_bytes` after `begin_ns`."""
        begin_ns, end_ns = begin_ns - self.offset_ns, end_ns - self.offset_ns
        for schedule in self._directions:
            end_ns = schedule.latest_within(begin_ns, end_ns, most_bytes)
        return end_ns + self.offset_ns


Traffic = Schedule | SharedTraffic
"""The traffic of a node: a schedule of its own, or its part of a job on several nodes."""


def share_job(
    workload: Workload, straggler: int, offsets_ns: Sequence[int], seed: int, rails: int, start_ns: int
) -> list[SharedTraffic]:
    """The traffic of nodes with these clock offsets that share a job, which starts at a true time.

    The nodes form a ring in their order; each one receives what the one before it transmits.
    """
    if isinstance(workload, Fsdp):
        workload = replace(workload, ranks=NODE_RAILS * len(offsets_ns))
    late, punctual = (Schedule(RingMember(workload, rails, each), seed, rails, start_ns) for each in (True, False))
    sent = [late if number == straggler else punctual for number in range(len(offsets_ns))]
    return [SharedTraffic(sent[number], sent[number - 1], offset) for number, offset in enumerate(offsets_ns)]


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job: its workload, and the devices that carry it."""

    workload: Workload
    devices: tuple[str, ...]


def plan_jobs(count: int, workload: Workload, devices: Sequence[str], elapsed_ns: int) -> Mapping[str, SimulatedJob]:
    """The jobs of a fabric by id, some time after it began: one with `workload` on all devices, or two on half of them.

    The two begin and end, each in its own rhythm; each of their ids occurs once.
    """
    if count == 1:
        return {str(FIRST_ID): SimulatedJob(workload, tuple(devices))}
    halves = devices[: len(devices) // 2], devices[len(devices) // 2 :]
    found = {}
    for number, (half, (its_workload, run, pause)) in enumerate(zip(halves, TURNS, strict=True)):
        turn, within_ns = divmod(elapsed_ns, (run + pause) * SECOND_NS)
        if within_ns < run * SECOND_NS:
            found[str(FIRST_ID + number + 2 * turn)] = SimulatedJob(its_workload, tuple(half))
    return found


def find_job_errors(entry: object, devices: Collection[str], place: str) -> list[str]:
    """The errors in the jobs of a faults file, except those of their workloads."""
    if not isinstance(entry, dict):
        return [f"{place}: jobs: {json.dumps(entry)} is not valid; give jobs by id, for example {JOBS_EXAMPLE}"]
    wrong, taken = [], set()
    for name, job in entry.items():
        named = job.get("devices") if isinstance(job, dict) and job.keys() == {"workload", "devices"} else None
        if not is_job_id(name) or not isinstance(named, list) or not named:
            wrong.append(
                f"{place}: jobs: {json.dumps(name)}: {json.dumps(job)} is not valid; write for example {JOBS_EXAMPLE}"
            )
            continue
        for device in map(str, named):
            if device not in devices or device in taken:
                text = "has another job" if device in taken else "is not in this fabric"
                wrong.append(f'{place}: jobs: {json.dumps(name)}: device "{device}" {text}')
            taken.add(device)
    return wrong


class SimulatedJobs:
    """The running jobs of a fabric, each with a schedule that begins with it, and their documents in `folder`.

    The job on all rails of a node that shares it with others has the traffic `shared`.
    """

    def __init__(self, folder: Path, devices: Sequence[Device], seed: int, shared: SharedTraffic | None = None) -> None:
        self._folder, self._seed, self._shared = folder, seed, shared
        self._gpus = {device.name: device.gpu for device in devices}
        self._running: dict[str, tuple[SimulatedJob, Traffic]] = {}

    def follow(self, wanted: Mapping[str, SimulatedJob], at_ns: int) -> bool:
        """Run exactly these jobs from an instant on; returns whether that is a change."""
        if {name: job for name, (job, _) in self._running.items()} == wanted:
            return False
        for name in self._running.keys() - wanted.keys():
            log.info("job %s ended", name)
            del self._running[name]
            (self._folder / f"{name}.json").unlink(missing_ok=True)
        for name, job in wanted.items():
            if name not in self._running or self._running[name][0] != job:
                traffic = self._make_traffic(name, job, at_ns)
                if traffic is not self._shared:
                    log.info("job %s: %s on %s", name, job.workload.name, ", ".join(job.devices))
                self._running[name] = job, traffic
                self._write(name, job)
        return True

    def _make_traffic(self, name: str, job: SimulatedJob, at_ns: int) -> Traffic:
        shared = self._shared
        if shared and (job.workload, len(job.devices)) == (shared.workload, shared.rails):
            return shared
        return Schedule(job.workload, self._seed + zlib.crc32(name.encode()), len(job.devices), at_ns)

    def find(self, device: str) -> tuple[Traffic, int] | None:
        """The schedule of the job on a device, and the position of the device in it; None without a job."""
        for job, schedule in self._running.values():
            if device in job.devices:
                return schedule, job.devices.index(device)
        return None

    def _write(self, name: str, job: SimulatedJob) -> None:
        """Write the document as a prolog does, so that it is complete when it appears."""
        gpus = [self._gpus[device] for device in job.devices]
        document = {"id": name, "scheduler": "simulated", "name": job.workload.name, "gpus": gpus}
        self._folder.mkdir(mode=0o755, exist_ok=True)
        fresh = self._folder / f".{name}.json.new"
        fresh.touch(mode=0o644)
        fresh.write_text(json.dumps(document) + "\n")
        fresh.rename(self._folder / f"{name}.json")
