"""Quantities and names as people read them."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ibpulse
from ibpulse.base.text import (
    csv_text,
    duration_text,
    elapsed_text,
    errno_text,
    escape_controls,
    file_size_text,
    gigabytes,
    names_text,
    natural_key,
    percent,
    rate_text,
    sentence_list,
    size_text,
    split_lines,
    step_text,
    threshold_text,
    time_text,
)
from tests.tables import for_each


def test_quantities_are_formatted_for_people() -> None:
    assert [time_text(value) for value in (2.5, 0.00125, 4e-6)] == ["2.5 s", "1.25 ms", "4 µs"]
    assert [size_text(value) for value in (12e6, 999, 3e9)] == ["12 MB", "999 B", "3 GB"]
    assert [rate_text(value) for value in (25e9, 0)] == ["25.0 GB/s", "0 GB/s"]
    assert errno_text(22) == "EINVAL (Invalid argument)"
    assert names_text([f"mlx5_{number}" for number in range(12)], 2) == "mlx5_0, mlx5_1 and 10 more"
    assert [sentence_list(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (59.4, "59.4s"), (59.6, "1m00s"), (61, "1m01s"), (3599.6, "1h00m00s"), (90_061, "25h01m01s")],
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert elapsed_text(seconds) == text


def test_sizes_are_decimal_and_ratios_never_round_up() -> None:
    assert [file_size_text(size) for size in (999, 1e3, 1.26e6, 7.6e9)] == ["999 B", "1.0 kB", "1.3 MB", "7.6 GB"]
    assert [percent(ratio) for ratio in (1.0, 0.999999, 0.5, 0)] == ["100 %", "99.99 %", "50.00 %", "0.00 %"]


def test_unknown_numbers_are_marked() -> None:
    assert [gigabytes(None), percent(None), step_text(None)] == ["-"] * 3
    rates = (0.0, 231.44e9, 1326.04e9, 0.95e9, 0.949e9, 0.0123e9, 1e6, 0.9e6, 1.0)
    assert [gigabytes(rate) for rate in rates] == [
        *("0.0", "231.4", "1326.0", "0.9", "0.949", "0.012", "0.001", "<0.001", "<0.001")
    ]
    assert all(len(gigabytes(10.0**power)) <= 6 for power in range(13))
    assert [percent(ratio) for ratio in (0, 0.99999, 1, 1.2)] == ["0.00 %", "99.99 %", "100 %", "100 %"]
    assert [step_text(s) for s in (12.34, 1.4, 0.3149, 0.00012)] == ["12.3 s", "1400.0 ms", "314.9 ms", "0.12 ms"]


@pytest.mark.parametrize(
    ("period_ns", "text"),
    [(1, "1 ns"), (500_000, "500 µs"), (10_000_000, "10 ms"), (2_290_000_000, "2.29 s"), (570_123_456, "570.1 ms")],
)
def test_a_duration_is_written_with_a_space(period_ns: int, text: str) -> None:
    assert duration_text(period_ns) == text


def test_a_rate_is_written_with_a_space() -> None:
    assert threshold_text(0.1e9) == "0.1 GB/s"


def test_devices_sort_by_their_numbers() -> None:
    names = ["mlx5_10", "mlx5_2", "ibp12s0", "mlx5_bond_0", "mlx5_0"]
    assert sorted(names, key=natural_key) == ["ibp12s0", "mlx5_0", "mlx5_2", "mlx5_10", "mlx5_bond_0"]


@given(st.text(), st.text())
def test_different_names_never_sort_as_equal_unless_their_numbers_are(left: str, right: str) -> None:
    if not any(character in "0123456789" for character in left + right):
        assert (natural_key(left) == natural_key(right)) == (left == right)


CONTROLS = [
    *map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F))),
    *map(chr, (*range(0x2066, 0x206A), 0xFEFF, 0xD800, 0xDCFF)),
]


@for_each({f"U+{ord(sign):04X}": sign for sign in CONTROLS})
def test_a_control_character_is_escaped_as_in_json(sign: str) -> None:
    escaped = escape_controls(f"a{sign}b")
    assert escaped.isprintable()
    assert json.loads(f'"{escaped}"') == f"a{sign}b"
    assert escape_controls(f"a{sign}b", keep=sign) == f"a{sign}b"


def test_the_characters_that_are_escaped_are_those_of_unicode() -> None:
    bidi = {chr(code) for code in range(0x110000) if unicodedata.bidirectional(chr(code)) in BIDI_CONTROLS}
    control = {chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Zl", "Zp", "Cs")}
    assert [sign for sign in bidi | control if escape_controls(sign) == sign] == []


BIDI_CONTROLS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@pytest.mark.parametrize("text", ["", "mlx5_0:1", "µs \\ back\\nslash", "Ω✓ 日本 שלום", "a\u00a0b"])
def test_other_text_stays(text: str) -> None:
    assert escape_controls(text) == text


def test_json_is_still_the_same_json() -> None:
    document = {"a\u202e": "\x1b[31m\x7f\x9b \u2028", "b": [1, 2.5]}
    for plain in (json.dumps(document, indent=2), json.dumps(document, indent=2, ensure_ascii=False)):
        escaped = escape_controls(plain, keep="\n")
        assert json.loads(escaped) == document
        assert all(line.isprintable() for line in escaped.split("\n"))


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "＝1", "＋1", "－1", "＠a"])
def test_a_formula_in_a_cell_becomes_text(text: str) -> None:
    assert csv_text(text) == f"'{text}"


@pytest.mark.parametrize(
    ("text", "cell"), [("\t=1", r"\t=1"), ("\r=1", r"\r=1"), ("mlx5_0:1 transmit", "mlx5_0:1 transmit"), ("a=b", "a=b")]
)
def test_a_text_that_is_no_formula_gets_no_apostrophe(text: str, cell: str) -> None:
    assert csv_text(text) == cell


@for_each([("", []), ("\n", [""]), ("a", ["a"]), ("a\n", ["a"]), ("a\n\nb\r\n", ["a", "", "b\r"])])
def test_only_line_feeds_end_lines(text: str, lines: list[str]) -> None:
    assert split_lines(text) == lines


def test_separators_in_names_end_no_line() -> None:
    assert split_lines("a\x0b\x0c\x1c\x85\u2028\u2029b") == ["a\x0b\x0c\x1c\x85\u2028\u2029b"]
    sources = Path(ibpulse.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if ".splitlines(" in path.read_text()] == []
