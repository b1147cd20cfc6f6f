"""Jobs on a simulated fabric: each has traffic of its own on its devices, and a document while it runs."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ibpulse.base.units import SECOND_NS
from ibpulse.core.jobs.claims import is_job_id
from ibpulse.workbench.simulate.fsdp import DENSE, MOE
from ibpulse.workbench.simulate.shared_job import SharedTraffic, Traffic
from ibpulse.workbench.simulate.timeline import Schedule, Workload
from ibpulse.workbench.simulate.tree import Device

log = logging.getLogger(__name__)

JOBS_FOLDER = "jobs"
FIRST_ID = 1001
# by half of the ports: the workload, and for how many seconds a job runs until the next one begins after a pause
TURNS = ((DENSE, 240, 30), (MOE, 330, 60))
JOBS_EXAMPLE = '{"7": {"workload": "moe", "devices": ["mlx5_0", "mlx5_1"]}}'


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
    """What is wrong with the jobs of a faults file, except their workloads."""
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
        """From an instant on, exactly these jobs run; says whether others did before."""
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
