"""The newest ticks of a running daemon as pieces of a recording. It must not know where they go.

The daemon's API gives rates, not the measured time of each. So every rate stands for the interval: the error of one
tick is its jitter, and over many ticks nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np

from ibpulse.client import DaemonConnection, RemoteWindow, ask_window
from ibpulse.errors import DaemonError
from ibpulse.recordings import Recording, RecordingMeta
from ibpulse.ring.window import ticks_to_settle, widest_stride
from ibpulse.units import MILLISECOND_NS, SECOND_NS

log = logging.getLogger(__name__)

# one answer: small enough that the daemon gives it at once
MAX_VALUES = 100_000
# of a refusal that will not be another one in a while
REFUSED = range(400, 500)
TOO_MANY = 429


class DaemonFollower:
    """Follows a daemon from its newest certain tick at the first call on, each tick once and in order."""

    def __init__(self, connection: DaemonConnection, meta: RecordingMeta) -> None:
        self.meta = meta
        self._connection = connection
        widest = widest_stride(port.stride for port in meta.ports)
        self._settle_ns = ticks_to_settle(meta.interval_ns, widest) * meta.interval_ns
        self._most_ns = max(1, MAX_VALUES // (2 * len(meta.ports))) * meta.interval_ns
        self._next_ns: int | None = None
        self._silent = False

    def read(self) -> Iterator[Recording]:
        """What became certain since the last call; what the daemon did not measure is holes.

        A daemon that is silent for a while is asked again at the next call, and nothing is lost that its ring holds.

        Raises:
            DaemonError: it never answered, refuses, or has another interval now.
        """
        while True:
            window = self._ask()
            piece = self._cut(window) if window else None
            if window is None or piece is None:
                return
            yield piece
            if window.newest_ns - piece.end_ns < self._settle_ns + SECOND_NS:
                return

    def _ask(self) -> RemoteWindow | None:
        query: list[tuple[str, str | int]] = [("last", "1s")]
        if self._next_ns is not None:
            query = [
                ("from", self._next_ns // MILLISECOND_NS),
                ("to", (self._next_ns + self._most_ns) // MILLISECOND_NS),
            ]
        try:
            window = ask_window(self._connection, query)
        except DaemonError as error:
            if self._next_ns is None or (error.status in REFUSED and error.status != TOO_MANY):
                raise
            if not self._silent:
                log.warning("%s (it is asked again)", error)
            self._silent = True
            return None
        if self._silent:
            log.info("%s answers again", self._connection.place)
        self._silent = False
        if (window.interval_ns, window.step_ns) != (self.meta.interval_ns, self.meta.interval_ns):
            raise DaemonError(
                f"{self._connection.place} samples every {window.interval_ns / 1e6:g} ms now, and the recording has "
                f"{self.meta.interval_ns / 1e6:g} ms; begin another recording"
            )
        return window

    def _cut(self, window: RemoteWindow) -> Recording | None:
        """What of a window is certain; the first one only says where to begin."""
        if self._next_ns is None:
            self._next_ns = window.newest_ns - self._settle_ns + self.meta.interval_ns
            self._next_ns -= self._next_ns % self.meta.interval_ns
            return None
        sure = (window.newest_ns - self._settle_ns - window.start_ns) // self.meta.interval_ns + 1
        count = min(sure, window.values.shape[1])
        if count <= 0:
            return None
        values = np.stack([window.both(str(port.id)) for port in self.meta.ports])[:, :, :count].astype(np.float64)
        seconds = np.where(np.isnan(values), 0.0, self.meta.interval_ns / SECOND_NS)
        self._next_ns = window.start_ns + count * self.meta.interval_ns
        return Recording(self.meta, window.start_ns, values, seconds)
