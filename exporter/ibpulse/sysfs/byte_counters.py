"""Which files of a port count its bytes: a table of facts per driver, and the walk over it.

Each file is read once when a port is new, and the sampler reads it from then on.

Only files of `ports/<n>` are ever read. A pod's own view of sysfs has neither `counters` nor `hw_counters` there, and
the `hw_counters` of the device, which it may still show, can crash some kernels when they are read.

The legacy table of 32-bit counters saturates after 0.34 s at 400 Gb/s, so nothing may be computed from it. What sysfs
shows: a table with `unicast_xmit_packets` is certainly the 64-bit one, and a value above 32 bits proves it too. A table
with `port_xmit_packets` but without `unicast_xmit_packets` is either the legacy one or the rare 64-bit table of devices
that count no unicast packets; the file names are the same. Such a port has no source until a value proves 64 bits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ibpulse.model import ByteSource
from ibpulse.sysfs.files import ReadFault, parse_count, read_text
from ibpulse.units import WORD_BYTES

COUNTERS = "counters"
HW_COUNTERS = "hw_counters"

# The kernel serves a cached value for `lifespan`, and until the next tick of its clock: 1, 4 or 10 ms by its HZ.
# HZ=250 is what distributions ship; nothing in sysfs tells HZ.
JIFFY_SECONDS = 0.004
DEFAULT_LIFESPAN_SECONDS = 0.010
LONGEST_LIFESPAN_MS = 10_000

# A second is the longest interval of samples: what changes less often than three times in it can alias.
SELDOM_SECONDS = 1 / 3

BROADCOM = frozenset({"bnxt_en", "bnxt_re"})
BROADCOM_DMA_SECONDS = 1.0

# Why a port has no source where no file failed.
NO_BYTES = "no file of this port counts bytes."
LEGACY = "its counters may be the legacy ones, which stop at 32 bits, so no throughput is computed from them."
# True of every port of its kind, and nothing is to be done about it.
OCTETS_NOTE = "irdma counts IP octets, which leave out the Ethernet header."


@dataclass(frozen=True, slots=True)
class ByteCounterRow:
    """One way to count bytes: files of `folder` added up per direction, each count worth `scale` bytes.

    `drivers` empty means any driver. `device_refresh_seconds` is how often the device itself renews the value.
    """

    name: str
    folder: str
    transmit: tuple[str, ...]
    receive: tuple[str, ...]
    scale: int
    drivers: frozenset[str] = frozenset()
    device_refresh_seconds: float = 0.0
    note: str = ""


WORDS = (("port_xmit_data",), ("port_rcv_data",))
BYTES = (("tx_bytes",), ("rx_bytes",))

# The first row whose driver fits and whose files all read is the source.
SOURCES: tuple[ByteCounterRow, ...] = (
    ByteCounterRow("hfi1_words", HW_COUNTERS, ("TxWords",), ("RxWords",), WORD_BYTES, frozenset({"hfi1"})),
    ByteCounterRow(
        "hfi1_flits",
        COUNTERS,
        *WORDS,
        WORD_BYTES,
        frozenset({"hfi1"}),
        note="hfi1 counts flits in port_xmit_data where others count 4-byte words: true rates may be twice these.",
    ),
    ByteCounterRow("roce_only_bytes", HW_COUNTERS, ("tx_roce_only_bytes",), ("rx_roce_only_bytes",), 1),
    ByteCounterRow(
        "port_data",
        COUNTERS,
        *WORDS,
        WORD_BYTES,
        BROADCOM,
        BROADCOM_DMA_SECONDS,
        note="on some Broadcom devices these counters change once a second, so shorter bursts are not seen, "
        "and a second can show none or two renewals.",
    ),
    ByteCounterRow("port_data", COUNTERS, *WORDS, WORD_BYTES),
    ByteCounterRow(
        "dma_bytes",
        HW_COUNTERS,
        *BYTES,
        1,
        BROADCOM,
        BROADCOM_DMA_SECONDS,
        note="the device renews these counters once a second, so shorter bursts are not seen, and a second can show "
        "none or two renewals.",
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
    ByteCounterRow("erdma_bytes", HW_COUNTERS, ("tx_bytes_cnt",), ("rx_bytes_cnt",), 1),
    ByteCounterRow("rxe_bytes", HW_COUNTERS, ("sent_bytes",), ("rcvd_bytes",), 1),
    ByteCounterRow(
        "hw_bytes",
        HW_COUNTERS,
        *BYTES,
        1,
        note="ibpulse does not know this driver: what its tx_bytes and rx_bytes include is not known.",
    ),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The row that counts a port's bytes, or None and the `problem` as a sentence's end."""

    row: ByteCounterRow | None
    problem: str = ""


def choose_row(port_folder: str, driver: str) -> Choice:
    """The first row of the table that works for the port at `port_folder`; reads every file of it once."""
    problem = ""
    for row in SOURCES:
        if row.drivers and driver not in row.drivers:
            continue
        fault = _try_row(row, port_folder)
        if fault is None:
            return Choice(row)
        problem = problem or fault
    return Choice(None, problem or NO_BYTES)


def build_source(row: ByteCounterRow, port_folder: str) -> ByteSource:
    """The byte source of a row at `port_folder`, with the refresh that the kernel's cache has now."""
    folder = os.path.join(port_folder, row.folder)
    refresh_seconds = 0.0
    if row.folder == HW_COUNTERS:
        refresh_seconds = read_lifespan_seconds(folder) + JIFFY_SECONDS
    return ByteSource(
        name=row.name,
        transmit=tuple(os.path.join(folder, name) for name in row.transmit),
        receive=tuple(os.path.join(folder, name) for name in row.receive),
        scale=row.scale,
        refresh_seconds=max(refresh_seconds, row.device_refresh_seconds),
        note=" ".join(filter(None, (row.note, _note_seldom(refresh_seconds)))),
    )


def _note_seldom(cache_seconds: float) -> str:
    if cache_seconds <= SELDOM_SECONDS:
        return ""
    return (
        f"the kernel renews these counters every {cache_seconds:g} s, so shorter bursts are not seen, and a second can "
        "show more or fewer renewals than the one before: write a smaller number into hw_counters/lifespan."
    )


def read_lifespan_seconds(folder: str) -> float:
    """How long the kernel caches the counters of an `hw_counters` folder; its default where it does not say."""
    lifespan_ms = parse_count(read_text(os.path.join(folder, "lifespan")).text)
    if lifespan_ms is None or lifespan_ms > LONGEST_LIFESPAN_MS:
        return DEFAULT_LIFESPAN_SECONDS
    return lifespan_ms / 1000


def _try_row(row: ByteCounterRow, port_folder: str) -> str | None:
    """None when every file of the row counts; else why not, empty when the device just does not have them."""
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
    if row.folder == COUNTERS and _looks_legacy(folder, largest):
        return LEGACY
    return None


def _looks_legacy(folder: str, largest: int) -> bool:
    return (
        largest < 2**32
        and os.path.exists(os.path.join(folder, "port_xmit_packets"))
        and not os.path.exists(os.path.join(folder, "unicast_xmit_packets"))
    )
