"""The marks and the encoding of a terminal."""

from __future__ import annotations

import codecs
import locale

import pytest

from ibpulse.workbench.top.display import choose_marks, set_encoding
from ibpulse.workbench.top.styled_text import ASCII, BLOCKS
from tests.tables import for_each


def test_blocks_are_drawn_where_the_encoding_has_them() -> None:
    assert [choose_marks(name) for name in ("utf-8", "ascii", "latin-1", "nothing")] == [BLOCKS, ASCII, ASCII, ASCII]


@for_each(
    [
        ({"LC_ALL": "xx_YY.UTF-8"}, "utf-8"),
        ({"LC_ALL": "", "LC_CTYPE": "xx_YY.utf8"}, "utf-8"),
        ({"LANG": "xx_YY.ISO-8859-1"}, "ascii"),
        ({}, "ascii"),
    ],
)
def test_an_unknown_locale_gives_its_encoding_at_most(
    environ: dict[str, str], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = locale.setlocale(locale.LC_CTYPE)
    monkeypatch.setenv("LC_ALL", "xx_YY")
    try:
        assert codecs.lookup(set_encoding(environ)).name == encoding
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
