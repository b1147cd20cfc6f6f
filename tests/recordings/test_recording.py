"""A recording that cannot be is not made."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta, concatenate
from tests.recordings.recordings import START_NS, make_meta, make_recording


def arrays(ticks: int = 3) -> tuple[np.ndarray, np.ndarray]:
    return np.ones((2, 2, ticks)), np.full((2, 2, ticks), 0.01)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda rates, seconds: (rates[:1], seconds), "do not fit 2 ports"),
        (lambda rates, seconds: (rates, seconds[:, :, :1]), "do not fit 2 ports"),
        (lambda rates, seconds: (rates * np.inf, seconds), "negative or not finite"),
        (lambda rates, seconds: (-rates, seconds), "negative or not finite"),
        (lambda rates, seconds: (rates, -seconds), "negative or not finite"),
        (lambda rates, seconds: (rates, seconds * np.nan), "negative or not finite"),
        (lambda rates, seconds: (rates * 1e300, seconds), "higher than counters can make it"),
        (lambda rates, seconds: (rates, seconds * 1e300), "higher than counters can make it"),
        (lambda rates, seconds: (rates * np.nan, seconds), "its seconds must be 0"),
    ],
)
def test_arrays_that_are_no_rates_are_refused(change: Callable, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Recording(make_meta(2), START_NS, *change(*arrays()))


@pytest.mark.parametrize("start_ns", [-1, 2**63 - 20_000_000])
def test_a_time_outside_of_the_clock_is_refused(start_ns: int) -> None:
    with pytest.raises(ValueError, match="outside of 1970 to 2262"):
        Recording(make_meta(2), start_ns, *arrays())


def test_ports_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="'':1 names no port"):
        RecordedPort("", 1)
    with pytest.raises(ValueError, match="'mlx5_0':256 names no port"):
        RecordedPort("mlx5_0", 256)
    with pytest.raises(ValueError, match="port mlx5_0:1 has a stride of 0; the least is 1"):
        RecordedPort("mlx5_0", 1, stride=0)


def test_what_a_recording_says_of_itself_is_checked() -> None:
    port = RecordedPort("mlx5_0", 1)
    with pytest.raises(ValueError, match="an interval of 0 ns is out of bounds"):
        RecordingMeta("a", 0, (port,), "x")
    with pytest.raises(ValueError, match="0 ports; a recording has 1 to 256"):
        RecordingMeta("a", 1, (), "x")
    with pytest.raises(ValueError, match="a port is listed twice"):
        RecordingMeta("a", 1, (port, port), "x")


def test_pieces_that_do_not_follow_each_other_are_not_put_together() -> None:
    recording = make_recording(10)
    with pytest.raises(ValueError, match="there is no piece"):
        concatenate([])
    with pytest.raises(ValueError, match="where the last one ends"):
        concatenate([recording.cut(0, 4), recording.cut(5, 10)])
