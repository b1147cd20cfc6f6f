"""`python -m tests.fusefabric MOUNTPOINT`: mounts the fabric, then obeys lines of JSON until standard input ends.

    {"device": "mlx5_3", "rule": {"hang_seconds": 60}}   the device's rule from now on
    {}                                                   every device is healthy from now on
    {"hung_reads_of": "mlx5_3"}                          how many reads of the device hang now

Each line is answered by one: {"at_ns": 123}, the monotonic instant from which it holds, {"hung_reads": 1}, or
{"error": "..."}.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import mfusepy

from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.tree import make_devices
from ibpulse.workbench.simulate.workloads import Constant, make_workload
from tests.fusefabric.rule import Rule
from tests.fusefabric.server import HEALTHY, FabricOperations

MANAGEMENT_BYTES_PER_SECOND = 12e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fusefabric", description=__doc__)
    parser.add_argument("mountpoint", type=Path)
    parser.add_argument("--workload", default="constant")
    parser.add_argument("--options", type=json.loads, default={}, help="options of the workload, as JSON")
    parser.add_argument("--ports", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start-ns", type=int, default=time.monotonic_ns(), help="monotonic start of the schedule")
    parser.add_argument("--management", action="store_true")
    parser.add_argument("--cgroup", default="", help="where fs/cgroup leads to")
    given = parser.parse_args()
    # no busy machine slows a device; only root may do without it
    with suppress(PermissionError):
        os.nice(-20)
    schedule = Schedule(make_workload(given.workload, **given.options), given.seed, given.ports, given.start_ns)
    trickle = Schedule(Constant(MANAGEMENT_BYTES_PER_SECOND), given.seed, 1, given.start_ns)
    devices = make_devices(given.ports, given.management)
    operations = FabricOperations(
        devices, {device.name: trickle if device.rail is None else schedule for device in devices}, given.cgroup
    )
    threading.Thread(target=obey, args=(operations, given.mountpoint), daemon=True).start()
    mfusepy.FUSE(
        operations,
        str(given.mountpoint),
        foreground=True,
        nothreads=False,
        ro=True,
        direct_io=True,
        attr_timeout=0,
        entry_timeout=0,
        negative_timeout=0,
        fsname="ibpulse-test",
    )


def obey(operations: FabricOperations, mountpoint: Path) -> None:
    operations.ready.wait()
    say({"ready": True})
    for line in sys.stdin:
        say(answer(operations, line))
    command(operations, {})
    subprocess.run(["fusermount", "-u", "-z", str(mountpoint)], check=False, capture_output=True)
    os._exit(0)


def say(document: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def answer(operations: FabricOperations, line: str) -> dict[str, object]:
    try:
        document = json.loads(line)
        if "hung_reads_of" in document:
            return {"hung_reads": operations.states[document["hung_reads_of"]].hung_reads}
        return {"at_ns": command(operations, document)}
    except (ValueError, TypeError, KeyError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def command(operations: FabricOperations, document: dict[str, object]) -> int:
    if document:
        return operations.apply(Rule.from_json(document["rule"]), [str(document["device"])])
    return operations.apply(HEALTHY, operations.states)


if __name__ == "__main__":
    main()
