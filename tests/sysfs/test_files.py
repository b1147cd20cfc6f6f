from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.agent.sysfs.files import ReadFault, list_names, parse_count, read_text


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    read = read_text(str(tmp_path / "rate"))
    assert (read.text, read.fault) == ("", ReadFault.MISSING)
    assert read.reason == "cannot be read: No such file or directory"


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "board_id").write_bytes(b"MT\xff\n")
    assert read_text(str(tmp_path / "board_id")).text == "MT\ufffd"


@given(st.integers(min_value=0, max_value=2**64 - 2))
def test_every_64_bit_count_is_parsed(value: int) -> None:
    assert parse_count(str(value)) == value


# ionic shows all bits set for a counter that its driver could not read
@pytest.mark.parametrize("text", ["", "-1", "1.5", "0x10", "²", "9" * 21, "1 2", str(2**64 - 1), "9" * 20])
def test_what_is_no_count_is_none(text: str) -> None:
    assert parse_count(text) is None


def test_names_are_listed_in_natural_order(tmp_path: Path) -> None:
    for name in ("10", "2", "1"):
        (tmp_path / name).touch()
    assert list_names(str(tmp_path)) == ["1", "2", "10"]
