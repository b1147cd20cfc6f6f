"""Durations, sizes and rates: parsing, formatting, and error messages."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.base import units


def exactly(sentence: str) -> str:
    """A pattern that matches `sentence` and nothing else."""
    return f"^{re.escape(sentence)}$"


whole = st.integers(min_value=0, max_value=units.LARGEST)


@given(whole)
def test_a_formatted_duration_parses_to_itself(period_ns: int) -> None:
    assert units.parse_duration(units.format_duration(period_ns)) == period_ns


@given(whole)
def test_a_formatted_size_parses_to_itself(size_bytes: int) -> None:
    assert units.parse_size(units.format_size(size_bytes)) == size_bytes


@given(whole)
def test_a_formatted_rate_parses_to_itself(bytes_per_second: int) -> None:
    assert units.parse_rate(units.format_rate(bytes_per_second)) == bytes_per_second


@pytest.mark.parametrize(
    ("text", "period_ns"),
    [
        ("10ms", 10_000_000),
        ("5m", 300_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1.5s", 1_500_000_000),
        ("250us", 250_000),
        ("250µs", 250_000),
        ("7ns", 7),
        ("2d", 172_800_000_000_000),
        ("0s", 0),
    ],
)
def test_durations_are_read(text: str, period_ns: int) -> None:
    assert period_ns == units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("10", "10 has no unit; write it like 10ms, 5s or 1h30m"),
        ("", "'' is not a duration; write it like 10ms, 5s or 1h30m"),
        ("-5s", "'-5s' is not a duration; write it like 10ms, 5s or 1h30m"),
        ("5 s", "'5 s' is not a duration; write it like 10ms, 5s or 1h30m"),
        ("5x", "'5x' is not a duration; write it like 10ms, 5s or 1h30m"),
        ("30m1h", "30m1h has its units out of order; write the largest first, each once, like 1h30m"),
        ("1s1s", "1s1s has its units out of order; write the largest first, each once, like 1h30m"),
        ("0.5ns", "0.5ns is not a whole number of nanoseconds; use fewer decimals"),
        ("9999999d", "9999999d is too large; it must stay below 2^63 of the smallest unit"),
    ],
)
def test_an_invalid_duration_is_refused_with_advice(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=exactly(sentence)):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("period_ns", "text"),
    [(10_000_000, "10ms"), (60 * 10**9, "1m"), (300 * 10**9, "5m"), (5_400 * 10**9, "1h30m"), (0, "0s"), (1, "1ns")],
)
def test_durations_are_written_as_people_write_them(period_ns: int, text: str) -> None:
    assert text == units.format_duration(period_ns)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("64MiB", 67_108_864), ("10GB", 10_000_000_000), ("512B", 512), ("1.5KiB", 1536), ("1kB", 1000), ("2TiB", 2**41)],
)
def test_sizes_are_read(text: str, size_bytes: int) -> None:
    assert size_bytes == units.parse_size(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("64", "64 has no unit; write it like 64MiB, 10GB or 512B"),
        ("big", "'big' is not a size; write it like 64MiB, 10GB or 512B"),
        ("1Mb", "1Mb has the unknown unit Mb; use one of TiB, GiB, MiB, KiB, TB, GB, MB, kB, B"),
        ("0.5B", "0.5B is not a whole number of bytes; use fewer decimals"),
        ("9999999999TB", "9999999999TB is too large; it must stay below 2^63 of the smallest unit"),
    ],
)
def test_an_invalid_size_is_refused_with_advice(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=exactly(sentence)):
        units.parse_size(text)


@pytest.mark.parametrize(("size_bytes", "text"), [(67_108_864, "64MiB"), (10**10, "10GB"), (1001, "1001B"), (0, "0B")])
def test_sizes_are_written_in_the_shortest_exact_unit(size_bytes: int, text: str) -> None:
    assert text == units.format_size(size_bytes)


@pytest.mark.parametrize(
    ("text", "expected"), [("0.1GB/s", 10**8), ("50MB/s", 5 * 10**7), ("1B/s", 1), ("2kB/s", 2000)]
)
def test_rates_are_read_in_decimal_units(text: str, expected: int) -> None:
    assert expected == units.parse_rate(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0.1", "0.1 has no unit; write it like 0.1GB/s or 50MB/s"),
        ("fast", "'fast' is not a rate; write it like 0.1GB/s or 50MB/s"),
        (
            "1Gb/s",
            "1Gb/s has the unknown unit Gb/s; rates count bytes: use one of TB/s, GB/s, MB/s, kB/s, B/s",
        ),
        ("1GB", "1GB has the unknown unit GB; rates count bytes: use one of TB/s, GB/s, MB/s, kB/s, B/s"),
        ("0.5B/s", "0.5B/s is not a whole number of bytes per second; use fewer decimals"),
    ],
)
def test_an_invalid_rate_is_refused_with_advice(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=exactly(sentence)):
        units.parse_rate(text)


@pytest.mark.parametrize(
    ("bytes_per_second", "text"), [(10**8, "0.1GB/s"), (12_500_000_000, "12.5GB/s"), (1, "1B/s"), (0, "0B/s")]
)
def test_rates_are_written_in_the_units_of_the_project(bytes_per_second: int, text: str) -> None:
    assert text == units.format_rate(bytes_per_second)


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (units.format_duration, "a duration of -1 ns is negative"),
        (units.format_size, "a size of -1 bytes is negative"),
        (units.format_rate, "a rate of -1 bytes per second is negative"),
    ],
)
def test_nothing_negative_is_written(write: Callable[[int], str], sentence: str) -> None:
    with pytest.raises(ValueError, match=exactly(sentence)):
        write(-1)


def test_a_word_is_four_bytes() -> None:
    assert units.WORD_BYTES == 4
