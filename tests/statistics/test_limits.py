"""Readings of counters placed between samples, and sentences about signs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ibpulse.core.events import PortHistory
from ibpulse.core.limits import LimitOptions, describe_limits, find_remarks, read_limits
from ibpulse.core.model import ByteSource, Port, PortId, PortIdentity
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import RingPort
from ibpulse.core.signals import Signal
from ibpulse.core.statistics import signs
from ibpulse.core.statistics.gains import MISSING, SignalReadings
from ibpulse.core.statistics.signs import RailSamples, find_rail_signs, place_readings
from tests.ring.writing import put, put_signals
from tests.tables import for_each

LINE, TICK = 50e9, 10_000_000
START = 1_700_000_000_000_000_000
WAIT = Signal("port_transmit_wait", 32, stops=True)
CNP = Signal("rp_cnp_packets_handled", 64)
RNR = Signal("rnr_nak_retry_packets_received", 64)
SEQ, RETRANS, TIMEOUT = (
    Signal(name, 64) for name in ("packet_sequence_errors", "roce_adp_retransmits", "local_ack_timeout_errors")
)
MARKED_HERE = Signal("np_ecn_marked_roce_packets_received", 64)
SECOND = 1_000_000_000


def samples_of(rates: Sequence[float], infiniband: bool = True, up: Sequence[bool] | None = None) -> RailSamples:
    many = np.array(rates) * LINE
    good = ~np.isnan(many)
    states = np.ones(len(many), dtype=np.bool_) if up is None else np.array(up)
    return RailSamples(START, TICK, many, good * 0.01, np.full(len(many), LINE), states, infiniband)


def readings(signals: dict[Signal, Sequence[int]], every: int = 10, first: int = 0) -> SignalReadings:
    """Readings after every so many samples, the first after sample `first`."""
    counters = np.array([*signals.values()], dtype=np.uint64).T
    wall = START + (first + every * np.arange(len(counters))) * TICK
    times = np.broadcast_to(wall[:, None], counters.shape)
    return SignalReadings(tuple(signals), wall, times, counters)


def test_gains_are_those_of_the_samples_between_two_readings() -> None:
    found = place_readings(samples_of([0.5] * 35), readings({CNP: (5, 9, 30), RNR: (0, 0, 2)}, first=4))
    assert found.bounds.tolist() == [0, 5, 15, 25, 30, 35]
    np.testing.assert_array_equal(found.gained[signs.NOTIFIED], [np.nan, 4, 21, np.nan, np.nan])
    np.testing.assert_array_equal(found.gained[signs.REFUSED], [np.nan, 0, 2, np.nan, np.nan])
    assert np.isnan(found.gained[[signs.WAITED_SECONDS, signs.LOST]]).all()


def test_readings_before_and_after_the_samples_are_left_out() -> None:
    found = place_readings(samples_of([0.5] * 10), readings({CNP: (1, 2, 4, 8)}, first=-11))
    assert found.bounds.tolist() == [0, 10]
    np.testing.assert_array_equal(found.gained[signs.NOTIFIED], [2])


def test_readings_every_10_ms_are_joined() -> None:
    found = place_readings(samples_of([0.5] * 40), readings({CNP: range(0, 80, 2)}, every=1))
    assert np.diff(found.bounds).tolist() == [1, 10, 10, 10, 9]
    np.testing.assert_array_equal(found.gained[signs.NOTIFIED, 1:-1], [20, 20, 20])


def test_a_missing_reading_makes_the_gain_unknown_and_so_do_readings_far_apart() -> None:
    missed = place_readings(samples_of([0.5] * 30), readings({CNP: (1, int(MISSING), 4, 8)}))
    np.testing.assert_array_equal(
        missed.gained[signs.NOTIFIED, 1:-1], [np.nan, np.nan, 4][: missed.gained.shape[1] - 2]
    )
    far = place_readings(samples_of([0.5] * 250), readings({CNP: (1, 3, 4)}, every=101))
    assert np.isnan(far.gained[signs.NOTIFIED]).all()


def test_samples_longer_than_the_time_between_readings_have_what_all_of_them_gained() -> None:
    seconds = replace(samples_of([0.5] * 4), interval_ns=SECOND)
    found = place_readings(seconds, readings({CNP: range(40)}))
    assert found.bounds.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(found.gained[signs.NOTIFIED], [np.nan, 10, 10, 10])


def test_a_rest_between_readings_has_intervals_of_100_ms() -> None:
    counted = readings({CNP: (0, 1, 5)})
    counted.wall_ns[2] += 16 * SECOND // 10
    found = place_readings(samples_of([0.5] * 190), counted)
    assert found.bounds.tolist() == [0, 1, 11, *range(20, 190, 10), 181, 190]
    assert (found.gained[signs.NOTIFIED, 1], np.isfinite(found.gained[signs.NOTIFIED]).sum()) == (1, 1)


def test_waiting_is_time_of_the_port() -> None:
    # 50 GB/s are 6.25 counts of 8 bytes a nanosecond
    found = place_readings(samples_of([0.5] * 20), readings({WAIT: (0, 62_500_000)}))
    np.testing.assert_allclose(found.gained[signs.WAITED_SECONDS, 1], 0.01)
    assert not found.tick_certain
    sure = place_readings(samples_of([0.5] * 20), readings({WAIT: (0, 62_500_000)}), tick_bytes=32)
    np.testing.assert_allclose(sure.gained[signs.WAITED_SECONDS, 1], 0.04)
    assert sure.tick_certain


def test_waiting_counts_on_infiniband_only() -> None:
    found = place_readings(samples_of([0.5] * 20, infiniband=False), readings({WAIT: (0, 5)}))
    assert np.isnan(found.gained[signs.WAITED_SECONDS]).all()


def test_counters_of_one_kind_add_up_and_those_of_peers_do_not_count() -> None:
    counted = {SEQ: (0, 3), RETRANS: (0, 4), TIMEOUT: (0, 2), MARKED_HERE: (0, 900)}
    found = place_readings(samples_of([0.5] * 20, infiniband=False), readings(counted))
    assert found.gained[[signs.LOST, signs.RESENT_BYTES, signs.TIMEOUTS], 1].tolist() == [3, 4 * 4096, 2]
    assert np.isnan(found.gained[signs.NOTIFIED]).all()


def test_a_link_that_leaves_active_is_an_interruption() -> None:
    up = [True] * 13 + [False] * 5 + [True] * 12
    found = place_readings(samples_of([0.5] * 30, up=up), readings({CNP: (0, 0, 0)}))
    assert found.gained[signs.FLAPS].tolist() == [0, 0, 1, 0][: found.gained.shape[1]]


def test_the_second_before_a_change_of_the_link_is_unsure() -> None:
    up = [True] * 250 + [False] * 50
    found = place_readings(samples_of([0.5] * 300, up=up), readings({CNP: range(29)}))
    assert found.unsure is not None
    ends = found.bounds[1:][found.unsure]
    assert (ends.min(), ends.max()) == (151, 251)


FULL = 2**32 - 1


@for_each(
    {
        "a full counter is no calm": ({WAIT: [FULL] * 11}, signs.BLIND),
        "a counter that does not move is": ({WAIT: [FULL - 1] * 11}, signs.SOURCE),
        "no reading at all": ({WAIT: []}, signs.BLIND),
        "a counter that has never counted is not": ({WAIT: [0] * 11}, signs.BLIND),
        "a counter of peers is no calm": ({MARKED_HERE: [7] * 11}, signs.BLIND),
    }
)
def test_signs_of_a_second_at_half_of_the_peak(counted: dict[Signal, list[int]], code: int) -> None:
    rates = [1.0, *[0.5] * 99]
    signals = readings(counted) if any(counted.values()) else SignalReadings((), *(np.zeros(0, dtype=np.int64),) * 3)  # type: ignore[arg-type]
    found = find_rail_signs(samples_of(rates), signals, 1e6)
    assert set(found.codes[2:-1].tolist()) <= {code}
    assert found.tally()[code, 0] > 0.7


@for_each(
    {
        "alive": ({CNP: (3, 3)}, False, ""),
        "full": ({WAIT: (FULL, FULL)}, True, "its counter port_transmit_wait is full"),
        "waiting on Ethernet": ({WAIT: (5, 5)}, False, "its driver counts neither"),
        "never": ({CNP: (0, 0), WAIT: (5, 5)}, True, "its counter rp_cnp_packets_handled has never counted"),
        "no such counter": ({SEQ: (0, 0)}, True, "its driver counts neither"),
    }
)
def test_remarks(counted: dict[Signal, tuple[int, int]], infiniband: bool, begin: str) -> None:
    found = find_remarks(readings(counted), infiniband)
    assert len(found) == bool(begin)
    assert not found or found[0].startswith(begin)


def test_readings_that_are_too_far_apart_are_told() -> None:
    assert find_remarks(readings({CNP: (3, 4, 5)}, every=100), False) == []
    (found,) = find_remarks(readings({CNP: (3, 4, 5)}, every=120), False)
    assert found == "its counters are read only every 1.2 s, so slow traffic is unknown"


def tally(**parts: tuple[float, dict[int, float]]) -> np.ndarray:
    out = np.zeros((signs.CODES, 1 + signs.GAINS))
    for name, (seconds, gained) in parts.items():
        code = getattr(signs, name.upper())
        out[code, 0] = seconds
        for row, value in gained.items():
            out[code, 1 + row] = value
    return out


QUIET = tally(peak=(1.0, {}))


@for_each(
    {
        "a step": (
            [QUIET, tally(path=(1.3, {signs.WAITED_SECONDS: 0.41, signs.NOTIFIED: 5356}), peak=(0.3, {}))],
            ["50 % of the communication of a step shows signs of the path on b: waiting about 4.1 ms of 13 ms, "
             "4,120 notifications a second", "50 % is unknown: 50 % at the usual peak"],
        ),
        "all rails": (
            [tally(receiver=(1.0, {signs.REFUSED: 30})), tally(receiver=(0.9, {signs.REFUSED: 27}), blind=(0.1, {}))],
            ["95 % of the communication of a step shows signs of the receiver on all 2 rails: 30 refusals a second",
             "5 % is unknown: 5 % without a counter that could tell"],
        ),
        "loss and a link": (
            [tally(loss=(0.6, {signs.TIMEOUTS: 1, signs.LOST: 12})),
             tally(link=(0.4, {signs.FLAPS: 2, signs.ERRORS: 4}))],
            ["60 % of the communication of a step shows signs of loss on a: 1 timeout, 20 losses a second",
             "40 % of the communication of a step shows signs of the link on b: 2 interruptions, 10 errors a second"],
        ),
        "the source, and a link that trained down": (
            [tally(source=(0.7, {})), tally(link=(0.3, {}))],
            ["70 % of the communication of a step shows signs of the source on a: below the usual peak, and neither "
             "waiting nor notifications explain it",
             "30 % of the communication of a step shows signs of the link on b: at what the link is trained down to"],
        ),
        "little of each reason": (
            [tally(link=(0.992, {}), peak=(0.004, {}), blind=(0.004, {})), tally()],
            ["99 % of the communication of a step shows signs of the link on a: at what the link is trained down to",
             "1 % is unknown"],
        ),
        "no traffic": ([tally(), tally()], []),
    }
)  # fmt: skip
def test_sentences(tallies: list[np.ndarray], sentences: list[str]) -> None:
    found = describe_limits(np.stack(tallies), ["a", "b"], units=100, unit="step")
    assert [limit.text for limit in found] == sentences
    assert not found or abs(sum(limit.share for limit in found) - 1) < 1e-9


@for_each([0, 50, -50, 20_000])
def test_signs_are_the_same_when_the_wall_clock_is_set(back: int, tmp_path: Path) -> None:
    """A port that waits for half of the time from tick 200 on; the clock is set by so many ticks at tick 250."""
    ring = RingFile.create(tmp_path / f"ring{back}", TICK, 1000, signal_capacity=100)
    ring.begin_segment(1, -(10**9))
    slot, line = ring.assign("mlx5_0:1", 4, 1), 1e9
    ring.assign_signals(slot, (WAIT,), 0)
    sent = waited = 0
    for tick in range(1, 401):
        if tick == 250:
            ring.begin_segment(tick, back - 10**9)
        sent += round(line * 0.01 / 4 * (0.5 if tick > 200 else 0.95))
        waited += round(line * 0.01 / 8 * 0.5) if tick > 200 else 0
        put(ring, slot, tick, (tick * TICK,) * 3 + (sent, sent))
        if tick % 10 == 5:
            put_signals(ring, slot, tick, (1 + waited,), (tick * TICK,) * 3)
    source = ByteSource("words", ("/transmit",), ("/receive",), 4)
    port = Port(PortId("mlx5_0", 1), PortIdentity(link_layer="InfiniBand"), True, "ACTIVE", line, source, rail=True)
    (found,) = read_limits(
        RingReader(ring),
        [RingPort(port, slot, 1)],
        PortHistory(),
        range(101, 396),
        LimitOptions(1e6),
        {"mlx5_0:1": 1e9},
    )
    assert found.signs.strip(10) == "=" * 9 + "p" * 21
