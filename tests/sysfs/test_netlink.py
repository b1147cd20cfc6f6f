"""RDMA netlink: replies of every driver through one parser, damage, indices that change, and refusals."""

from __future__ import annotations

import errno
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ibpulse.agent.sysfs import netlink
from ibpulse.agent.sysfs.byte_counters import HW_COUNTERS, SOURCES, may_ask
from ibpulse.agent.sysfs.netlink import Link, PortMessage, count_queue_pairs, is_kernel_tree, parse_port, read_port
from tests.families import counters as families
from tests.sysfs.rdma_kernel import RdmaKernel, attribute, message, port_body, text
from tests.tables import for_each

EFA = {name: int(value) for name, value in families.efa(0, newer=True).items() if value.strip().isdigit()}
# of the kernel itself: soft-RoCE, Linux 7.3.4, all zero but the layout
RECORDED = bytes.fromhex(
    "8c0200001114000002000000c20000000800010000000000090002007278653000000000080003000100000060025080200051800e00520073656e745f706b74"
    "730000000c0053000000000000000000200051800e005200726376645f706b74730000000c005300000000000000000028005180160052006475706c69636174"
    "655f726571756573740000000c005300000000000000000028005180170052006f75745f6f665f7365715f7265717565737400000c0053000000000000000000"
    "2400518011005200726376645f726e725f657272000000000c0053000000000000000000240051801100520073656e645f726e725f657272000000000c005300"
    "00000000000000002400518011005200726376645f7365715f657272000000000c0053000000000000000000240051801100520061636b5f6465666572726564"
    "000000000c0053000000000000000000280051801700520072657472795f65786365656465645f65727200000c00530000000000000000002c0051801b005200"
    "72657472795f726e725f65786365656465645f65727200000c00530000000000000000002800518018005200636f6d706c657465725f72657472795f65727200"
    "0c0053000000000000000000200051800d00520073656e645f657272000000000c005300000000000000000020005180100052006c696e6b5f646f776e656400"
    "0c0053000000000000000000200051800f00520072646d615f73656e647300000c0053000000000000000000200051800f00520072646d615f72656376730000"
    "0c0053000000000000000000200051800f00520073656e745f627974657300000c0053000000000000000000200051800f005200726376645f62797465730000"
    "0c0053000000000000000000"
)


def counted(files: dict[str, str]) -> dict[str, int]:
    """Numbered counters with the names of a family's files."""
    names = [name for name in files if name != "lifespan"]
    return {name: 10**18 + number for number, name in enumerate(names)}


DRIVERS = {
    "efa, old": ("efa", families.efa(0, newer=False)),
    "efa, new": ("efa", families.efa(0, newer=True)),
    "mana": ("mana", families.MANA_PORT),
    "irdma, old": ("ice", families.irdma(newer=False)),
    "irdma, new": ("ice", families.irdma(newer=True)),
    "bnxt": ("bnxt_en", families.bnxt(roce_only=True)),
    "ionic, old": ("ionic", families.ionic()),
    "ionic, new": ("ionic", families.ionic(newer=True)),
    "rxe": ("rdma_rxe", families.RXE),
}


def ask(port: PortMessage, link: Link) -> tuple[int, int]:
    port.ask(link)
    return port.take(link)


def start() -> tuple[RdmaKernel, PortMessage, Link]:
    """A kernel with an EFA device, and its port ready to be asked."""
    kernel = RdmaKernel()
    kernel.add("rdmap0", {**EFA, "tx_bytes": 11, "rx_bytes": 22})
    link = Link(kernel.connect)
    port = PortMessage("rdmap0", 1, ("tx_bytes",), ("rx_bytes",))
    port.resolve(link)
    return kernel, port, link


def test_the_recorded_reply_is_read() -> None:
    reply = parse_port(memoryview(RECORDED))
    assert (reply.device, reply.device_index, reply.port, len(reply.counters)) == ("rxe0", 0, 1, 17)
    assert list(reply.counters)[-2:] == ["sent_bytes", "rcvd_bytes"]
    values = dict.fromkeys(reply.counters, 0)
    assert message(netlink.STAT_GET, 2, port_body("rxe0", 0, 1, values)) == RECORDED


@for_each({f"{name}{' padded' * pad}": (*case, pad) for name, case in DRIVERS.items() for pad in (False, True)})
def test_replies_of_every_driver_are_read(driver: str, files: dict[str, str], pad: bool) -> None:
    kernel = RdmaKernel(pad=pad)
    kernel.add("other", {"tx_bytes": 0})
    values = counted(files)
    kernel.add("dev", values, ports=2)
    assert read_port("dev", 2, kernel.connect) == values
    rows = [row for row in SOURCES if not row.drivers or driver in row.drivers]
    row = next(row for row in rows if may_ask(row) and {*row.transmit, *row.receive} <= values.keys())
    link = Link(kernel.connect)
    port = PortMessage("dev", 2, row.transmit, row.receive)
    port.resolve(link)
    truth = tuple(sum(values[each] for each in names) for names in (row.transmit, row.receive))
    assert row.folder == HW_COUNTERS
    # the second reply is read at the places of the first
    assert [ask(port, link), ask(port, link)] == [truth, truth]


def test_values_change_at_known_places() -> None:
    kernel, port, link = start()
    assert ask(port, link) == (11, 22)
    known = port.layout
    kernel.devices["rdmap0"].counters |= {"tx_bytes": 2**63 + 5, "rx_bytes": 7}
    assert ask(port, link) == (2**63 + 5, 7)
    assert port.layout is known


def test_places_are_found_anew_when_the_set_of_counters_changes() -> None:
    kernel, port, link = start()
    ask(port, link)
    known = port.layout
    counters = kernel.devices["rdmap0"].counters
    # as many bytes, other places
    kernel.devices["rdmap0"].counters = dict(reversed(counters.items()))
    assert ask(port, link) == (11, 22)
    # more counters than before
    kernel.devices["rdmap0"].counters |= {f"optional_{number}": number for number in range(40)}
    assert ask(port, link) == (11, 22)
    assert port.layout is not known


def test_a_reply_without_the_byte_counters_is_refused() -> None:
    kernel, port, link = start()
    del kernel.devices["rdmap0"].counters["rx_bytes"]
    with pytest.raises(OSError, match="no counter rx_bytes") as refused:
        ask(port, link)
    assert refused.value.errno == errno.ENODATA


def test_a_renamed_device_is_not_read_under_its_old_name() -> None:
    kernel, port, link = start()
    ask(port, link)
    kernel.rename("rdmap0", "rdmap1")
    kernel.add("rdmap0", {"tx_bytes": 1, "rx_bytes": 2})
    with pytest.raises(OSError, match="is that of rdmap1:1") as refused:
        ask(port, link)
    assert refused.value.errno == errno.EINVAL
    link.indices.clear()
    port.resolve(link)
    assert ask(port, link) == (1, 2)


def test_a_removed_device_is_an_invalid_index_and_then_missing() -> None:
    kernel, port, link = start()
    del kernel.devices["rdmap0"]
    with pytest.raises(OSError, match="Invalid argument"):
        ask(port, link)
    link.indices.clear()
    with pytest.raises(OSError, match="No such device"):
        port.resolve(link)


@for_each([errno.EMSGSIZE, errno.EPERM, errno.EOPNOTSUPP])
def test_an_error_of_the_kernel_is_raised(number: int) -> None:
    kernel, port, link = start()
    kernel.error = number
    with pytest.raises(OSError, match=os.strerror(number)):
        ask(port, link)


def test_counters_that_need_more_than_a_page_are_refused() -> None:
    kernel = RdmaKernel()
    kernel.add("hfi1_0", {f"TxWaitVL,{number}": number for number in range(200)})
    with pytest.raises(OSError, match="Message too long") as refused:
        read_port("hfi1_0", 1, kernel.connect)
    assert netlink.explain(refused.value) == "its counters do not fit into one reply"
    assert kernel.sockets == 0


def test_replies_that_nobody_took_are_discarded() -> None:
    kernel, port, link = start()
    for _ in range(3):
        link.send(port.request)
    kernel.devices["rdmap0"].counters["tx_bytes"] = 12
    assert ask(port, link) == (12, 22)


def test_a_full_socket_recovers() -> None:
    _, port, link = start()
    link._socket.room = 2  # type: ignore[attr-defined]
    for _ in range(5):
        link.send(port.request)
    assert ask(port, link) == (11, 22)


def test_without_a_reply_nothing_is_waited_for() -> None:
    _, port, link = start()
    link._socket.room = 0  # type: ignore[attr-defined]
    with pytest.raises(OSError, match=r"No buffer space|no reply"):
        ask(port, link)


def shorter(reply: bytes) -> bytes:
    return reply[:-4]


def another_sequence(reply: bytes) -> bytes:
    return reply[:8] + struct.pack("=I", 99) + reply[12:]


def of_another_device(reply: bytes) -> bytes:
    return reply.replace(b"rdmap0", b"rdmap9")


def value_of_four_bytes(reply: bytes) -> bytes:
    return reply.replace(struct.pack("=HH", 12, 83), struct.pack("=HH", 8, 83))


def doubled(reply: bytes) -> bytes:
    body = reply[16:] + reply[16:]
    return message(netlink.STAT_GET, struct.unpack_from("=I", reply, 8)[0], body)


def two_messages(reply: bytes) -> bytes:
    return reply + reply


def counter_twice(reply: bytes) -> bytes:
    return reply.replace(b"rx_bytes", b"tx_bytes")


def name_without_end(reply: bytes) -> bytes:
    return reply.replace(b"tx_bytes\0", b"tx_bytesX")


def acknowledged(reply: bytes) -> bytes:
    return message(netlink.NLMSG_ERROR, struct.unpack_from("=I", reply, 8)[0], bytes(20))


DAMAGES: list[Callable[[bytes], bytes]] = [
    *(shorter, another_sequence, of_another_device, value_of_four_bytes, doubled, two_messages, counter_twice),
    *(name_without_end, acknowledged, lambda reply: b"", lambda reply: bytes(70_000), lambda reply: reply[:10]),
]


@for_each(DAMAGES)
def test_a_damaged_reply_gives_no_value(damage: Callable[[bytes], bytes]) -> None:
    kernel, port, link = start()
    for before in (0, 1):
        if before:
            ask(port, link)
        kernel.damage = damage
        with pytest.raises((OSError, ValueError)):
            ask(port, link)
        kernel.damage = lambda reply: reply
    assert ask(port, link) == (11, 22)


@for_each([False, True])
def test_queue_pairs_are_counted(pad: bool) -> None:
    kernel = RdmaKernel(pad=pad)
    kernel.add("mlx5_0", {})
    kernel.add("mlx5_1", {}).resources["qp"] = 2**33
    assert [count_queue_pairs(name, kernel.connect) for name in ("mlx5_0", "mlx5_1")] == [5, 2**33]
    assert kernel.sockets == 0


@for_each(
    {
        "no such device": ("mlx5_7", 0, lambda reply: reply, errno.ENODEV),
        "refused": ("mlx5_0", errno.EPERM, lambda reply: reply, errno.EPERM),
        "another device": ("mlx5_0", 0, lambda reply: reply.replace(b"mlx5_0", b"mlx5_1"), errno.EPROTO),
        "no queue pairs": ("mlx5_0", 0, lambda reply: reply.replace(b"qp\0", b"xp\0"), errno.ENODATA),
        "shorter": ("mlx5_0", 0, lambda reply: reply[:-9], errno.EPROTO),
        "nothing": ("mlx5_0", 0, lambda reply: b"", errno.EPROTO),
    }
)
def test_queue_pairs_that_the_kernel_does_not_tell_are_not_counted(
    device: str, error: int, damage: Callable[[bytes], bytes], number: int
) -> None:
    kernel = RdmaKernel(error=error, damage=damage)
    kernel.add("mlx5_0", {})
    with pytest.raises(OSError, match=rf"^\[Errno {number}\]"):
        count_queue_pairs(device, kernel.connect)
    assert kernel.sockets == 0


def test_random_damage_gives_no_false_value() -> None:
    """Whatever bytes change, the values are true, or those bytes are in a value, or there are none."""
    rng = random.Random(os.environ.get("FUZZ_SEED", "6"))
    kernel, port, link = start()
    reply = kernel.answer(struct.pack("=IHHIIHHIHHI", 32, 0x1411, 1, 1, 0, 8, 1, 0, 8, 3, 1))[0]
    places = {counter.value_at for name, counter in parse_port(memoryview(reply)).counters.items() if "_bytes" in name}
    in_values = {place + offset for place in places for offset in range(8)}

    def spoil(data: bytes) -> bytes:
        nonlocal touched
        raw = bytearray(data)
        kind = rng.randrange(4)
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(raw))
            if kind == 0:
                touched.add(place)
                raw[place] = rng.choice((0, 1, 255, rng.randrange(256)))
            elif kind == 1:
                del raw[place:]
                raw = raw or bytearray(1)
            elif kind == 2:
                raw[place:place] = raw[rng.randrange(len(raw)) :][: rng.randint(1, 40)]
            else:
                other = rng.randrange(len(raw))
                raw[place], raw[other] = raw[other], raw[place]
                touched |= {place, other}
        return bytes(raw)

    read = 0
    for case in range(int(os.environ.get("FUZZ_CASES", "300")) * 5):
        touched: set[int] = set()
        if case % 2:
            kernel.damage = lambda data: data
            assert ask(port, link) == (11, 22)
        kernel.damage = spoil
        try:
            values = ask(port, link)
        except (OSError, ValueError):
            continue
        read += 1
        assert values == (11, 22) or touched & in_values
    assert read
    with pytest.raises(ValueError, match="does not fit"):
        parse_port(memoryview(reply[:-4]))


def test_an_endless_list_of_devices_ends() -> None:
    kernel = RdmaKernel()
    link = Link(kernel.connect)
    part = text(2, "rdmap0") + attribute(1, bytes(4))
    kernel.answer = lambda request: [  # type: ignore[method-assign]
        message(netlink.GET, struct.unpack_from("=I", request, 8)[0], part) for _ in range(netlink.MAX_PARTS + 5)
    ]
    with pytest.raises(ValueError, match="over 256 parts"):
        link.find_index("rdmap1")


@for_each(["sysfs", "tmpfs", "fuse.sysfs"])
def test_only_a_mounted_sysfs_is_the_kernels(kind: str, tmp_path: Path) -> None:
    (tmp_path / "class").mkdir(exist_ok=True)
    device = (tmp_path / "class").stat().st_dev
    mounts = tmp_path / "mountinfo"
    line = f"22 28 {os.major(device)}:{os.minor(device)} / /sys rw,nosuid shared:7 - {kind} sysfs rw\n"
    mounts.write_text("21 28 0:19 / /proc rw - proc proc rw\n" + line)
    assert is_kernel_tree(tmp_path, mounts) == (kind == "sysfs")
    assert not is_kernel_tree(tmp_path / "missing", mounts)
    assert not is_kernel_tree(tmp_path, tmp_path / "missing")


class NewsSocket:
    """A socket whose messages the test gives; an error in their place is raised."""

    def __init__(self, messages: list[bytes | int]) -> None:
        self.messages = messages
        self.groups: list[tuple[int, int, int]] = []
        self.bound = self.closed = False

    def bind(self, address: tuple[int, int]) -> None:
        self.bound = True

    def setsockopt(self, level: int, option: int, value: int) -> None:
        assert self.bound, "a socket without an address hears nothing"
        if not self.messages:
            raise OSError(errno.EINVAL, "no such group")
        self.groups.append((level, option, value))

    def recv_into(self, buffer: bytearray) -> int:
        if not self.messages:
            raise BlockingIOError
        message = self.messages.pop(0)
        if isinstance(message, int):
            raise OSError(message, os.strerror(message))
        return len(message)

    def close(self) -> None:
        self.closed = True


@for_each(
    {
        "three at once": ([b"1", b"2", b"3"], [True, False]),
        "lost": ([errno.ENOBUFS], [True, False]),
        "endless": ([b"1"] * (netlink.MAX_PARTS + 1), [True, True, False]),
    }
)
def test_news_of_devices_are_heard(messages: list[bytes | int], heard: list[bool], monkeypatch: Any) -> None:
    opened = NewsSocket(list(messages))
    monkeypatch.setattr(netlink, "connect", lambda: opened)
    monitor = netlink.open_monitor()
    assert opened.groups == [(270, 1, 4)]
    assert [monitor.hear() for _ in heard] == heard
    monitor.close()
    assert opened.closed


def test_a_kernel_without_news_is_not_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = NewsSocket([])
    monkeypatch.setattr(netlink, "connect", lambda: opened)
    assert netlink.open_monitor() is None
    assert opened.closed
