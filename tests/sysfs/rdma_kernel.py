"""The kernel's side of RDMA netlink, as drivers/infiniband/core/nldev.c writes it: devices, counters, and faults."""

from __future__ import annotations

import errno
import itertools
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

ERROR, DONE = 2, 3
MULTI = 2
GET, RES_GET, STAT_GET = 0x1401, 0x1409, 0x1411
NESTED = 0x8000
# NLMSG_DEFAULT_SIZE with pages of 4 KiB
PAGE_BYTES = 3776


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def message(kind: int, sequence: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 194) + body


def entry(name: str, value: int, pad: bool = False) -> bytes:
    """One counter; `pad` is what architectures without unaligned access put before the value."""
    padding = attribute(0, b"") if pad else b""
    return attribute(81 | NESTED, text(82, name) + padding + attribute(83, struct.pack("=Q", value)))


def port_body(device: str, index: int, port: int, counters: Mapping[str, int], pad: bool = False) -> bytes:
    entries = b"".join(entry(name, value, pad) for name, value in counters.items())
    return number(1, index) + text(2, device) + number(3, port) + attribute(80 | NESTED, entries)


@dataclass
class Device:
    index: int
    counters: dict[str, int]
    ports: int = 1
    resources: dict[str, int] = field(default_factory=lambda: {"pd": 3, "cq": 8, "qp": 5})


@dataclass
class RdmaKernel:
    """Its devices by name. `refuses` is the errno of every socket, `error` that of every reply about a port.

    `damage` changes a reply, and `asked` is called while the kernel asks a device.
    """

    devices: dict[str, Device] = field(default_factory=dict)
    refuses: int = 0
    error: int = 0
    pad: bool = False
    damage: Callable[[bytes], bytes] = lambda reply: reply
    asked: Callable[[str], None] = lambda device: None
    requests: int = 0
    sockets: int = 0

    def __post_init__(self) -> None:
        self._indices = itertools.count()

    def add(self, name: str, counters: Mapping[str, int], ports: int = 1) -> Device:
        """A new device; indices are not used again."""
        self.devices[name] = Device(next(self._indices), dict(counters), ports)
        return self.devices[name]

    def rename(self, name: str, new: str) -> None:
        self.devices[new] = self.devices.pop(name)

    def connect(self) -> FakeSocket:
        if self.refuses:
            raise OSError(self.refuses, os.strerror(self.refuses))
        self.sockets += 1
        return FakeSocket(self)

    def answer(self, request: bytes) -> list[bytes]:
        """The datagrams that answer a request."""
        kind, sequence = struct.unpack_from("=H", request, 4)[0], struct.unpack_from("=I", request, 8)[0]
        if kind == GET:
            parts = [
                message(GET, sequence, number(1, device.index) + text(2, name) + number(3, device.ports), MULTI)
                for name, device in self.devices.items()
            ]
            # at most two devices in a datagram
            joined = [b"".join(parts[begin : begin + 2]) for begin in range(0, len(parts), 2)]
            return [*joined, message(DONE, sequence, bytes(4), MULTI)]
        if kind == RES_GET:
            return [self.damage(self._count(sequence, request))]
        assert kind == STAT_GET
        self.requests += 1
        index, port = struct.unpack_from("=4xI4xI", request, 16)
        name = next((name for name, device in self.devices.items() if device.index == index), "")
        number_of_error = self.error or (0 if name and 1 <= port <= self.devices[name].ports else errno.EINVAL)
        if name:
            self.asked(name)
        body = b"" if number_of_error else port_body(name, index, port, self.devices[name].counters, self.pad)
        if 16 + len(body) > PAGE_BYTES:
            number_of_error = errno.EMSGSIZE
        if number_of_error:
            return [self.damage(message(ERROR, sequence, struct.pack("=i", -number_of_error) + request[:16]))]
        return [self.damage(message(STAT_GET, sequence, body))]

    def _count(self, sequence: int, request: bytes) -> bytes:
        """The reply to a request for the numbers of a device's resources (fill_res_info)."""
        (index,) = struct.unpack_from("=4xI", request, 16)
        name = next((name for name, device in self.devices.items() if device.index == index), "")
        if number_of_error := self.error or (0 if name else errno.EINVAL):
            return message(ERROR, sequence, struct.pack("=i", -number_of_error) + request[:16])
        entries = b"".join(
            attribute(
                16 | NESTED, text(17, kind) + attribute(0, b"") * self.pad + attribute(18, struct.pack("=Q", value))
            )
            for kind, value in self.devices[name].resources.items()
        )
        return message(RES_GET, sequence, number(1, index) + text(2, name) + attribute(15 | NESTED, entries))


class FakeSocket:
    """A socket of the kernel; `room` is the number of datagrams that it holds."""

    def __init__(self, kernel: RdmaKernel) -> None:
        self.kernel = kernel
        self.queue: list[bytes] = []
        self.room = 1000
        self.overrun = self.closed = False

    def send(self, data: bytes | bytearray, /) -> int:
        for datagram in self.kernel.answer(bytes(data)):
            if len(self.queue) < self.room:
                self.queue.append(datagram)
            else:
                self.overrun = True
        return len(data)

    def recv_into(self, buffer: bytearray, nbytes: int = 0, flags: int = 0, /) -> int:
        if self.overrun:
            self.overrun = False
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        if not self.queue:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        datagram = self.queue.pop(0)
        size = min(len(datagram), len(buffer))
        buffer[:size] = datagram[:size]
        return len(datagram) if flags else size

    def close(self) -> None:
        assert not self.closed
        self.closed = True
        self.kernel.sockets -= 1
