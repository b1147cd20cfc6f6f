"""Defaults that settings share with the options of the parts below them, each written once."""

DEFAULT_PORT = 10055
SAMPLING_INTERVAL_NS = 10_000_000
SIGNAL_INTERVAL_NS = 100_000_000
HISTORY_NS = 300_000_000_000
SCAN_INTERVAL_NS = 5_000_000_000

ACTIVE_BYTES_PER_SECOND = 100_000_000
"""A sample above this rate counts as active."""
MIN_PEERS = 3
"""What differs from fewer others is not named: of two that differ, either may be the unusual one."""
TRAFFIC_WINDOW_NS = 60_000_000_000

MOE_SATURATION_HOLD_NS = 30_000_000_000
MOE_SATURATION_DUTY = 0.85
MOE_SATURATION_PEAK = 0.85

CAPTURE_BEFORE_NS = 60_000_000_000
CAPTURE_AFTER_NS = 10_000_000_000
CAPTURE_RULES = ("traffic-stalled", "rail-lost", "moe-saturation", "step-slower")
MAX_CAPTURE_BYTES = 1_000_000_000
MIN_FREE_BYTES = 500_000_000
