"""The last bytes and the pauses of a job, found in byte counters."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from ibpulse.core.statistics.silences import Pauses, SampleTimes, SilenceWatch, StorageWatch, TickPause, describe_rates
from ibpulse.core.statistics.verdict import judge
from tests.tables import for_each

BURST = 400_000_000
TICK = 0.01


def watch(moved: npt.NDArray[np.int64], missing: tuple[slice, ...] = (), cut: int = 0, stride: int = 1) -> SilenceWatch:
    """A watch that has seen these bytes per tick, (rails, 2, ticks), from tick 1000 on, in parts of `cut` ticks."""
    counters, valid = moved.cumsum(axis=2) + 7, np.zeros(moved.shape, dtype=np.bool_)
    valid[..., ::stride] = True
    for span in missing:
        valid[..., span] = False
    found = SilenceWatch(len(moved), TICK, 10_000_000)
    cut = cut or moved.shape[2]
    for begin in range(0, moved.shape[2], cut):
        part = np.s_[..., begin : begin + cut]
        found.add(1000 + begin, counters[part], valid[part], np.full(len(moved), stride))
    return found


def steps(lengths: list[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """Bytes of one rail in both directions: bursts and silences of so many ticks."""
    parts = [np.repeat([BURST, 0], [busy, idle]) for busy, idle in lengths]
    return np.tile(np.concatenate(parts), (1, 2, 1))


@for_each([(0,), (1,), (7,), (30,)])
def test_last_bytes_and_pauses_do_not_depend_on_the_parts_in_which_samples_come(cut: int) -> None:
    found = watch(steps([(20, 30), (10, 40), (15, 25)]), cut=cut)
    assert (found.low.tolist(), found.high.tolist()) == ([[1113, 1113]], [[1114, 1114]])
    assert found.pauses.newest(9, 0) == [TickPause(1019, 1019, 1049), TickPause(1059, 1059, 1099)]
    assert (found.known, found.pauses.longest) == (1139, 40)


def test_what_is_known_of_random_traffic_does_not_depend_on_the_parts_either() -> None:
    rng = np.random.default_rng(3)
    for _ in range(60):
        # each rail sends and receives by itself, at times for long without an answer
        spans = [
            np.repeat(rng.choice([0, 0, BURST // 4, BURST], 40), rng.choice([1, 3, 4, 6, 60, 120], 40))[:1200]
            for _ in range(4)
        ]
        moved = np.zeros((2, 2, 1200), dtype=np.int64)
        for place, span in enumerate(spans):
            moved[place // 2, place % 2, : len(span)] = span
        moved[:, 1, 300 : 300 + int(rng.integers(0, 800))] = 0
        whole = watch(moved)
        for cut in (1, 4, 50, int(rng.integers(2, 600))):
            parts = watch(moved, cut=cut)
            assert (parts.low.tolist(), parts.high.tolist()) == (whole.low.tolist(), whole.high.tolist())
            assert (parts.wrote, parts.last, parts.known) == (whole.wrote, whole.last, whole.known)
            assert parts.pauses.newest(99, 0) == whole.pauses.newest(99, 0)


def test_the_last_byte_lies_between_its_bounds_in_each_direction() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        # bytes flow evenly up to an instant, which falls anywhere into a sample
        ends = rng.uniform(20, 60, (3, 2))
        edges = np.arange(101)[None, None, :]
        moved = np.diff(np.minimum(edges, ends[..., None]) * BURST, axis=2).astype(np.int64)
        start = int(rng.integers(20, 70))
        found = watch(moved, (slice(start, start + int(rng.integers(0, 30))),), cut=int(rng.integers(1, 50)))
        # the sample at tick t has the bytes up to t + 1 in this arithmetic
        assert (found.low - 999 <= ends + 1 / 64).all()
        assert (found.high - 999 >= ends - 1 / 64).all()
        assert (found.high - found.low <= 31).all()


@for_each(
    [
        # a hole in a silence whose counters did not move
        ([(20, 60)], (slice(30, 50),), (1019, 1020), 1079),
        # the bytes passed at any time in the hole
        ([(20, 60)], (slice(15, 40),), (1014, 1040), 1079),
        # the newest samples are missing: silence is known up to the last one
        ([(20, 60)], (slice(70, 80),), (1018, 1019), 1069),
    ]
)
def test_missing_samples_leave_bounds(
    lengths: list[tuple[int, int]], missing: tuple[slice, ...], bounds: tuple[int, int], known: int
) -> None:
    found = watch(steps(lengths), missing)
    assert bounds[0] <= found.low[0, 0] + 1
    assert found.high[0, 0] <= bounds[1]
    assert found.known == known


def test_a_hole_in_which_bytes_passed_is_no_pause() -> None:
    assert not watch(steps([(20, 30), (10, 5)]), (slice(22, 55),)).pauses.newest(9, 0)
    (pause,) = watch(steps([(20, 30), (10, 5)]), (slice(25, 45),)).pauses.newest(9, 0)
    assert (pause.begin, pause.end) == (1019, 1049)


def test_small_steps_after_a_large_transfer_are_traffic_and_a_slow_stream_is_not() -> None:
    moved = np.zeros((1, 2, 4000), dtype=np.int64)
    moved[..., :50], moved[..., 100::100] = BURST, BURST // 200
    for cut in (50, 130, 1000):
        assert watch(moved, cut=cut).last > 4800
    one_way = moved.copy()
    one_way[:, 0, 50:] = 0
    moved[..., 100:] = BURST // 200
    assert [watch(each, cut=50).last for each in (one_way, moved)] == [1049, 1049]
    stall = np.concatenate([steps([(20, 80)] * 5), np.zeros((1, 2, 4000), dtype=np.int64)], axis=2)
    stall[..., 600::100] = BURST // 200
    assert watch(stall, cut=50).last == 1419


def test_retransmissions_and_chatter_are_silence() -> None:
    moved = steps([(50, 200)])
    moved[..., 60:] += BURST // 200
    found = watch(moved)
    assert found.high.tolist() == [[1049, 1049]]


def test_what_is_sent_again_ends_no_silence_and_what_is_sent_at_length_does() -> None:
    moved = steps([(50, 600)])
    # the packets in flight, once a second, which nobody acknowledges
    for tick in range(150, 650, 100):
        moved[:, 0, tick : tick + 2] = BURST // 2
    found = watch(moved, cut=64)
    assert (found.last, found.pauses.newest(9, 0), found.pauses.regular()) == (1049, [], None)
    moved[:, 0, 300:320] = BURST
    found = watch(moved, cut=64)
    assert [(each.begin, each.end, each.sent) for each in found.pauses.newest(9, 0)] == [(1049, 1303, 1049)]
    # what was sent again at last is perhaps no byte of the job
    assert (found.last, found.low[0, 0], found.high[0, 0] >= 1549) == (1049, 1048, True)


@for_each([(BURST // 25, 1299), (BURST // 2, 1899)])
def test_storage_that_always_runs_on_a_rail_is_silence_unless_it_is_much(storage: int, last: int) -> None:
    moved = np.concatenate([steps([(30, 70)] * 3), steps([(0, 600)])], axis=2)
    moved[:, 1] += storage
    found = watch(moved, cut=37)
    # the first second shows what is always there
    assert abs(found.last - last) <= 71
    assert (found.pauses.regular() or 0) <= 70


def test_storage_that_always_runs_is_silence_across_missing_samples_too() -> None:
    moved = np.concatenate([steps([(30, 70)] * 3), steps([(0, 600)])], axis=2)
    moved[:, 1] += BURST // 25
    found = watch(moved, missing=(slice(500, 540), slice(700, 701)), cut=37)
    assert abs(found.last - 1299) <= 71


@for_each([(5,), (10,)])
def test_samples_that_are_ticks_apart_show_what_is_written_and_what_is_sent_again(stride: int) -> None:
    moved = np.concatenate([steps([(50, 50)] * 10), steps([(0, 900)])], axis=2)
    moved[0, 0, 1300:1310] = BURST // 2
    found = watch(moved, cut=100, stride=stride)
    assert (found.wrote, found.low[0, 0] < 1960, found.high[0, 0] >= 2310) == (None, True, True)
    moved[0, 0, 1300:1600] = BURST // 2
    found = watch(moved, cut=100, stride=stride)
    assert found.wrote[1] == 2600
    assert found.high[0, 0] < 1970


def test_bytes_that_are_at_times_too_few_to_count_and_have_no_answer_are_not_certainly_the_jobs() -> None:
    moved = np.concatenate([steps([(50, 50)] * 10), steps([(0, 900)])], axis=2)
    moved[0, 0, 1100:1600:3] = BURST // 50
    found = watch(moved, cut=37)
    assert (found.low[0].tolist(), found.high[0].tolist(), found.wrote) == ([1948, 1948], [2598, 1949], None)


@for_each([(0,), (1,), (7,), (100,)])
def test_a_checkpoint_over_a_rail_is_written_and_not_sent_to_other_nodes(cut: int) -> None:
    moved = np.concatenate([steps([(50, 50)] * 20), np.zeros((1, 2, 9000), dtype=np.int64)], axis=2)
    moved[0, 0, 1950:10_500] = BURST // 8
    found = watch(moved, cut=cut)
    assert (found.high.tolist(), found.wrote) == ([[2949, 2949]], (11_498, 11_499))
    # it is not taken for what is there all the time
    assert found.pauses.longest == 50


@for_each([(0,), (1,), (7,), (100,)])
def test_what_was_sent_to_other_nodes_after_a_checkpoint_is_known_exactly(cut: int) -> None:
    moved = np.concatenate([steps([(50, 50)] * 10), steps([(0, 900)]), steps([(50, 50)] * 10)], axis=2)
    moved[0, 0, 1100:1500] = BURST // 8
    moved[0, 0, 2850:2870] = BURST
    found = watch(moved, cut=cut)
    assert (found.low.tolist(), found.high.tolist()) == ([[3868, 3848]], [[3869, 3849]])
    assert found.wrote == (2498, 2499)


def test_a_rail_without_samples_does_not_hide_the_silence_of_the_others() -> None:
    moved = np.repeat(steps([(50, 300)]), 2, axis=0)
    counters, valid = moved.cumsum(axis=2), np.ones(moved.shape, dtype=np.bool_)
    valid[1, :, 60:] = False
    found = SilenceWatch(2, TICK, 10_000_000)
    found.add(1000, counters, valid, np.array([1, 1]))
    assert found.known == 1349
    valid[1, :, 60:], valid[1, :, 300:] = True, False
    found = SilenceWatch(2, TICK, 10_000_000)
    found.add(1000, counters, valid, np.array([1, 1]))
    assert found.known == 1299


def test_counters_that_change_every_few_ticks_have_wider_bounds() -> None:
    moved = np.zeros((1, 2, 200), dtype=np.int64)
    moved[..., :100:5] = 5 * BURST
    found = watch(moved, stride=5)
    assert (found.low[0, 0], found.high[0, 0]) == (1090, 1095)
    assert not found.pauses.newest(9, 0)


def test_recorded_rates_say_the_same_as_counters() -> None:
    rates = np.tile(steps([(20, 80)] * 5 + [(20, 400)]) / TICK, (2, 1, 1))
    found = describe_rates(("a", "b"), rates, SampleTimes(100.0, TICK, 0.002), 10_000_000, {"b": (104.9, 105.0)})
    assert (found.regular, found.longest, found.ordered) == (0.8, 0.8, True)
    assert [each.begin for each in found.pauses] == pytest.approx([100.2 + step for step in range(5)])
    assert [each.end for each in found.pauses] == pytest.approx([101.0 + step for step in range(5)])
    for rail in found.rails.values():
        assert rail.sent == rail.received == pytest.approx((105.188, 105.202))
    assert found.known_until == pytest.approx(109.198)
    verdict = judge({"n": found})
    # the rail moved bytes after its link was lost
    assert (verdict.kind, verdict.seconds) == ("unknown", pytest.approx(3.996))
    # a hole after the traffic widens the bounds, and one in the silence does not end it
    rates[..., 520:530], rates[..., 700:740] = np.nan, np.nan
    holed = describe_rates(("a", "b"), rates, SampleTimes(100.0, TICK, 0.002), 10_000_000)
    assert holed.rails["a"].sent == pytest.approx((105.188, 105.312), abs=0.011)
    assert (holed.known_until, holed.regular) == (found.known_until, 0.8)


def pauses(*lengths: float, every: float = 2.0, settled: float = 0.0) -> Pauses:
    """Silences of these lengths in seconds, each at the end of a step, and after so much traffic."""
    found, tick = Pauses(100), round(settled * 100) + 1000
    found.note_traffic(1000, tick)
    for length in lengths:
        begin = tick + round(100 * (every - length))
        tick += round(100 * every)
        found.add(TickPause(begin, begin, tick))
        found.note_traffic(tick, tick)
    return found


@for_each(
    [
        ((), 0.0, None),
        ((1.2, 1.2), 0.0, None),
        ((1.2, 1.2, 1.2), 0.0, 1.2),
        # one checkpoint and an evaluation are not regular
        ((1.0,) * 20 + (1.9,) + (1.0,) * 20 + (1.6,) + (1.0,) * 5, 0.0, 1.0),
        # steps vary
        ((0.8, 1.0, 1.1, 0.9), 0.0, 1.1),
        # after traffic without pauses, the longest one
        ((), 29.0, None),
        ((), 31.0, 0.0),
        ((0.3,), 31.0, 0.3),
        ((0.4,), 31.0, None),
        ((0.4,), 130.0, 0.4),
    ]
)
def test_the_longest_regular_silence(lengths: tuple[float, ...], settled: float, regular: float | None) -> None:
    found = pauses(*lengths, settled=settled).regular()
    assert (found if found is None else found / 100) == pytest.approx(regular)


def test_the_newest_silences_are_kept_even_if_all_older_ones_are_longer() -> None:
    found = pauses(*[1.1] * 250, *[1.0] * 12)
    assert [pause.ticks for pause in found.newest(12, 50)] == [100] * 12
    assert [pause.end for pause in found.newest(256, 0)] == sorted(pause.end for pause in found.newest(256, 0))


def test_the_newest_steps_are_reported_after_a_slow_one_with_several_silences() -> None:
    # of the four silences of a step, all are longer in the slow one, which is regular all the same
    found = pauses(*[0.1] * 100, *[0.3] * 4, *[0.1] * 200, every=1.0)
    assert found.regular() == 30
    chosen = found.chosen(12, 4)
    assert [pause.ticks for pause in chosen] == [30] * 4 + [10] * 12
    # those between the collectives of a step are left out
    parts = pauses(*[0.1, 0.1, 0.1, 0.3] * 60)
    assert [pause.ticks for pause in parts.chosen(12, 1)] == [30] * 12


def test_silences_of_a_node_that_only_receives_count_from_its_last_sent_byte() -> None:
    found, tick = Pauses(100), 1000
    for _ in range(30):
        sent = tick
        for length in (100, 20, 20, 20, 20):
            found.add(TickPause(sent, tick, tick + length))
            tick += length + 10
        found.note_traffic(tick, tick)
    assert [pause.ticks for pause in found.chosen(5, 1)] == [100, 20, 20, 20, 20]


def test_a_job_that_starts_again_has_no_steps_yet_but_its_pauses() -> None:
    found = pauses(1.2, 1.2, 1.2, 300.0, settled=200.0)
    found.begin_again(40_000)
    found.note_traffic(41_000, 41_500)
    assert (found.regular(), found.longest) == (None, 30_000)
    assert len(found.chosen(9, 9)) == 4
    for begin in (41_500, 42_000, 42_500):
        found.add(TickPause(begin, begin, begin + 80))
        found.note_traffic(begin + 81, begin + 400)
    assert found.regular() == 80


def test_a_long_rhythm_outlives_many_short_silences() -> None:
    found, tick = Pauses(100), 1000
    for _ in range(5):
        for _ in range(400):
            found.add(TickPause(tick, tick, tick + 6))
            tick += 12
            found.note_traffic(tick, tick)
        found.add(TickPause(tick, tick, tick + 1500))
        tick += 1500
        found.note_traffic(tick, tick)
    assert (found.regular(), found.longest) == (1500, 1500)


def test_storage_that_carries_more_than_usual_is_noticed_and_constant_storage_is_not() -> None:
    found = StorageWatch(TICK, 10_000_000)
    for second in range(300):
        found.add(100 * second, 100 * second + 100, 200e6, silent=False)
    assert found.last is None or found.last[1] < 6000
    before = found.last
    found.add(30_000, 30_100, 300e6, silent=True)
    assert found.last == before
    found.add(30_100, 30_200, 2e9, silent=True)
    assert found.last == (30_100, 30_200)
    assert math.isfinite(found._usual)
