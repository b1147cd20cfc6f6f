"""Defines the layout of the ring file. Standard library only, because the sampler process imports it.

The file is an array of 64-bit words in the machine's byte order:

    header      magic, version, interval, capacity, then the table of clock segments
    lanes       one block per sampler process: heartbeat, counts, lateness and duration histograms
    slots       one block per port: name, device, scale, read errors, reads at an uncertain time
    records     per slot `capacity` records of six words, indexed by tick modulo capacity
    signals     per slot a head and `signal_capacity` readings of sixteen words, indexed by their number modulo that

A *tick* is an ordinal that only increases. `tick - shift`, with the shift of the last segment that began at or before
the tick, is wall time in intervals. A step of the wall clock begins a new segment, so data may be missing in wall time,
but ticks stay continuous.

One record is `before, between, after, transmit, receive, tick`: the monotonic clock (ns) before the first read,
between the two and after the second, and the raw counters. `ABSENT` marks a counter that was not read. If one message
had both counters, they were read between `before` and `between`, and `after` is `before`: so each counter lies in the
middle of two neighbouring instants either way.
The upper bits of the last word hold the stride at which the port was sampled, because the stride may change over time.
A record with a different tick than expected is missing data. A writer first stores the tick in its lane's `L_BEGUN`;
then it zeroes each record, fills it, and writes the record's tick last. A reader that copies records and reads
`L_BEGUN` afterwards therefore knows which of them may have been overwritten in the meantime.

A reading of signals is `before, between, after, twelve counters, tick`: those of `hw_counters` were read between the
first two instants, those of `counters/` between the last two. The head has the names of the counters, the number of the
set that they form, and how many readings there were; the upper bits of a reading's last word hold the number of its
set. A writer fills a reading and then counts it.
"""

from __future__ import annotations

MAGIC = int.from_bytes(b"IBPULSE\0", "little")
VERSION = 2
WORD = 8
ABSENT = 2**64 - 1

# header
H_MAGIC, H_VERSION, H_INTERVAL_NS, H_CAPACITY, H_SIGNAL_CAPACITY, H_CREATED_WALL_NS, H_RESCAN, H_SEGMENTS = range(8)
SEGMENT_WORDS = 2  # first tick, shift as two's complement
SEGMENT_TABLE = 16
SEGMENT_COUNT = 64
HEADER_WORDS = 512

# lanes
LANE_COUNT = 16
LANE_WORDS = 64
LANE_TABLE = HEADER_WORDS
(
    L_PID,
    L_PLAN_WANTED,
    L_PLAN_APPLIED,
    L_HEARTBEAT_NS,
    L_DEVICE,
    L_TICK,
    L_TICKS,
    L_MISSED,
    L_CPU_NS,
    L_FIFO,
    L_PINNED,
    L_CLOCK_STEPS,
    L_LATENESS_SUM_NS,
    L_DURATION_SUM_NS,
    L_BEGUN,
    L_OVERSLEPT_NS,
) = range(16)
L_LATENESS = 16
L_DURATION = 32
BUCKET_COUNT = 16
# upper bounds in ns; the last bucket has no bound
LATENESS_BOUNDS_NS = tuple(
    int(us * 1000) for us in (50, 100, 200, 350, 500, 750, 1000, 1500, 2000, 3000, 5000, 10000, 50000, 250000, 500000)
)
DURATION_BOUNDS_NS = tuple(
    int(us * 1000) for us in (10, 20, 35, 50, 75, 100, 200, 350, 500, 1000, 2000, 5000, 10000, 100000, 1000000)
)

# slots
SLOT_COUNT = 256
SLOT_WORDS = 32
SLOT_TABLE = LANE_TABLE + LANE_COUNT * LANE_WORDS
(S_ASSIGNED, S_SCALE, S_STRIDE, S_STATUS, S_ERRORS, S_LAST_ERRNO, S_UNCERTAIN, S_LAST_SEEN_WALL_NS) = range(8)
S_NAME = 8
# the kernel's names have at most 63 bytes
NAME_BYTES = 96
S_DEVICE = S_NAME + NAME_BYTES // WORD
DEVICE_BYTES = (SLOT_WORDS - S_DEVICE) * WORD

# S_STATUS
OK, LEFT_ALONE, GONE = range(3)

# records
R_BEFORE, R_BETWEEN, R_AFTER, R_TRANSMIT, R_RECEIVE, R_TICK = range(6)
RECORD_WORDS = 6
RECORD_FORMAT = "=6Q"
# the word of R_TICK is `tick | stride << STRIDE_SHIFT`; a stride of 0 means the stride of the slot
STRIDE_SHIFT = 52
TICK_MASK = (1 << STRIDE_SHIFT) - 1
# signals
SIGNAL_COUNT = 12
N_READINGS, N_SET, N_READING, N_HUNG, N_SLOW, N_ASKED, N_SIGNALS, N_REST_UNTIL_NS = range(8)
N_NAMES = 8
SIGNAL_NAME_BYTES = 40
N_WIDTH = SIGNAL_NAME_BYTES // WORD  # bits, or STOPS plus bits
STOPS = 256
NAME_WORDS = N_WIDTH + 1
SIGNAL_HEAD_WORDS = 128
SIGNAL_WORDS = 16
SIGNAL_FORMAT = "=16Q"
SIGNAL_VALUES = 3
# the word of N_MARK is `tick | set << SET_SHIFT`
N_MARK = 15
SET_SHIFT = STRIDE_SHIFT
SET_MASK = 0xFFF
_PAGE_WORDS = 512
RECORD_TABLE = -(-(SLOT_TABLE + SLOT_COUNT * SLOT_WORDS) // _PAGE_WORDS) * _PAGE_WORDS


def lane_at(lane: int) -> int:
    """Word index of a lane's block."""
    return LANE_TABLE + lane * LANE_WORDS


def slot_at(slot: int) -> int:
    """Word index of a slot's block."""
    return SLOT_TABLE + slot * SLOT_WORDS


def records_at(slot: int, capacity: int) -> int:
    """Word index of a slot's first record."""
    return RECORD_TABLE + slot * capacity * RECORD_WORDS


def port_bytes(capacity: int, signal_capacity: int) -> int:
    """Bytes that the samples and signals of a port take."""
    return (capacity * RECORD_WORDS + _signals_size(signal_capacity)) * WORD


def _signals_size(signal_capacity: int) -> int:
    return SIGNAL_HEAD_WORDS + signal_capacity * SIGNAL_WORDS if signal_capacity else 0


def signals_at(slot: int, capacity: int, signal_capacity: int) -> int:
    """Word index of the head of a slot's signals; its readings follow."""
    return records_at(SLOT_COUNT, capacity) + slot * _signals_size(signal_capacity)


def file_bytes(capacity: int, signal_capacity: int = 0) -> int:
    """Length of the whole file in bytes. It is sparse: only slots in use take memory."""
    return signals_at(SLOT_COUNT, capacity, signal_capacity) * WORD


def signed(word: int) -> int:
    """Two's complement of an unsigned 64-bit word."""
    return word - 2**64 if word >= 2**63 else word


def unsigned(number: int) -> int:
    """The 64-bit word that holds a signed number."""
    return number & (2**64 - 1)
