"""Values that settings and the parts below them share, each written once."""

ACTIVE_BYTES_PER_SECOND = 0.1e9
"""A sample above this rate counts as active."""

CAPTURE_RULES = ("traffic-stalled", "rail-lost", "moe-saturation", "step-slower")
"""The local rules of the flight recorder."""
