"""The counters of a recording, step by step. It must not read a clock or write a file.

What a tick moved is its rate times its measured time, so the counters rise by exactly what they rose by when it was
recorded. In a hole nobody knows what moved: there the counter falls by one word a step. A reader takes that for a
reset and computes no rate, so the hole stays one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.recording import Recording
from ibpulse.simulate.counters import START_WORDS
from ibpulse.units import WORD_BYTES

# steps of a fraction of a tick do not add up exactly
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True)
class _Sums:
    """Bytes and holes from the beginning of a piece to each tick: (ports, 2, ticks + 1)."""

    moved: npt.NDArray[np.float64]
    holes: npt.NDArray[np.int64]

    @property
    def ticks(self) -> int:
        """Ticks of the piece."""
        return int(self.moved.shape[2]) - 1

    def moved_until(self, at: float) -> npt.NDArray[np.float64]:
        """Bytes until a place between two ticks."""
        before = math.floor(at)
        share = at - before
        if not share:
            return self.moved[:, :, before]
        return self.moved[:, :, before] * (1 - share) + self.moved[:, :, before + 1] * share


class Player:
    """Plays a recording in steps of `ticks_per_step` ticks, which may be a fraction; `loop` begins anew at its end.

    `words` is what the counters read, int64 (ports, 2), in 4-octet words. `pieces` begins the recording.
    """

    def __init__(
        self, pieces: Callable[[], Iterator[Recording]], ports: int, ticks_per_step: float, loop: bool = False
    ) -> None:
        self.words = np.tile(np.array(START_WORDS, dtype=np.int64), (ports, 1))
        self.over = False
        self.rounds = 0
        self._begin = pieces
        self._pieces = pieces()
        self._ticks_per_step = ticks_per_step
        self._loop = loop
        self._rest = np.zeros((ports, 2))
        # a piece takes longer to read than a tick
        self._reader = ThreadPoolExecutor(1, "replay")
        self._coming: Future[_Sums | None] = self._reader.submit(self._read)
        self._piece, self._at = self._coming.result(), 0.0
        self._coming = self._reader.submit(self._read)

    def step(self) -> None:
        """Go on by one step; nothing moves any more once the recording is `over`."""
        moved = np.zeros(self.words.shape)
        hole = np.zeros(self.words.shape, dtype=np.bool_)
        left = self._ticks_per_step
        while left > _NOTHING and self._piece is not None:
            end = min(self._at + left, self._piece.ticks)
            moved += self._piece.moved_until(end) - self._piece.moved_until(self._at)
            hole |= self._piece.holes[:, :, math.ceil(end - _NOTHING)] > self._piece.holes[:, :, math.floor(self._at)]
            left, self._at = left - (end - self._at), end
            if self._piece.ticks - end < _NOTHING:
                self._turn()
        self.over = self._piece is None
        words = np.floor((moved + self._rest) / WORD_BYTES)
        self._rest = np.where(hole, 0.0, moved + self._rest - words * WORD_BYTES)
        self.words += np.where(hole, -1, words).astype(np.int64)

    def close(self) -> None:
        """Let go of the file."""
        self._reader.shutdown(cancel_futures=True)

    def _turn(self) -> None:
        """To the next piece."""
        self._piece, self._at = self._coming.result(), 0.0
        self._coming = self._reader.submit(self._read)

    def _read(self) -> _Sums | None:
        piece = next(self._pieces, None)
        if piece is None and self._loop:
            self.rounds += 1
            self._pieces = self._begin()
            piece = next(self._pieces, None)
        if piece is None:
            return None
        holes = np.isnan(piece.bytes_per_second)
        moved = np.where(holes, 0.0, piece.bytes_per_second) * piece.seconds
        before = ((0, 0), (0, 0), (1, 0))
        return _Sums(np.pad(moved.cumsum(axis=2), before), np.pad(holes.cumsum(axis=2, dtype=np.int64), before))
