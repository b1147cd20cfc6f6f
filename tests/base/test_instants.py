from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.base.instants import format_rfc3339, parse_instant, parse_rfc3339
from tests.tables import for_each

SECOND_NS = 10**9
instants_ns = st.integers(200_000_000 * SECOND_NS, 4_000_000_000 * SECOND_NS)


@given(st.integers(10**11, (2**63 - 1) // 10**6))
def test_whole_numbers_are_milliseconds(milliseconds: int) -> None:
    assert parse_instant(str(milliseconds)) == milliseconds * 10**6


@given(instants_ns)
def test_a_fraction_makes_seconds(instant_ns: int) -> None:
    text = f"{instant_ns // SECOND_NS}.{instant_ns % SECOND_NS:09}"
    assert parse_instant(text) == instant_ns


@given(instants_ns, st.integers(-23 * 60, 23 * 60), st.sampled_from("Tt "))
def test_rfc_3339_is_exact_in_every_zone(instant_ns: int, minutes: int, separator: str) -> None:
    zone = timezone(timedelta(minutes=minutes))
    local = datetime.fromtimestamp(instant_ns // SECOND_NS, tz=zone)
    stamp = local.isoformat(sep=separator, timespec="seconds")
    text = f"{stamp[:19]}.{instant_ns % SECOND_NS:09}{stamp[19:]}"
    assert parse_instant(text) == instant_ns
    assert parse_instant(text.replace("+", " ")) == instant_ns


@given(st.integers(0, 2**63 - 1))
def test_a_time_survives_to_the_millisecond(instant_ns: int) -> None:
    text = format_rfc3339(instant_ns)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    assert parse_rfc3339(text) == instant_ns // 10**6 * 10**6


def test_fractions_of_a_nanosecond_are_cut_off_and_times_end_with_those_of_64_bits() -> None:
    assert parse_instant("1763683200.12345678999") == 1763683200_123456789
    assert parse_instant("2262-04-11 23:47:16.854775807z") == 2**63 - 1
    assert parse_instant("9223372036854") == (2**63 - 1) // 10**6 * 10**6


@given(st.text(max_size=80))
def test_any_text_is_an_instant_or_refused(text: str) -> None:
    try:
        found: int | None = parse_instant(text)
    except ValueError:
        found = None
    assert found is None or isinstance(found, int)


INVALID = {
    "1763683200": "is taken as milliseconds, which is before 1974; write 1763683200.0 if it is seconds",
    "2262-04-11T23:47:16.854775808Z": "is outside of 1678 to 2262; check the year",
    "9999-12-31T23:59:59-23:59": "is outside of 1678 to 2262",
    "0001-01-01T00:00:00Z": "is outside of 1678 to 2262",
    "999999999999999999": "is outside of 1678 to 2262",
    "999999999999.9": "is outside of 1678 to 2262",
    "yesterday": "is not a time; write milliseconds since the epoch (1763683200000)",
    "-5": "is not a time",
    "١٧٦٣٦٨٣٢٠٠٠٠٠": "is not a time",
    "2025-11-21T00:00:00": "is not a time",
    "2025-02-30T00:00:00Z": "is not a time of the calendar: day is out of range for month",
    "2025-11-21T00:00:00+24:00": "has an offset of 24:00; it must stay below 24:00",
}


@for_each(list(INVALID.items()))
def test_an_invalid_time_is_refused_with_advice(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^'?{re.escape(text)}'? {re.escape(sentence)}"):
        parse_instant(text)


@for_each(["1763683200000", "1763683200.5", "2025-11-21", "20251121T000000Z", ""])
def test_rfc_3339_is_no_other_form(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time in RFC 3339"):
        parse_rfc3339(text)
