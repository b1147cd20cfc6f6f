"""Bins that were computed before, so that a look computes the newest alone. It must not know what is in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ibpulse.terminal.view import Floats


class Bins:
    """The last bins of each rail, float32 (2, bins). Bins of one width are numbered; those before `_end` are known."""

    def __init__(self) -> None:
        self._width = 0
        self._end = 0
        self._count = 0
        self._known: Mapping[str, Floats] = {}

    def missing(self, width: int, names: Collection[str], end: int, count: int, unsure: int) -> int:
        """How many bins before `end` are to be computed so that `count` of this width are known of all names.

        The last `unsure` of those that are known may have changed.
        """
        if width != self._width:
            self._width, self._known = width, {}
        if set(names) != set(self._known) or end < self._end or end - count < self._end - self._count:
            return count
        return min(count, end - self._end + unsure)

    def add(self, newest: Mapping[str, Floats], end: int, count: int) -> Mapping[str, Floats]:
        """The last `count` bins before `end`, of which the newest were just computed, as many as were missing."""
        begin = end - count - (self._end - self._count)
        found: dict[str, Floats] = {}
        for name, values in newest.items():
            kept = count - values.shape[1]
            found[name] = (
                np.concatenate([self._known[name][:, begin : begin + kept], values], axis=1) if kept else values
            )
        self._known, self._end, self._count = found, end, count
        return found
