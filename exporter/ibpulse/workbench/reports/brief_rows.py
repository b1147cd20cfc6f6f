"""The ten rows of a brief report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ibpulse.workbench.reports.rows import ReportRow, rows, variation_key

BRIEF = "Brief"


def brief_keys(timescales_ns: Sequence[int]) -> tuple[str, ...]:
    """The keys of the ten rows of a brief report; the burstiness is that at the shortest timescale."""
    return (
        "active_mean_bytes_per_second",
        "peak_bytes_per_second",
        "duty_cycle_ratio",
        variation_key(min(timescales_ns)),
        "active_p50_bytes_per_second",
        "active_p95_bytes_per_second",
        "step_period_seconds",
        "step_gap_seconds",
        "utilization_ratio",
        "fairness_ratio",
    )


def brief_rows(timescales_ns: Sequence[int]) -> tuple[ReportRow, ...]:
    """The ten rows of a brief report, in one section."""
    by_key = {row.key: row for row in rows(timescales_ns)}
    return tuple(replace(by_key[key], section=BRIEF) for key in brief_keys(timescales_ns))
