"""The aggregator's settings: thresholds, windows, time scales and spans."""

from __future__ import annotations

from dataclasses import dataclass, field

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND, TRAFFIC_WINDOW_NS
from ibpulse.core.statistics.signature import MoeSaturationOptions, SaturationOptions, SignatureOptions
from ibpulse.core.statistics.steps.runs import Thresholds

# labels of metrics, which rules and dashboards name
WINDOWS_NS = (10 * SECOND_NS, 60 * SECOND_NS, 300 * SECOND_NS)
TIMESCALES_NS = (10 * MILLISECOND_NS, 50 * MILLISECOND_NS, 100 * MILLISECOND_NS, SECOND_NS)


@dataclass(frozen=True, slots=True)
class AggregatorOptions:
    """Threshold for active traffic, rolling windows (whole seconds), and time scales of the node's burstiness.

    A time scale that is not a whole number of ticks, or does not divide one second, has no value. A burst begins above
    `active_bytes_per_second` and ends at or below `burst_low_bytes_per_second`, which defaults to the same threshold.
    `traffic_window_ns` is the window for the step period and the signature. Rail balance uses the first of
    `balance_spans_seconds` with active rails: the short span detects a dead rail within seconds, the longer spans cover
    steps with long idle gaps. `xmit_wait_tick_bytes` is the number of bytes that a port can send during one count of
    its stall counter, None if unknown.
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
        """The longest span of any rolling value."""
        return max(*self.window_seconds(), self.traffic_window_ns // SECOND_NS)

    def thresholds(self) -> Thresholds:
        """The thresholds at which bursts begin and end."""
        low = self.burst_low_bytes_per_second
        high = self.active_bytes_per_second
        return Thresholds(high, high if low is None else min(low, high))
