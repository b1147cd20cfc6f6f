"""Reads JSON into the nodes of YAML, so that one reader of nodes with lines serves both.

JSON is no subset of YAML: tabs between its values, escaped pairs of surrogates, and long keys are errors in YAML.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_LITERAL = re.compile(r"[^\s,\[\]{}]+")


def json_root(text: str, max_depth: int) -> yaml.Node | None:
    """The root of a JSON object or list; None if the text is something else, or deeper than `max_depth`."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    reader = _Reader(text, max_depth)
    node = reader.read(0)
    return None if reader.too_deep else node


class _Reader:
    """Reads values of a text that is known to be JSON; `at` is behind the last one."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.text, self.max_depth = text, max_depth
        self.ends = [found.start() for found in re.finditer("\n", text)]
        self.at = 0
        self.too_deep = False

    def read(self, depth: int) -> yaml.Node:
        """The next value."""
        import yaml

        sign = self._peek()
        line = bisect_left(self.ends, self.at)
        mark = yaml.Mark("", self.at, line, 0, None, 0)
        if sign == '"':
            value, self.at = _DECODER.raw_decode(self.text, self.at)
            return yaml.ScalarNode("", value, mark, mark, style='"')
        if sign not in "{[":
            found = _LITERAL.match(self.text, self.at)
            self.at = found.end() if found else self.at + 1
            return yaml.ScalarNode("", found[0] if found else "", mark, mark)
        self.too_deep |= depth >= self.max_depth
        items = list(self._items(depth))
        if sign == "{":
            return yaml.MappingNode("", items, mark, mark)
        return yaml.SequenceNode("", items, mark, mark)

    def _items(self, depth: int) -> Iterator[Any]:
        """The values of a list, or pairs of keys and values of an object."""
        pairs = self.text[self.at] == "{"
        self.at += 1
        while not self.too_deep and self._peek() not in "}]":
            item = self.read(depth + 1)
            if pairs:
                self._peek()
                self.at += 1
                yield item, self.read(depth + 1)
            else:
                yield item
            if self._peek() == ",":
                self.at += 1
        self.at += 1

    def _peek(self) -> str:
        """The next character that is not space."""
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.text[self.at : self.at + 1]
