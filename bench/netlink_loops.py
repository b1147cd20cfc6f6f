"""Runs the sampler's loop on ports that are read in several ways, and the C program, in turns.

`netlink_loops.py PROGRAM PORTS ROUNDS SECONDS` prints one JSON object: for each way, the CPU nanoseconds per tick of
each round. The ports are those of soft-RoCE devices, in the virtual machine of `tests/campaigns/vm`. Without such
devices, each port is the loopback interface of NETLINK_ROUTE: another message of a kernel, of about the same length.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ibpulse.agent.sampler import kernel
from ibpulse.agent.sampler.deadlines import TickClock
from ibpulse.agent.sampler.loop import Loop
from ibpulse.agent.sampler.plan import Plan, PlannedPort, PlannedSignals
from ibpulse.agent.sampler.steady import sample_steadily
from ibpulse.agent.sysfs.netlink import (
    HEADER,
    NETLINK_RDMA,
    REQUEST,
    STAT_GET,
    Counter,
    Layout,
    Link,
    PortMessage,
    PortReply,
    attributes,
    connect,
    parse_port,
)
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.signals import Signal

INTERVAL_NS = 10_000_000
# linux/rtnetlink.h, linux/if_link.h
NETLINK_ROUTE, RTM_GETLINK, IFLA_STATS64 = 0, 18, 23
WAYS = {
    "netlink": ("hw_counters", "sent_bytes", "rcvd_bytes", 1),
    "hw_counters": ("hw_counters", "sent_bytes", "rcvd_bytes", 0),
    "counters": ("counters", "port_xmit_data", "port_rcv_data", 0),
}
# every port once in this many ticks
SIGNAL_TICKS, READINGS = 10, 300
SIGNALS = {
    "packet_sequence_errors": "rcvd_seq_err",
    "rnr_nak_retry_packets_received": "rcvd_rnr_err",
    "hw_completer_retry_err": "completer_retry_err",
    "hw_send_rnr_err": "send_rnr_err",
    "duplicate_requests_packets": "duplicate_request",
}


def make_run(path: Path, planned: list[PlannedPort]) -> tuple[Callable[[float], float], Loop]:
    """A function that samples for some seconds and returns the CPU nanoseconds per tick, and its loop."""
    ring = RingFile.create(path, INTERVAL_NS, 3000, signal_capacity=READINGS)
    for port in planned:
        if port.signals:
            ring.assign_signals(port.slot, [Signal(name, 64) for name in SIGNALS], port.signals.asked)
    loop = Loop(ring, 0)
    loop.apply(Plan(1, os.getpid(), ports=tuple(planned), signal_ticks=SIGNAL_TICKS))
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
        assert len(planned) in (len(loop.messages[0]), len(loop.fast))
        read = [ring.words[ring.signals_at(port.slot) + at.N_READINGS] for port in planned if port.signals]
        assert any(read) or not read
        return (time.process_time_ns() - begun) / (ring.words[lane + at.L_TICKS] - ticks)

    return run, loop


def make_loop(folder: Path, way: str, ports: int, *, signals: bool = False) -> Callable[[float], float]:
    """That function for ports of soft-RoCE devices that are read in one way."""
    counters, transmit, receive, message = WAYS[way]
    planned = []
    for number in range(ports):
        port = Path(f"/sys/class/infiniband/rxe{number}/ports/1")
        paths = (str(port / counters / transmit),), (str(port / counters / receive),)
        files = tuple(str(port / "hw_counters" / file) for file in SIGNALS.values())
        wanted = PlannedSignals(1, files, len(files), message) if signals else None
        planned.append(PlannedPort(number, f"rxe{number}", *paths, message=message, signals=wanted))
    return make_run(folder / f"{way}-{signals}", planned)[0]


class StandingIn(PortMessage):
    """Asks for the loopback interface, some of whose counters are at these places of the `reply`."""

    def __init__(
        self, request: bytearray, reply: memoryview, transmit: Sequence[int], receive: Sequence[int] = ()
    ) -> None:
        sent, received = ([str(place) for place in places] for places in (transmit, receive))
        super().__init__("lo", 1, sent, received)
        self.request = bytearray(request)
        counters = {str(place): Counter(place, place, 0) for place in (*transmit, *receive)}
        self.layout: Layout = Layout(reply, PortReply("lo", 1, 1, 32, counters), sent, received)

    def _unpack(self, link: Link) -> tuple[Layout, Sequence[Any]]:
        data = memoryview(link.reply)[: link.receive(link.reply)]
        got = self.layout.unpack(data)
        assert got[0] == self.layout.head(link.sequence)
        return self.layout, got


def make_standing_in(folder: Path, ports: int, *, signals: bool = False) -> tuple[Callable[[float], float], list[str]]:
    """The same with loopback interfaces, and the arguments of the C program for them."""
    link = Link(lambda: connect(NETLINK_ROUTE))
    body = struct.pack("=BxHiII", 0, 0, socket.if_nametoindex("lo"), 0, 0)
    request = bytearray(HEADER.pack(HEADER.size + len(body), RTM_GETLINK, REQUEST, 0, 0) + body)
    link.request(request)
    reply = memoryview(link.reply)[: link.receive(link.reply)]
    # received and transmitted packets, then bytes
    places = next(begin for kind, begin, _ in attributes(reply, 32, len(reply)) if kind == IFLA_STATS64)
    transmit, receive = places + 24, places + 16
    wanted = PlannedSignals(1, tuple(SIGNALS), len(SIGNALS), 1) if signals else None
    planned = [PlannedPort(each, f"lo{each}", ("tx",), ("rx",), message=1, signals=wanted) for each in range(ports)]
    run, loop = make_run(folder / f"lo-{signals}", planned)
    loop.link = link
    asked = [(port.message, StandingIn(request, reply, [transmit], [receive])) for port in loop.slow]
    counters = range(places, places + 8 * len(SIGNALS), 8)
    asked += [(port.message, StandingIn(request, reply, counters)) for port in chain.from_iterable(loop.signals.turns)]
    for source, message in asked:
        assert source is not None
        source.message, source._link = message, link
    loop._sort()
    return run, [str(NETLINK_ROUTE), str(transmit), str(receive), *[request.hex()] * ports]


def make_program(program: str, arguments: list[str]) -> Callable[[float], float]:
    """The same of the C program."""

    def run(seconds: float) -> float:
        command = [program, str(INTERVAL_NS), str(seconds), *arguments]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return float(found["cpu_ns"] / found["ticks"])

    return run


def find_arguments(ports: int) -> list[str]:
    """Those of the C program for the ports of soft-RoCE devices."""
    link = Link()
    requests, places = [], []
    for number in range(ports):
        message = PortMessage(f"rxe{number}", 1, ("sent_bytes",), ("rcvd_bytes",))
        message.resolve(link)
        message.ask(link)
        reply = parse_port(link.take_one(STAT_GET))
        places = [str(reply.counters[name].value_at) for name in ("sent_bytes", "rcvd_bytes")]
        requests.append(message.request.hex())
    return [str(NETLINK_RDMA), *places, *requests]


def main(program: str, ports: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    """The CPU nanoseconds per tick of each way and round."""
    kernel.sharpen_timers()
    gc.disable()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if Path("/sys/class/infiniband/rxe0").exists():
            ways, arguments = {way: make_loop(Path(folder), way, ports) for way in WAYS}, find_arguments(ports)
            for way in ("netlink", "hw_counters"):
                ways[f"{way}, signals"] = make_loop(Path(folder), way, ports, signals=True)
        else:
            standing, arguments = make_standing_in(Path(folder), ports)
            ways = {"netlink": standing, "netlink, signals": make_standing_in(Path(folder), ports, signals=True)[0]}
        ways["C"] = make_program(program, arguments)
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
