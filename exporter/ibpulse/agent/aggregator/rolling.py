"""The last seconds of an array of values, for rolling windows."""

from __future__ import annotations

import numpy as np

from ibpulse.core.arrays import Floats


class RollingSeconds:
    """The last `length` seconds of an array of values, and `behind` seconds before them.

    A window of W seconds covers exactly the last W values pushed, or those before the last `ago` ones, of which there
    are at most `behind`. Seconds that were never pushed count as zeros.
    """

    def __init__(self, length: int, shape: tuple[int, ...], behind: int = 0) -> None:
        self.length = length
        self._values = np.zeros((length + behind, *shape))
        self._next = 0

    def push(self, seconds: Floats) -> None:
        """Add the values of further seconds, (seconds, *shape)."""
        kept = len(self._values)
        places = np.arange(self._next, self._next + len(seconds))[-kept:] % kept
        self._values[places] = seconds[-kept:]
        self._next = (self._next + len(seconds)) % kept

    def push_holes(self, seconds: int) -> None:
        """Add seconds without any data."""
        kept = len(self._values)
        self._values[np.arange(self._next, self._next + min(seconds, kept)) % kept] = 0.0
        self._next = (self._next + seconds) % kept

    def sum(self, seconds: int, ago: int = 0) -> Floats:
        """Sum over the last seconds."""
        return np.asarray(sum(part.sum(axis=0) for part in self._last(seconds, ago)))

    def sums(self, seconds: int, count: int) -> Floats:
        """Sums over the seconds that end with each of the last `count` ones, oldest first: (count, *shape)."""
        return np.stack([self.sum(seconds, ago) for ago in range(count - 1, -1, -1)])

    def max(self, seconds: int, ago: int = 0) -> Floats:
        """Maximum over the last seconds."""
        return np.asarray(np.maximum.reduce([part.max(axis=0) for part in self._last(seconds, ago)]))

    def values(self, seconds: int, ago: int = 0) -> Floats:
        """The values of the last seconds, oldest first: (seconds, *shape)."""
        return np.concatenate(self._last(seconds, ago))

    def _last(self, seconds: int, ago: int) -> list[Floats]:
        """Views of the last seconds: one, or two if they wrap around."""
        end = (self._next - ago) % len(self._values) or len(self._values)
        begin = end - seconds
        if begin >= 0:
            return [self._values[begin:end]]
        return [self._values[begin:], self._values[:end]]

    def add_row(self) -> None:
        """Make room for one more port."""
        length, _, *rest = self._values.shape
        self._values = np.concatenate([self._values, np.zeros((length, 1, *rest))], axis=1)

    def clear_row(self, row: int) -> None:
        """Clear the values of one port."""
        self._values[:, row] = 0.0
