"""The settings of sustained MoE saturation are the arithmetic's own numbers."""

from __future__ import annotations

from ibpulse.analysis.saturation import MoeSaturationOptions
from ibpulse.analysis.signature import SignatureOptions
from ibpulse.config import load


def test_the_defaults_are_those_of_the_arithmetic() -> None:
    analysis, saturation = load({}, {}).analysis, MoeSaturationOptions()
    assert saturation.least_confidence == SignatureOptions().least_confidence
    assert analysis.moe_saturation_duty == saturation.least_duty
    assert analysis.moe_saturation_peak == saturation.least_peak_utilization
    assert analysis.moe_saturation_hold == saturation.hold_seconds * 1_000_000_000
