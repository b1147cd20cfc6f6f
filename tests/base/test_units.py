"""Durations, sizes and rates: parsing, formatting, and error messages."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.base import units
from tests.tables import for_each

KINDS = {
    "duration": (units.parse_duration, units.format_duration, "a duration of -1 ns is negative"),
    "size": (units.parse_size, units.format_size, "a size of -1 bytes is negative"),
    "rate": (units.parse_rate, units.format_rate, "a rate of -1 bytes per second is negative"),
}


@pytest.mark.parametrize("kind", KINDS)
@given(value=st.integers(min_value=0, max_value=units.LARGEST))
def test_what_is_written_is_read(kind: str, value: int) -> None:
    parse, write, _ = KINDS[kind]
    assert parse(write(value)) == value


@for_each(
    [
        *(("duration", "10ms", 10_000_000), ("duration", "5m", 300 * 10**9), ("duration", "1h30m", 5_400 * 10**9)),
        *(("duration", "1.5s", 1_500_000_000), ("duration", "250us", 250_000), ("duration", "250µs", 250_000)),
        *(("duration", "7ns", 7), ("duration", "2d", 172_800 * 10**9), ("duration", "0s", 0)),
        *(("size", "64MiB", 67_108_864), ("size", "10GB", 10**10), ("size", "512B", 512), ("size", "1.5KiB", 1536)),
        *(("size", "1kB", 1000), ("size", "2TiB", 2**41)),
        *(("rate", "0.1GB/s", 10**8), ("rate", "50MB/s", 5 * 10**7), ("rate", "1B/s", 1), ("rate", "2kB/s", 2000)),
    ]
)
def test_quantities_are_read(kind: str, text: str, value: int) -> None:
    assert KINDS[kind][0](text) == value


LIKE = "write it like 10ms, 5s or 1h30m"
LARGE = "is too large; it must stay below 2^63 of the smallest unit"
OF_RATES = "rates count bytes: use one of TB/s, GB/s, MB/s, kB/s, B/s"


@for_each(
    [
        ("duration", "10", f"10 has no unit; {LIKE}"),
        ("duration", "", f"'' is not a duration; {LIKE}"),
        ("duration", "-5s", f"'-5s' is not a duration; {LIKE}"),
        ("duration", "5 s", f"'5 s' is not a duration; {LIKE}"),
        ("duration", "5x", f"'5x' is not a duration; {LIKE}"),
        ("duration", "30m1h", "30m1h has its units out of order; write the largest first, each once, like 1h30m"),
        ("duration", "1s1s", "1s1s has its units out of order; write the largest first, each once, like 1h30m"),
        ("duration", "0.5ns", "0.5ns is not a whole number of nanoseconds; use fewer decimals"),
        ("duration", "9999999d", f"9999999d {LARGE}"),
        ("size", "64", "64 has no unit; write it like 64MiB, 10GB or 512B"),
        ("size", "big", "'big' is not a size; write it like 64MiB, 10GB or 512B"),
        ("size", "1Mb", "1Mb has the unknown unit Mb; use one of TiB, GiB, MiB, KiB, TB, GB, MB, kB, B"),
        ("size", "0.5B", "0.5B is not a whole number of bytes; use fewer decimals"),
        ("size", "9999999999TB", f"9999999999TB {LARGE}"),
        ("rate", "0.1", "0.1 has no unit; write it like 0.1GB/s or 50MB/s"),
        ("rate", "fast", "'fast' is not a rate; write it like 0.1GB/s or 50MB/s"),
        ("rate", "1Gb/s", f"1Gb/s has the unknown unit Gb/s; {OF_RATES}"),
        ("rate", "1GB", f"1GB has the unknown unit GB; {OF_RATES}"),
        ("rate", "0.5B/s", "0.5B/s is not a whole number of bytes per second; use fewer decimals"),
    ]
)
def test_an_invalid_quantity_is_refused_with_advice(kind: str, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        KINDS[kind][0](text)


@for_each(
    [
        *(("duration", 10_000_000, "10ms"), ("duration", 60 * 10**9, "1m"), ("duration", 300 * 10**9, "5m")),
        *(("duration", 5_400 * 10**9, "1h30m"), ("duration", 0, "0s"), ("duration", 1, "1ns")),
        # the shortest exact unit, and for rates the units of the project
        *(("size", 67_108_864, "64MiB"), ("size", 10**10, "10GB"), ("size", 1001, "1001B"), ("size", 0, "0B")),
        *(("rate", 10**8, "0.1GB/s"), ("rate", 12_500_000_000, "12.5GB/s"), ("rate", 1, "1B/s"), ("rate", 0, "0B/s")),
    ]
)
def test_quantities_are_written_as_people_write_them(kind: str, value: int, text: str) -> None:
    assert KINDS[kind][1](value) == text


@for_each(KINDS)
def test_nothing_negative_is_written(parse: object, write: Callable[[int], str], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        write(-1)
