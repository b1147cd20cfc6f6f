"""What the aggregator is told by the settings. It must not read any setting itself."""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class AggregatorOptions:
    """Threshold of active, rolling windows (whole seconds), and time scales of the node's burstiness.

    A time scale that is not a whole number of ticks, or does not divide one second, gives no value.
    """

    active_bytes_per_second: float = 0.1e9
    windows_ns: tuple[int, ...] = (10 * SECOND_NS, 60 * SECOND_NS, 300 * SECOND_NS)
    timescales_ns: tuple[int, ...] = (10_000_000, 50_000_000, 100_000_000, SECOND_NS)

    def __post_init__(self) -> None:
        for period_ns in self.windows_ns:
            if period_ns < SECOND_NS or period_ns % SECOND_NS:
                raise ValueError(f"window of {period_ns} ns is not a whole number of seconds")

    def window_seconds(self) -> tuple[int, ...]:
        """The windows in seconds."""
        return tuple(period_ns // SECOND_NS for period_ns in self.windows_ns)
