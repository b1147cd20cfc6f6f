"""What the settings tell the aggregator: thresholds, windows, time scales and spans."""

from __future__ import annotations

from dataclasses import dataclass, field

from ibpulse.analysis.bursts import Thresholds
from ibpulse.analysis.saturation import MoeSaturationOptions, SaturationOptions
from ibpulse.analysis.signature import SignatureOptions
from ibpulse.defaults import ACTIVE_BYTES_PER_SECOND, TIMESCALES_NS, TRAFFIC_WINDOW_NS, WINDOWS_NS
from ibpulse.units import SECOND_NS


@dataclass(frozen=True, slots=True)
class AggregatorOptions:
    """Threshold of active, rolling windows (whole seconds), and time scales of the node's burstiness.

    A time scale that is not a whole number of ticks, or does not divide one second, gives no value. A burst begins
    above the threshold of active and ends at or below `burst_low_bytes_per_second`, the same threshold unless given.
    `traffic_window_ns` is what the step period and the signature are found in. The rails are weighed over the first of
    `balance_spans_seconds` in which they are active: a dead rail is named within seconds, and where a step is longer
    than that its silence is judged by a longer look back.
    `xmit_wait_tick_bytes` is how many bytes a port could have sent in one count of its stall counter, if that is known.
    """

    active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND
    windows_ns: tuple[int, ...] = WINDOWS_NS
    timescales_ns: tuple[int, ...] = TIMESCALES_NS
    burst_low_bytes_per_second: float | None = None
    traffic_window_ns: int = TRAFFIC_WINDOW_NS
    balance_spans_seconds: tuple[int, ...] = (3, 10, 60)
    signature: SignatureOptions = field(default_factory=SignatureOptions)
    saturation: SaturationOptions = field(default_factory=SaturationOptions)
    moe_saturation: MoeSaturationOptions = field(default_factory=MoeSaturationOptions)
    xmit_wait_tick_bytes: int | None = None

    def __post_init__(self) -> None:
        for period_ns in (*self.windows_ns, self.traffic_window_ns):
            if period_ns < SECOND_NS or period_ns % SECOND_NS:
                raise ValueError(f"window of {period_ns} ns is not a whole number of seconds")

    def window_seconds(self) -> tuple[int, ...]:
        """The windows in seconds."""
        return tuple(period_ns // SECOND_NS for period_ns in self.windows_ns)

    def longest_seconds(self) -> int:
        """The longest span that any rolling value covers."""
        return max(*self.window_seconds(), self.traffic_window_ns // SECOND_NS)

    def thresholds(self) -> Thresholds:
        """Where bursts begin and end."""
        low = self.burst_low_bytes_per_second
        high = self.active_bytes_per_second
        return Thresholds(high, high if low is None else min(low, high))
