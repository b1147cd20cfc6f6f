"""Finds what counts a port's bytes, using a table of known drivers: files, or the message with the same counters.

Each file is read once when a port is new; from then on the sampler reads it. Counters of `hw_counters` are asked for by
netlink, because the files show them as they were up to `lifespan` ago; see `netlink`. Where that is refused, the files
remain, and are read less often.

Only files of `ports/<n>` are read. A pod's own sysfs has neither `counters` nor `hw_counters` there, and reading the
device's own `hw_counters`, which it may still show, can crash some kernels.

The legacy 32-bit counters saturate after 0.34 s at 400 Gb/s and cannot be used. A folder with `unicast_xmit_packets`,
or with a value above 32 bits, has the 64-bit counters. A folder with `port_xmit_packets` but without
`unicast_xmit_packets` has either the legacy counters or the rare 64-bit counters of devices that do not count unicast
packets, under the same file names. Such a port has no source until a value proves 64 bits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ibpulse.agent.sysfs.files import ReadFault, list_names, parse_count, read_text, read_value
from ibpulse.base.text import sentence_list
from ibpulse.base.units import WORD_BYTES
from ibpulse.core.model import ByteSource, Port, PortId

COUNTERS = "counters"
HW_COUNTERS = "hw_counters"

# The kernel serves a cached value for `lifespan` and until the next jiffy: 1, 4 or 10 ms, depending on HZ.
# sysfs does not show HZ; distributions ship HZ=250.
JIFFY_SECONDS = 0.004
DEFAULT_LIFESPAN_SECONDS = 0.010
MAX_LIFESPAN_MS = 10_000

# The longest sampling interval is a second: a counter that changes less than three times per second can alias.
SELDOM_SECONDS = 1 / 3
SELDOM_NOTE = (
    "the kernel refreshes these counters every {seconds:g} s: shorter bursts are not seen, and seconds can include "
    "different numbers of updates; write a smaller number to hw_counters/lifespan."
)

# names of kernel modules
BROADCOM = frozenset({"bnxt_en", "bnxt_re"})
SOFT_ROCE = "rdma_rxe"
EFA = "efa"
BROADCOM_DMA_SECONDS = 1.0

# A fresh value is one or more commands of the device's firmware, or of the host's. So many are asked of a node: that of
# 16 ports every 10 ms, of the 32 EFA devices of the largest instances every 20 ms.
MAX_COMMANDS_PER_SECOND = 1600

# Why a port has no source although no read failed.
NO_BYTES = "no file of this port counts bytes."
UNKNOWN_BYTES = "ibpulse does not know what they include, so they are not sampled."
LEGACY = "its counters may be the legacy ones, which stop at 32 bits, so they are not used."
# True of every port of this driver, and nothing can be done about it.
OCTETS_NOTE = "irdma counts IP octets, without the Ethernet header."
WORDS = (("port_xmit_data",), ("port_rcv_data",))
BYTES = (("tx_bytes",), ("rx_bytes",))
_OF_BYTES = re.compile("byte|octet", re.IGNORECASE)
MAX_NAMES = 4


@dataclass(frozen=True, slots=True)
class ByteCounterRow:
    """One way to count bytes: the sum of files of `folder` per direction, in units of `scale` bytes.

    `drivers` empty means any driver. `device_refresh_seconds` is the time between two updates by the device itself.
    """

    name: str
    folder: str
    transmit: tuple[str, ...]
    receive: tuple[str, ...]
    scale: int
    drivers: frozenset[str] = frozenset()
    device_refresh_seconds: float = 0.0
    note: str = ""


# The source is the first row that matches the driver and whose files can all be read.
SOURCES: tuple[ByteCounterRow, ...] = (
    ByteCounterRow("hfi1_words", HW_COUNTERS, ("TxWords",), ("RxWords",), WORD_BYTES, frozenset({"hfi1"})),
    ByteCounterRow(
        "hfi1_flits",
        COUNTERS,
        *WORDS,
        WORD_BYTES,
        frozenset({"hfi1"}),
        note="hfi1 counts flits in port_xmit_data, other drivers 4-byte words: true rates may be twice as high.",
    ),
    ByteCounterRow("roce_only_bytes", HW_COUNTERS, ("tx_roce_only_bytes",), ("rx_roce_only_bytes",), 1),
    ByteCounterRow(
        "port_data",
        COUNTERS,
        *WORDS,
        WORD_BYTES,
        BROADCOM,
        BROADCOM_DMA_SECONDS,
        note="on some Broadcom devices these counters change once a second: shorter bursts are not seen, "
        "and a second can include no update or two.",
    ),
    ByteCounterRow("port_data", COUNTERS, *WORDS, WORD_BYTES),
    ByteCounterRow(
        "dma_bytes",
        HW_COUNTERS,
        *BYTES,
        1,
        BROADCOM,
        BROADCOM_DMA_SECONDS,
        note="the device updates these counters once a second: shorter bursts are not seen, and a second can include "
        "no update or two.",
    ),
    ByteCounterRow("hw_bytes", HW_COUNTERS, *BYTES, 1, frozenset({"efa", "mana"})),
    ByteCounterRow(
        "ip_octets",
        HW_COUNTERS,
        ("ip4OutOctets", "ip6OutOctets"),
        ("ip4InOctets", "ip6InOctets"),
        1,
        note=OCTETS_NOTE,
    ),
    ByteCounterRow(
        "ionic_bytes",
        HW_COUNTERS,
        ("tx_rdma_ucast_bytes", "tx_rdma_mcast_bytes"),
        ("rx_rdma_ucast_bytes", "rx_rdma_mcast_bytes"),
        1,
    ),
    ByteCounterRow("erdma_bytes", HW_COUNTERS, ("tx_bytes_cnt",), ("rx_bytes_cnt",), 1),
    # the driver that Alibaba publishes itself
    ByteCounterRow("erdma_bytes", HW_COUNTERS, ("hw_tx_bytes_cnt",), ("hw_rx_bytes_cnt",), 1),
    ByteCounterRow("rxe_bytes", HW_COUNTERS, ("sent_bytes",), ("rcvd_bytes",), 1),
    ByteCounterRow(
        "hw_bytes",
        HW_COUNTERS,
        *BYTES,
        1,
        note="ibpulse does not know this driver, so it is unknown what its tx_bytes and rx_bytes include.",
    ),
)


def choose_row(port_folder: str, driver: str) -> tuple[ByteCounterRow | None, str]:
    """The first row of the table that works for the port at `port_folder`, and the problem if none does.

    Each file is read once. The problem is the end of a sentence.
    """
    problem = ""
    for row in SOURCES:
        if row.drivers and driver not in row.drivers:
            continue
        fault = _try_row(row, port_folder)
        if fault is None:
            return row, ""
        problem = problem or fault
    return None, problem or _name_bytes(port_folder, driver) or NO_BYTES


def _name_bytes(port_folder: str, driver: str) -> str:
    """The problem that only the names of some files speak of bytes, so that their meaning is unknown; or empty."""
    names = [
        f"{folder}/{name}"
        for folder in (COUNTERS, HW_COUNTERS)
        for name in list_names(os.path.join(port_folder, folder))
        if _OF_BYTES.search(name)
    ]
    if not names:
        return ""
    more = [f"{len(names) - MAX_NAMES} more files"] if len(names) > MAX_NAMES + 1 else []
    shown = sentence_list([*names[:MAX_NAMES], *more] if more else names)
    return f"its driver{f' {driver}' if driver else ''} names bytes in {shown}, but {UNKNOWN_BYTES}"


def may_ask(row: ByteCounterRow) -> bool:
    """Whether netlink gives fresher counters than the files of the row."""
    return row.folder == HW_COUNTERS and not row.device_refresh_seconds


def build_source(row: ByteCounterRow, port_folder: str, netlink: bool = False, refusal: str = "") -> ByteSource:
    """The byte source of a row at `port_folder`, with the current refresh time of the kernel's cache."""
    folder = os.path.join(port_folder, row.folder)
    refresh_seconds = 0.0
    if row.folder == HW_COUNTERS and not netlink:
        refresh_seconds = read_lifespan_seconds(folder) + JIFFY_SECONDS
    seldom = SELDOM_NOTE.format(seconds=refresh_seconds) if refresh_seconds > SELDOM_SECONDS else ""
    return ByteSource(
        name=row.name,
        transmit=tuple(os.path.join(folder, name) for name in row.transmit),
        receive=tuple(os.path.join(folder, name) for name in row.receive),
        scale=row.scale,
        refresh_seconds=max(refresh_seconds, row.device_refresh_seconds),
        note=" ".join(filter(None, (row.note, seldom))),
        netlink=netlink,
        refusal=refusal,
    )


def spare_devices(ports: Sequence[Port], patient: Collection[PortId]) -> list[Port]:
    """The ports, of which those read by netlink are asked less often if the node has many; except for the `patient`.

    Soft-RoCE has no device that could be kept busy.
    """
    spared = {
        port.id
        for port in ports
        if port.source and port.source.netlink and port.identity.driver != SOFT_ROCE and port.id not in patient
    }
    pause_seconds = len(spared) / MAX_COMMANDS_PER_SECOND
    return [
        replace(port, source=replace(port.source, pause_seconds=pause_seconds))
        if port.source and port.id in spared
        else port
        for port in ports
    ]


def read_lifespan_seconds(folder: str) -> float:
    """Time for which the kernel caches the counters of an `hw_counters` folder; the default if not readable."""
    lifespan_ms = parse_count(read_value(folder, "lifespan"))
    if lifespan_ms is None or lifespan_ms > MAX_LIFESPAN_MS:
        return DEFAULT_LIFESPAN_SECONDS
    return lifespan_ms / 1000


def _try_row(row: ByteCounterRow, port_folder: str) -> str | None:
    """None if every file of the row counts; otherwise the problem, empty if the device does not have the files."""
    folder = os.path.join(port_folder, row.folder)
    largest = 0
    for name in (*row.transmit, *row.receive):
        read = read_text(os.path.join(folder, name))
        if read.fault is ReadFault.MISSING:
            return ""
        count = parse_count(read.text)
        if count is None:
            reason = read.reason or f"holds '{read.text[:40]}', which is not a count"
            return f"{row.folder}/{name} {reason}."
        largest = max(largest, count)
    if row.folder == COUNTERS and largest < 2**32:
        packets, unicast = (os.path.join(folder, f"{kind}_xmit_packets") for kind in ("port", "unicast"))
        if os.path.exists(packets) and not os.path.exists(unicast):
            return LEGACY
    return None
