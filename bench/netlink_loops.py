"""Runs the sampler's loop on the ports of soft-RoCE devices, read in three ways and by the C program, in turns.

`netlink_loops.py PROGRAM PORTS ROUNDS SECONDS` prints one JSON object: for each way, the CPU nanoseconds per tick of
each round. It runs in the virtual machine of `tests/campaigns/vm`.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ibpulse.agent.sampler import kernel
from ibpulse.agent.sampler.deadlines import TickClock
from ibpulse.agent.sampler.loop import Loop
from ibpulse.agent.sampler.plan import Plan, PlannedPort
from ibpulse.agent.sampler.steady import sample_steadily
from ibpulse.agent.sysfs.netlink import Link, PortMessage, parse_port
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile

INTERVAL_NS = 10_000_000
WAYS = {
    "netlink": ("hw_counters", "sent_bytes", "rcvd_bytes", 1),
    "hw_counters": ("hw_counters", "sent_bytes", "rcvd_bytes", 0),
    "counters": ("counters", "port_xmit_data", "port_rcv_data", 0),
}


def make_loop(folder: Path, way: str, ports: int) -> Callable[[float], float]:
    """A function that samples for some seconds and returns the CPU nanoseconds per tick."""
    counters, transmit, receive, message = WAYS[way]
    ring = RingFile.create(folder / way, INTERVAL_NS, 3000)
    planned = []
    for number in range(ports):
        files = Path(f"/sys/class/infiniband/rxe{number}/ports/1", counters)
        slot = ring.assign(f"rxe{number}:1", 1, 1)
        planned.append(
            PlannedPort(slot, f"rxe{number}", (str(files / transmit),), (str(files / receive),), message=message)
        )
    loop = Loop(ring, 0)
    loop.apply(Plan(1, os.getpid(), ports=tuple(planned)))
    lane = at.lane_at(0)
    ring.words[lane + at.L_PLAN_WANTED] = ring.words[lane + at.L_PLAN_APPLIED] = 1
    ring.begin_segment(1, 0)

    def run(seconds: float) -> float:
        clock, read_ns = TickClock(INTERVAL_NS), 0
        ticks, begun, end = ring.words[lane + at.L_TICKS], time.process_time_ns(), time.monotonic() + seconds
        while time.monotonic() < end:
            late_ns = clock.wait(read_ns)
            read_ns = loop.sample(clock.tick, late_ns)
            read_ns = sample_steadily(ring, 0, loop, clock, read_ns)
        assert len(loop.messages if message else loop.fast) == ports
        return (time.process_time_ns() - begun) / (ring.words[lane + at.L_TICKS] - ticks)

    return run


def make_program(program: str, ports: int) -> Callable[[float], float]:
    """The same of the C program."""
    link = Link()
    places = []
    for number in range(ports):
        message = PortMessage(f"rxe{number}", 1, ("sent_bytes",), ("rcvd_bytes",))
        message.resolve(link)
        message.ask(link)
        reply = parse_port(link.take_port())
        places = [str(reply.counters[name].value_at) for name in ("sent_bytes", "rcvd_bytes")]
    indices = (str(link.indices[f"rxe{number}"]) for number in range(ports))
    command = [program, str(INTERVAL_NS), "SECONDS", *places, *indices]

    def run(seconds: float) -> float:
        command[2] = str(seconds)
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return float(found["cpu_ns"] / found["ticks"])

    return run


def main(program: str, ports: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    """The CPU nanoseconds per tick of each way and round."""
    kernel.sharpen_timers()
    gc.disable()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        ways = {way: make_loop(Path(folder), way, ports) for way in WAYS} | {"C": make_program(program, ports)}
        for run in ways.values():
            run(0.2)
        gc.freeze()
        found: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds):
            for way in ways if number % 2 else reversed(ways):
                found[way].append(ways[way](seconds))
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], *map(int, sys.argv[2:4]), float(sys.argv[4]))))
