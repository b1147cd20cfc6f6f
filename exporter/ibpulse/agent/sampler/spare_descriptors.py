"""Descriptors that are held back for the sampler, so that connections and files cannot take those that it needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# a process takes six while it starts, and a plan takes three while it is written
COUNT = 8


class SpareDescriptors:
    """A few open descriptors of one event loop. Its own thread opens nothing else while they are released."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self.hold()

    def hold(self) -> None:
        """Hold back `COUNT` descriptors, or as many as there are."""
        try:
            while len(self._held) < COUNT:
                self._held.append(os.eventfd(0))
        except OSError:
            pass  # the next block tries again

    @contextmanager
    def released(self) -> Iterator[None]:
        """The block may use them."""
        self.close()
        try:
            yield
        finally:
            self.hold()

    def close(self) -> None:
        """Hold back no descriptor any more."""
        while self._held:
            os.close(self._held.pop())
