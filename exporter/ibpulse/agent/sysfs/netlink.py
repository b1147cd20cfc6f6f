"""RDMA counters by netlink: one message has all `hw_counters` of a port, fresh at every request, for any user.

The kernel asks the driver while `send` runs, and the reply is there when `send` returns: a device that hangs, hangs
there, and no reply is ever waited for. Only a process with CAP_NET_ADMIN could send one in the kernel's place; even so
every reply is checked. Standard library only, because the sampler process imports it.

Numbers are those of include/uapi/rdma/rdma_netlink.h; drivers/infiniband/core/nldev.c writes the replies.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import socket

NETLINK_RDMA = 20
NLDEV = 5 << 10
GET, RES_GET, STAT_GET = NLDEV | 1, NLDEV | 9, NLDEV | 17
NLMSG_ERROR, NLMSG_DONE = 2, 3
REQUEST, DUMP = 0x1, 0x300
DEV_INDEX, DEV_NAME, PORT_INDEX = 1, 2, 3
SUMMARY, RESOURCE, RESOURCE_NAME, RESOURCE_COUNT = 15, 16, 17, 18
HWCOUNTERS, ENTRY, ENTRY_NAME, ENTRY_VALUE = 80, 81, 82, 83
# the upper two bits are flags
TYPE_MASK = 0x3FFF
HEADER = struct.Struct("=IHHII")
ATTRIBUTE = struct.Struct("=HH")
NUMBER = struct.Struct("=I")
VALUE = struct.Struct("=Q")
SEQUENCE_AT = 8
# linux/netlink.h, RDMA_NL_GROUP_NOTIFY, and linux/socket.h
SOL_NETLINK, ADD_MEMBERSHIP, NOTIFY_GROUP, MSG_TRUNC = 270, 1, 4, 0x20
# The counters of a port take a page of at most 8 KiB; the parts of a list of devices are longer.
REPLY_BYTES = 65_536
MAX_PARTS = 256
MAX_SEQUENCE = 0x7FFF_FFFF
# Those of the short tick, at even and at odd ticks: its requests and what it expects are made once. A reply that nobody
# took has the other one, and is not taken for a fresh one.
SHORT_SEQUENCES = (1, 2)

EXPLAINED = {
    errno.EPROTONOSUPPORT: "the kernel has no RDMA netlink: ib_core is not loaded, or this is a sandbox",
    errno.EAFNOSUPPORT: "netlink sockets are not allowed here: allow AF_NETLINK (RestrictAddressFamilies, seccomp)",
    errno.EPERM: "netlink sockets are not allowed here: check seccomp and AppArmor",
    errno.EACCES: "netlink sockets are not allowed here: check seccomp and AppArmor",
    errno.ENOSYS: "netlink sockets are not allowed here: check seccomp",
    errno.EMSGSIZE: "its counters do not fit into one reply",
    errno.EINVAL: "this kernel does not answer for it",
    errno.EOPNOTSUPP: "this kernel or its driver does not answer",
    errno.ENODEV: "the device belongs to another network namespace",
    errno.ENODATA: "the reply does not have its byte counters",
    errno.EPROTO: "the reply is not understood",
}


class Socket(Protocol):
    """What is used of a socket."""

    def send(self, data: Any, /) -> int:
        """Send a request; the kernel handles it before this returns."""

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0, /) -> int:
        """Receive a datagram; raises BlockingIOError if there is none."""

    def close(self) -> None:
        """Close the socket."""


def connect(family: int = NETLINK_RDMA) -> socket.socket:
    """A socket to a part of the kernel, that for RDMA. Raises OSError."""
    import socket  # a sampler that reads only files has no megabytes for it

    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
    # what is not there after `send` never comes
    opened.setblocking(False)
    return opened


def explain(error: OSError) -> str:
    """Why a port is not read by netlink, as the end of a sentence."""
    return EXPLAINED.get(error.errno or 0) or error.strerror or "it failed"


def is_kernel_tree(root: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether the tree is this kernel's own sysfs, and not a copy or a simulation: netlink knows its devices."""
    try:
        device = (root / "class").stat().st_dev
        # its bytes can be any
        lines = mounts.read_bytes().decode(errors="replace").split("\n")
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(
        fields[2:3] == [number] and line.partition(" - ")[2].startswith("sysfs ")
        for line in lines
        if (fields := line.split(" ", 3))
    )


def attributes(data: memoryview, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Type, begin and end of each attribute's value. Raises ValueError for one that does not fit."""
    while begin < end:
        if end - begin < ATTRIBUTE.size:
            raise ValueError("an attribute has no room for its header")
        length, kind = ATTRIBUTE.unpack_from(data, begin)
        if length < ATTRIBUTE.size or begin + length > end:
            raise ValueError(f"an attribute of {length} bytes does not fit")
        yield kind & TYPE_MASK, begin + ATTRIBUTE.size, begin + length
        begin += length + 3 & ~3


class _Fields:
    """The attributes of one level by type; each may be there once. Raises ValueError."""

    def __init__(self, data: memoryview, begin: int, end: int) -> None:
        self._data = data
        self._places: dict[int, tuple[int, int]] = {}
        for kind, first, last in attributes(data, begin, end):
            # type 0 is padding
            if kind and kind in self._places:
                raise ValueError(f"attribute {kind} is there twice")
            self._places[kind] = first, last

    def place(self, kind: int, size: int = 0) -> tuple[int, int]:
        """Begin and end of a value, which has this size if one is given."""
        if kind not in self._places:
            raise ValueError(f"attribute {kind} is not there")
        first, last = self._places[kind]
        if size and last - first != size:
            raise ValueError(f"attribute {kind} has {last - first} bytes, not {size}")
        return first, last

    def number(self, kind: int) -> int:
        found: int = NUMBER.unpack_from(self._data, self.place(kind, NUMBER.size)[0])[0]
        return found

    def text(self, kind: int) -> str:
        first, last = self.place(kind)
        raw = bytes(self._data[first:last])
        if not raw.endswith(b"\0") or raw.count(b"\0") != 1:
            raise ValueError(f"attribute {kind} is not one text")
        return raw[:-1].decode()


class Counter(NamedTuple):
    """A counter of a reply: where its entry begins, where its value lies, and the value."""

    entry_at: int
    value_at: int
    value: int


class PortReply(NamedTuple):
    """A reply to STAT_GET; its entries begin at `entries_at`."""

    device: str
    device_index: int
    port: int
    entries_at: int
    counters: dict[str, Counter]


def parse_port(data: memoryview) -> PortReply:
    """The counters of a port in a whole message. Raises ValueError."""
    fields = _Fields(data, HEADER.size, len(data))
    begin, end = fields.place(HWCOUNTERS)
    counters: dict[str, Counter] = {}
    for kind, first, last in attributes(data, begin, end):
        if kind != ENTRY:
            continue
        entry = _Fields(data, first, last)
        name, value_at = entry.text(ENTRY_NAME), entry.place(ENTRY_VALUE, VALUE.size)[0]
        if name in counters:
            raise ValueError(f"counter {name!r} is there twice")
        counters[name] = Counter(first - ATTRIBUTE.size, value_at, VALUE.unpack_from(data, value_at)[0])
    return PortReply(fields.text(DEV_NAME), fields.number(DEV_INDEX), fields.number(PORT_INDEX), begin, counters)


class Layout:
    """The form of a port's replies, which stays the same while the set of counters does.

    `unpack` gives everything up to the first counter, and for each byte counter its name and its value.
    """

    def __init__(self, data: memoryview, reply: PortReply, transmit: Sequence[str], receive: Sequence[str]) -> None:
        """The layout of a reply that has these counters.

        Raises:
            OSError: ENODATA, it does not have them.
        """
        wanted = [*transmit, *receive]
        if missing := [name for name in wanted if name not in reply.counters]:
            raise OSError(errno.ENODATA, f"the reply has no counter {missing[0]}")
        self.size = len(data)
        places = sorted((reply.counters[name], name) for name in wanted)
        at, form = reply.entries_at, f"={reply.entries_at}s"
        for counter, _ in places:
            form += f"{counter.entry_at - at}x{counter.value_at - counter.entry_at}sQ"
            at = counter.value_at + VALUE.size
        self.unpack = struct.Struct(form).unpack_from
        got = self.unpack(data)
        self.names = got[1::2]
        self._head: bytes = got[0]
        order = [name for _, name in places]
        self._transmit, self._receive = ([2 + 2 * order.index(name) for name in names] for names in (transmit, receive))

    def head(self, sequence: int) -> bytes:
        """What a reply to the request with this sequence number begins with."""
        return self._head[:SEQUENCE_AT] + NUMBER.pack(sequence) + self._head[SEQUENCE_AT + NUMBER.size :]

    @property
    def is_pair(self) -> bool:
        """Whether one counter has all bytes of a direction."""
        return len(self._transmit) == len(self._receive) == 1

    @property
    def is_swapped(self) -> bool:
        """Whether the first of a pair is received."""
        return self._transmit > self._receive

    def values(self, got: Sequence[int]) -> tuple[int, int]:
        """The bytes transmitted and received, of a reply that was unpacked."""
        return sum(got[place] for place in self._transmit), sum(got[place] for place in self._receive)

    def each(self, got: Sequence[int]) -> list[int]:
        """The counters that were asked for, in that order, of a reply that was unpacked."""
        return [got[place] for places in (self._transmit, self._receive) for place in places]


class Link:
    """A connection to the RDMA part of the kernel, with the buffer for its replies."""

    def __init__(self, connect: Callable[[], Socket] = connect) -> None:
        """Connect. Raises OSError."""
        self._socket = connect()
        self.send, self.receive = self._socket.send, self._socket.recv_into
        self.reply = bytearray(REPLY_BYTES)
        self.sequence = 0
        """That of the last request."""
        self.indices: dict[str, int] = {}
        """Those of the devices when they were last listed; cleared when they may have changed."""

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def find_index(self, device: str) -> int:
        """The index of a device, which is another one after it was removed and added.

        Raises:
            OSError: ENODEV, it is not in this network namespace, or the error of the kernel.
            ValueError: the reply is damaged.
        """
        if device not in self.indices:
            self.indices = self._list_devices()
        if device not in self.indices:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return self.indices[device]

    def _list_devices(self) -> dict[str, int]:
        """The index of each device of this network namespace by name."""
        self.request(bytearray(HEADER.pack(HEADER.size, GET, REQUEST | DUMP, 0, 0)))
        found: dict[str, int] = {}
        for _ in range(MAX_PARTS):
            for kind, message in self._messages(self._take()):
                if kind == NLMSG_DONE:
                    return found
                fields = _Fields(message, HEADER.size, len(message))
                found[fields.text(DEV_NAME)] = fields.number(DEV_INDEX)
        raise ValueError(f"a list of devices has over {MAX_PARTS} parts")

    def request(self, request: bytearray) -> None:
        """Send a request, with the next sequence number. Raises OSError."""
        self.drain()
        self.sequence = max(self.sequence & MAX_SEQUENCE, *SHORT_SEQUENCES) + 1
        NUMBER.pack_into(request, SEQUENCE_AT, self.sequence)
        self.send(request)

    def take_one(self, kind: int) -> memoryview:
        """The only message of the reply to a request of this type. Raises OSError or ValueError."""
        messages = list(self._messages(self._take()))
        if len(messages) != 1 or messages[0][0] != kind:
            raise ValueError("the reply is not one message of the type that was asked for")
        return messages[0][1]

    def drain(self) -> None:
        """Discard replies that nobody took. Raises OSError."""
        for _ in range(MAX_PARTS):
            try:
                self.receive(self.reply)
            except BlockingIOError:
                return
            except OSError as error:
                # replies that found no room
                if error.errno != errno.ENOBUFS:
                    raise

    def _take(self) -> memoryview:
        try:
            size = self.receive(self.reply, 0, MSG_TRUNC)
        except BlockingIOError as error:
            raise OSError(errno.ENOMSG, "the kernel sent no reply") from error
        if size > len(self.reply):
            raise ValueError(f"a reply of {size} bytes is too long")
        return memoryview(self.reply)[:size]

    def _messages(self, datagram: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Type and content of the messages of a reply to the last request.

        Raises:
            OSError: the kernel's answer is an error.
            ValueError: the reply is damaged, or that to another request.
        """
        begin = 0
        while begin < len(datagram):
            if len(datagram) - begin < HEADER.size:
                raise ValueError("a message has no room for its header")
            length, kind, _, sequence, _ = HEADER.unpack_from(datagram, begin)
            if length < HEADER.size or begin + length > len(datagram) or sequence != self.sequence:
                raise ValueError(f"a message of {length} bytes with sequence number {sequence} is not expected")
            message = datagram[begin : begin + length]
            if kind == NLMSG_ERROR:
                if length < HEADER.size + NUMBER.size:
                    raise ValueError("an error has no number")
                number = -struct.unpack_from("=i", message, HEADER.size)[0]
                # 0 acknowledges, which nobody asked for
                number = number if 0 < number < 4096 else errno.EPROTO
                raise OSError(number, os.strerror(number))
            yield kind, message
            begin += length + 3 & ~3


class PortMessage:
    """Asks for the counters of one port again and again, and finds the device's index when it has changed."""

    def __init__(self, device: str, port: int, transmit: Sequence[str], receive: Sequence[str]) -> None:
        self._device, self._port, self._names = device, port, (tuple(transmit), tuple(receive))
        self.layout: Layout | None = None
        """That of the last reply."""
        numbers = [part for kind, value in ((DEV_INDEX, 0), (PORT_INDEX, port)) for part in (8, kind, value)]
        body = struct.pack("=HHIHHI", *numbers)
        self.request = bytearray(HEADER.pack(HEADER.size + len(body), STAT_GET, REQUEST, 0, 0) + body)

    def resolve(self, link: Link) -> None:
        """Find the device by its name. Raises OSError or ValueError."""
        index = link.find_index(self._device)
        NUMBER.pack_into(self.request, HEADER.size + ATTRIBUTE.size, index)
        self.layout = None

    def with_sequence(self, sequence: int) -> bytes:
        """The request with a sequence number."""
        return bytes(self.request[:SEQUENCE_AT]) + NUMBER.pack(sequence) + bytes(self.request[SEQUENCE_AT + 4 :])

    def ask(self, link: Link) -> None:
        """Send the request; `take` then has the reply. Raises OSError."""
        link.request(self.request)

    def take(self, link: Link) -> tuple[int, int]:
        """The bytes transmitted and received.

        Raises:
            OSError: the kernel refuses; EINVAL also if the device has another name by now.
            ValueError: the reply is damaged.
        """
        layout, got = self._unpack(link)
        return layout.values(got)

    def take_each(self, link: Link) -> list[int]:
        """Each counter. Raises the same."""
        layout, got = self._unpack(link)
        return layout.each(got)

    def _unpack(self, link: Link) -> tuple[Layout, Sequence[Any]]:
        data = link.take_one(STAT_GET)
        layout = self.layout
        if layout is not None and layout.size == len(data):
            got = layout.unpack(data)
            if got[0] == layout.head(link.sequence) and got[1::2] == layout.names:
                return layout, got
        reply = parse_port(data)
        index = NUMBER.unpack_from(self.request, HEADER.size + ATTRIBUTE.size)[0]
        if (reply.device, reply.device_index, reply.port) != (self._device, index, self._port):
            raise OSError(errno.EINVAL, f"the reply is that of {reply.device}:{reply.port}")
        self.layout = layout = Layout(data, reply, *self._names)
        return layout, layout.unpack(data)


class Monitor:
    """Hears when a device comes, goes or gets another name, on kernels that tell (`RDMA_NLDEV_CMD_MONITOR`)."""

    def __init__(self) -> None:
        """Listen. Raises OSError where the kernel does not tell."""
        self._socket = connect()
        try:
            # a socket without an address hears nothing
            self._socket.bind((0, 0))
            self._socket.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, NOTIFY_GROUP)
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """The descriptor that is readable when there is news."""
        return self._socket.fileno()

    def hear(self) -> bool:
        """Whether there is news; a lost message is news too. Raises OSError."""
        heard, message = False, bytearray(1)
        for _ in range(MAX_PARTS):
            try:
                self._socket.recv_into(message)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
            heard = True
        return heard

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def open_monitor() -> Monitor | None:
    """A monitor; None where the kernel does not tell, so that devices are only listed from time to time."""
    try:
        return Monitor()
    except OSError:
        return None


def read_port(device: str, port: int, connect: Callable[[], Socket] = connect) -> dict[str, int]:
    """All `hw_counters` of a port by name, once. Raises OSError."""
    message = PortMessage(device, port, (), ())
    with _once(connect) as link:
        message.resolve(link)
        message.ask(link)
        reply = parse_port(link.take_one(STAT_GET))
        if (reply.device, reply.port) != (device, port):
            raise ValueError(f"the reply is that of {reply.device}:{reply.port}")
    return {name: counter.value for name, counter in reply.counters.items()}


def count_queue_pairs(device: str, connect: Callable[[], Socket] = connect) -> int:
    """The queue pairs of a device, whoever has them, the kernel too. Raises OSError.

    The kernel counts them itself and does not ask the driver (drivers/infiniband/core/restrack.c).
    """
    with _once(connect) as link:
        index = struct.pack("=HHI", ATTRIBUTE.size + NUMBER.size, DEV_INDEX, link.find_index(device))
        link.request(bytearray(HEADER.pack(HEADER.size + len(index), RES_GET, REQUEST, 0, 0) + index))
        message = link.take_one(RES_GET)
        fields = _Fields(message, HEADER.size, len(message))
        if (found := fields.text(DEV_NAME)) != device:
            raise ValueError(f"the reply is that of {found}")
        for kind, first, last in attributes(message, *fields.place(SUMMARY)):
            entry = _Fields(message, first, last)
            if kind == RESOURCE and entry.text(RESOURCE_NAME) == "qp":
                count: int = VALUE.unpack_from(message, entry.place(RESOURCE_COUNT, VALUE.size)[0])[0]
                return count
    raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))


@contextmanager
def _once(connect: Callable[[], Socket]) -> Iterator[Link]:
    """A connection for one question; a damaged reply is an OSError, EPROTO."""
    link = Link(connect)
    try:
        yield link
    except ValueError as error:
        raise OSError(errno.EPROTO, str(error)) from error
    finally:
        link.close()
