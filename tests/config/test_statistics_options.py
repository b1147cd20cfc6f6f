"""The options of the statistics follow from the settings."""

from __future__ import annotations

from ibpulse.agent.config import load
from ibpulse.agent.node.wiring import aggregator_options
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.statistics.saturation import MoeSaturationOptions
from ibpulse.core.statistics.signature import SignatureOptions
from tests.tables import for_each


def test_the_defaults_are_those_of_the_arithmetic() -> None:
    analysis, saturation = load({}, {}).analysis, MoeSaturationOptions()
    assert saturation.least_confidence == SignatureOptions().least_confidence
    assert analysis.moe_saturation_duty == saturation.least_duty
    assert analysis.moe_saturation_peak == saturation.least_peak_utilization
    assert analysis.moe_saturation_hold == saturation.hold_seconds * 1_000_000_000


@for_each([("5m", (10, 60, 300)), ("4m59s", (10, 60)), ("10s", (10,))])
def test_windows_longer_than_the_history_are_dropped(history: str, seconds: tuple[int, ...]) -> None:
    options = aggregator_options(load({"sampler.history": [history]}, {}))
    assert options.windows_ns == tuple(length * SECOND_NS for length in seconds)


@for_each([("1ms", (10, 50, 100, 1000)), ("20ms", (100, 1000)), ("40ms", (1000,)), ("50ms", (50, 100, 1000))])
def test_timescales_that_are_no_multiple_of_the_interval_are_dropped(interval: str, ms: tuple[int, ...]) -> None:
    options = aggregator_options(load({"sampler.interval": [interval]}, {}))
    assert options.timescales_ns == tuple(scale * MILLISECOND_NS for scale in ms)
