"""The rows in which the flight recorder is watched. They must not say how a value comes about."""

from __future__ import annotations

from ibpulse.metrics.row import row

CAPTURE_ORIGINS = ("api", "alertmanager", "traffic-stalled", "rail-lost", "moe-saturation", "step-slower")
"""What can ask for a capture: a request, an alert, and the local rules."""

CAPTURES = row(
    "ibpulse_captures_total",
    "counter",
    f"Captures that were taken, by what asked for them: {', '.join(CAPTURE_ORIGINS)}.",
    ("reason",),
)
CAPTURE_ERRORS = row(
    "ibpulse_capture_errors_total",
    "counter",
    "Captures that were asked for and could not be written; the log says why. Nothing else suffers from it.",
)
CAPTURES_STORED = row("ibpulse_captures_stored", "gauge", "Captures in the directory.")
CAPTURE_STORED_BYTES = row(
    "ibpulse_capture_stored_bytes", "gauge", "Size of all captures in the directory.", unit="bytes"
)
CAPTURE_LAST = row(
    "ibpulse_capture_last_timestamp_seconds",
    "gauge",
    "Wall time of the trigger of the newest capture in the directory.",
    unit="seconds",
)
