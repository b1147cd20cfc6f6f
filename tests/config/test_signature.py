"""The signature's settings are the arithmetic's own numbers."""

from __future__ import annotations

from dataclasses import astuple

from ibpulse.analysis.saturation import MoeSaturationOptions
from ibpulse.analysis.signature import SignatureOptions
from ibpulse.config import load


def test_the_defaults_are_those_of_the_arithmetic() -> None:
    analysis, options, saturation = load({}, {}).analysis, SignatureOptions(), MoeSaturationOptions()
    assert analysis.signature_dense == astuple(options.dense)
    assert analysis.signature_moe == astuple(options.moe)
    assert analysis.signature_tolerance == astuple(options.tolerance)
    assert analysis.signature_confidence == options.least_confidence
    assert analysis.moe_saturation_duty == saturation.least_duty
    assert analysis.moe_saturation_peak == saturation.least_peak_utilization
    assert analysis.moe_saturation_hold == saturation.hold_seconds * 1_000_000_000


def test_a_point_can_be_moved_by_one_flag() -> None:
    moved = load({"analysis.signature-moe": ["0.9,0.4,0.3,0.2,1.0,.5"]}, {})
    assert moved.analysis.signature_moe == (0.9, 0.4, 0.3, 0.2, 1.0, 0.5)
