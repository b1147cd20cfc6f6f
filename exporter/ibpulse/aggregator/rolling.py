"""The last seconds of an array of values, for rolling windows."""

from __future__ import annotations

import numpy as np

from ibpulse.arrays import Floats


class RollingSeconds:
    """The last `length` seconds of an array of values.

    A window of W seconds covers exactly the last W values pushed; seconds that were never pushed count as zeros.
    """

    def __init__(self, length: int, shape: tuple[int, ...]) -> None:
        self._values = np.zeros((length, *shape))
        self._next = 0

    @property
    def length(self) -> int:
        """Number of seconds kept."""
        return len(self._values)

    def push(self, seconds: Floats) -> None:
        """Add the values of further seconds, (seconds, *shape)."""
        for values in seconds:
            self._values[self._next] = values
            self._next = (self._next + 1) % len(self._values)

    def push_holes(self, seconds: int) -> None:
        """Add seconds without any data."""
        for _ in range(min(seconds, len(self._values))):
            self._values[self._next] = 0.0
            self._next = (self._next + 1) % len(self._values)

    def sum(self, seconds: int) -> Floats:
        """Sum over the last seconds."""
        return np.asarray(np.add.reduce([part.sum(axis=0) for part in self._last(seconds)]))

    def max(self, seconds: int) -> Floats:
        """Maximum over the last seconds."""
        return np.asarray(np.maximum.reduce([part.max(axis=0) for part in self._last(seconds)]))

    def values(self, seconds: int) -> Floats:
        """The values of the last seconds, oldest first: (seconds, *shape)."""
        return np.concatenate(self._last(seconds))

    def _last(self, seconds: int) -> list[Floats]:
        """Views of the last seconds: one, or two if they wrap around."""
        begin = self._next - seconds
        if begin >= 0:
            return [self._values[begin : self._next]]
        parts = [self._values[begin:], self._values[: self._next]]
        return [part for part in parts if len(part)]

    def add_row(self) -> None:
        """Make room for one more port."""
        length, _, *rest = self._values.shape
        self._values = np.concatenate([self._values, np.zeros((length, 1, *rest))], axis=1)

    def clear_row(self, row: int) -> None:
        """Clear the values of one port."""
        self._values[:, row] = 0.0
