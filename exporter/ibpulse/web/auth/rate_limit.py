"""The rate limit: a bucket of tokens that fills with time."""

from __future__ import annotations


class Bucket:
    """Lets `burst` requests pass at once, and one more each `interval_ns`; every request at 0."""

    def __init__(self, interval_ns: int, burst: int) -> None:
        self.interval_ns, self.burst = interval_ns, burst
        self._tokens = float(burst)
        self._filled_at_ns: int | None = None

    def take(self, now_ns: int) -> bool:
        """Whether a request may pass at this time of a clock that only goes on."""
        if not self.interval_ns:
            return True
        since_ns = now_ns - (now_ns if self._filled_at_ns is None else self._filled_at_ns)
        self._filled_at_ns = now_ns
        self._tokens = min(float(self.burst), self._tokens + since_ns / self.interval_ns)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
