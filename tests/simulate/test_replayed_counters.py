"""The counters of a replay: they increase as recorded, at any speed, and give no rate for missing data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ibpulse.core.recordings import Recording
from ibpulse.workbench.simulate.nic import START_WORDS
from ibpulse.workbench.simulate.replayed_tree import Player
from tests.recordings.recordings import make_meta, make_recording

START = np.tile(START_WORDS, (2, 1))


def whole(ticks: int, seed: int = 0) -> Recording:
    """A recording without missing data, and without rates above the line rate."""
    made = make_recording(ticks, seed=seed)
    good = ~np.isnan(made.bytes_per_second)
    rates, seconds = np.where(good, made.bytes_per_second % 50e9, 4e8), np.where(good, made.seconds, 0.01)
    return Recording(made.meta, made.start_ns, rates, seconds)


def cut(recording: Recording, ticks: int) -> Iterator[Recording]:
    for first in range(0, recording.ticks, ticks):
        yield recording.cut(first, first + ticks)


def played(recording: Recording, ticks_per_step: float, ticks_per_piece: int = 7) -> np.ndarray:
    """The counter values before the first step and after each: (steps + 1, ports, 2)."""
    player = Player(lambda: cut(recording, ticks_per_piece), 2, ticks_per_step)
    seen = [player.words.copy()]
    while not player.over:
        player.step()
        seen.append(player.words.copy())
    player.close()
    return np.array(seen)


def test_each_tick_moves_what_it_moved() -> None:
    recording = whole(50)
    words = played(recording, 1.0)
    assert len(words) == 51
    np.testing.assert_array_equal(words[0], START)
    expected = (recording.bytes_per_second * recording.seconds).cumsum(axis=2) / 4
    assert np.abs((words[1:] - START).transpose(1, 2, 0) - expected).max() <= 1


@pytest.mark.parametrize("speed", [0.3, 0.5, 1.0, 1.7, 2.0, 10.0, 49.0, 1000.0])
def test_the_sum_is_the_same_at_any_speed(speed: float) -> None:
    recording = whole(50)
    words = played(recording, speed)
    assert len(words) - 1 == int(np.ceil(50 / speed))
    total = (recording.bytes_per_second * recording.seconds).sum(axis=2) / 4
    assert np.abs(words[-1] - START - total).max() <= 1
    assert (np.diff(words, axis=0) >= 0).all()


def test_a_fraction_of_a_tick_moves_its_share() -> None:
    recording = Recording(make_meta(), 0, np.full((2, 2, 4), 4e5), np.full((2, 2, 4), 0.01))
    steps = np.diff(played(recording, 0.25), axis=0)
    np.testing.assert_array_equal(steps, 250)


def test_during_missing_data_the_counter_falls_at_every_step_and_no_byte_is_lost() -> None:
    rates = np.full((2, 2, 20), 4e5)
    rates[0, 1, 5:9] = np.nan
    recording = Recording(make_meta(), 0, rates, np.where(np.isnan(rates), 0.0, 0.01))
    steps = np.diff(played(recording, 1.0), axis=0)
    np.testing.assert_array_equal(np.delete(steps.reshape(20, 4), 1, axis=1), 1000)
    np.testing.assert_array_equal(steps[:, 0, 1], [1000] * 5 + [-1] * 4 + [1000] * 11)
    # a step with missing data is missing
    np.testing.assert_array_equal(np.diff(played(recording, 4.0), axis=0)[:, 0, 1], [4000, -1, -1, 4000, 4000])


def test_a_loop_restarts_and_never_ends() -> None:
    recording = whole(10)
    player = Player(lambda: cut(recording, 4), 2, 1.0, loop=True)
    for _ in range(35):
        player.step()
    assert not player.over
    total = (recording.bytes_per_second * recording.seconds).sum(axis=2)
    part = (recording.bytes_per_second * recording.seconds)[:, :, :5].sum(axis=2)
    assert np.abs(player.words - START - (3 * total + part) / 4).max() < 2
    player.close()


def test_after_the_end_nothing_moves() -> None:
    player = Player(lambda: cut(whole(3), 7), 2, 2.0)
    player.step()
    assert not player.over
    player.step()
    assert player.over
    before = player.words.copy()
    player.step()
    np.testing.assert_array_equal(player.words, before)
    player.close()
