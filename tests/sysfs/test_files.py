from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.sysfs.files import ReadFault, list_names, parse_count, read_link, read_text
from tests.sysfs.trees import make_unreadable


def test_a_text_loses_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("4: ACTIVE\n")
    assert read_text(str(tmp_path / "state")).text == "4: ACTIVE"


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    read = read_text(str(tmp_path / "rate"))
    assert (read.text, read.fault) == ("", ReadFault.MISSING)
    assert read.reason == "cannot be read: No such file or directory"


def test_a_file_that_answers_einval_is_unreadable(tmp_path: Path) -> None:
    make_unreadable(tmp_path / "rate")
    read = read_text(str(tmp_path / "rate"))
    assert (read.text, read.fault, read.reason) == ("", ReadFault.UNREADABLE, "cannot be read: Invalid argument")


def test_no_pma_is_not_a_text(tmp_path: Path) -> None:
    (tmp_path / "port_xmit_data").write_text("N/A (no PMA)\n")
    read = read_text(str(tmp_path / "port_xmit_data"))
    assert (read.text, read.fault) == ("", ReadFault.NO_PMA)
    assert read.reason == "says 'N/A (no PMA)': the driver has no counters"


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


def test_a_directory_that_is_not_there_has_no_names(tmp_path: Path) -> None:
    assert list_names(str(tmp_path / "ports")) == []


def test_what_is_no_link_points_nowhere(tmp_path: Path) -> None:
    assert read_link(tmp_path) == ""
