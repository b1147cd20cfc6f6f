"""Quantities and names as people read them."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@for_each(
    {
        "time": (time_text, {2.5: "2.5 s", 0.00125: "1.25 ms", 4e-6: "4 µs"}),
        "size": (size_text, {12e6: "12 MB", 999: "999 B", 3e9: "3 GB"}),
        "rate": (rate_text, {25e9: "25.0 GB/s", 0: "0 GB/s"}),
        "threshold": (threshold_text, {0.1e9: "0.1 GB/s"}),
        "elapsed": (
            elapsed_text,
            {0: "0.0s", 59.4: "59.4s", 59.6: "1m00s", 61: "1m01s", 3599.6: "1h00m00s", 90_061: "25h01m01s"},
        ),
        "duration": (
            duration_text,
            {1: "1 ns", 500_000: "500 µs", 10**7: "10 ms", 2_290_000_000: "2.29 s", 570_123_456: "570.1 ms"},
        ),
        "file size": (file_size_text, {999: "999 B", 1e3: "1.0 kB", 1.26e6: "1.3 MB", 7.6e9: "7.6 GB"}),
        "ratio, which never rounds up": (
            percent,
            {None: "-", 0: "0.00 %", 0.5: "50.00 %", 0.999999: "99.99 %", 1: "100 %", 1.2: "100 %"},
        ),
        "gigabytes": (
            gigabytes,
            {
                None: "-",
                0.0: "0.0",
                231.44e9: "231.4",
                1326.04e9: "1326.0",
                0.95e9: "0.9",
                0.949e9: "0.949",
                0.0123e9: "0.012",
                1e6: "0.001",
                0.9e6: "<0.001",
                1.0: "<0.001",
            },
        ),
        "step": (step_text, {None: "-", 12.34: "12.3 s", 1.4: "1400.0 ms", 0.3149: "314.9 ms", 0.00012: "0.12 ms"}),
        "errno": (errno_text, {22: "EINVAL (Invalid argument)"}),
        "sentence": (sentence_list, {(): "", ("a",): "a", ("a", "b"): "a and b", ("a", "b", "c"): "a, b and c"}),
    }
)
def test_quantities_are_formatted_for_people(write: Callable[[Any], str], texts: dict[Any, str]) -> None:
    assert {value: write(value) for value in texts} == texts


def test_names_and_columns_are_short() -> None:
    assert names_text([f"mlx5_{number}" for number in range(12)], 2) == "mlx5_0, mlx5_1 and 10 more"
    assert all(len(gigabytes(10.0**power)) <= 6 for power in range(13))


def test_devices_sort_by_their_numbers() -> None:
    names = ["mlx5_10", "mlx5_2", "ibp12s0", "mlx5_bond_0", "mlx5_0"]
    assert sorted(names, key=natural_key) == ["ibp12s0", "mlx5_0", "mlx5_2", "mlx5_10", "mlx5_bond_0"]


@given(st.text(), st.text())
def test_different_names_never_sort_as_equal_unless_their_numbers_are(left: str, right: str) -> None:
    if not any(character in "0123456789" for character in left + right):
        assert (natural_key(left) == natural_key(right)) == (left == right)


BIDI_CONTROLS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def test_control_characters_of_unicode_are_escaped_as_in_json_and_other_text_stays() -> None:
    every = [chr(code) for code in range(0x110000)]
    controls = [
        sign
        for sign in every
        if unicodedata.bidirectional(sign) in BIDI_CONTROLS or unicodedata.category(sign) in ("Cc", "Zl", "Zp", "Cs")
    ]
    for sign in (*controls, "\u061c", "\u200e", "\u200f", "\ufeff"):
        escaped = escape_controls(f"a{sign}b")
        assert escaped.isprintable()
        assert json.loads(f'"{escaped}"') == f"a{sign}b"
        assert escape_controls(f"a{sign}b", keep=sign) == f"a{sign}b"
    assert escape_controls("\x01\n", keep="\n") == "\\u0001\n"
    for text in ("", "mlx5_0:1", "µs \\ back\\nslash", "Ω✓ 日本 שלום", "a\u00a0b"):
        assert escape_controls(text) == text


def test_a_formula_in_a_cell_becomes_text_and_any_other_text_gets_no_apostrophe() -> None:
    for text in ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "＝1", "＋1", "－1", "＠a"):
        assert csv_text(text) == f"'{text}"
    for text, cell in (
        ("\t=1", r"\t=1"),
        ("\r=1", r"\r=1"),
        ("mlx5_0:1 transmit", "mlx5_0:1 transmit"),
        ("a=b", "a=b"),
    ):
        assert csv_text(text) == cell


@for_each(
    [
        *(("", []), ("\n", [""]), ("a", ["a"]), ("a\n", ["a"]), ("a\n\nb\r\n", ["a", "", "b\r"])),
        ("a\x0b\x0c\x1c\x85\u2028\u2029b", ["a\x0b\x0c\x1c\x85\u2028\u2029b"]),
    ]
)
def test_only_line_feeds_end_lines(text: str, lines: list[str]) -> None:
    assert split_lines(text) == lines


def test_no_module_splits_lines_otherwise() -> None:
    sources = Path(ibpulse.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if ".splitlines(" in path.read_text()] == []
