"""Upper bounds of the histograms, without infinity."""

from __future__ import annotations

# fine near idle (0.002 of 400 Gb/s is the default threshold of active) and near full
UTILIZATION_BUCKETS = (0.002, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)

# half a tick of 10 ms above whole numbers of ticks, so that jitter moves no run to another bucket
DURATION_BUCKETS = (0.005, 0.015, 0.025, 0.035, 0.055, 0.105, 0.155, 0.255, 0.505, 1.005, 2.005, 5.005, 15.005, 60.005)
