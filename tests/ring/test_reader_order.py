"""A sampler that writes a record between two copies of the reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from tests.ring.conftest import CAPACITY
from tests.ring.writing import put


class Interrupted(np.ndarray[Any, Any]):
    """Records; before their words are looked up for the second time, `meanwhile` happens."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)
    lookups = 0

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 3:
            Interrupted.lookups += 1
            if Interrupted.lookups == 2:
                Interrupted.meanwhile()
        return super().__getitem__(key)


def read_interrupted(ring: RingFile, tick: int, meanwhile: Callable[[], None]) -> list[int] | None:
    """The five words of a record, None if it is absent."""
    reader = RingReader(ring)
    reader._records = reader._records.view(Interrupted)
    Interrupted.meanwhile, Interrupted.lookups = staticmethod(meanwhile), 0
    block = reader.read([0], tick, tick)
    assert Interrupted.lookups >= 2
    return block.records[0, 0, : at.R_TICK].tolist() if block.present[0, 0] else None


def whole(tick: int) -> list[int]:
    return [tick * factor for factor in (5, 6, 7, 8, 9)]


@pytest.mark.parametrize("before", [60, None])
def test_a_record_written_between_two_copies_is_whole_or_absent(ring: RingFile, before: int | None) -> None:
    tick = 60 + CAPACITY
    if before is not None:
        put(ring, 0, before)
    # the sampler has begun the tick, so the reader copies it
    ring.words[at.lane_at(0) + at.L_BEGUN] = tick
    assert read_interrupted(ring, tick, lambda: put(ring, 0, tick)) in (None, whole(tick))


def test_a_record_that_was_written_before_both_copies_is_whole(ring: RingFile) -> None:
    put(ring, 0, 60)
    assert read_interrupted(ring, 60, lambda: None) == whole(60)


def test_a_record_that_is_overwritten_between_two_copies_is_absent(ring: RingFile) -> None:
    """Its mark was copied, but the words are those of the tick that took its place."""
    put(ring, 0, 60)
    assert read_interrupted(ring, 60, lambda: put(ring, 0, 60 + CAPACITY)) is None
