"""Builds the parts of a snapshot that come from the table of ports and from the ring's header."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from ibpulse.agent.aggregator.last_minute import Resolutions
from ibpulse.agent.aggregator.port_totals import (
    ACTIVE_UTILIZATION,
    ACTIVE_UTILIZATION_SQUARED,
    SAMPLED_UTILIZATION,
    UTILIZATION,
    UTILIZATION_SQUARED,
    PortTable,
)
from ibpulse.agent.aggregator.snapshot import (
    LATENESS_BUCKETS,
    TICK_DURATION_BUCKETS,
    UTILIZATION_BUCKETS,
    DirectionSnapshot,
    PortSnapshot,
    SamplerSnapshot,
    UtilizationMoments,
)
from ibpulse.agent.aggregator.totals import RunningTotals
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.summary import DirectionStatistics
from ibpulse.core.arrays import Rows
from ibpulse.core.metrics.row import Histogram
from ibpulse.core.model import Port
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.spans import RingPort
from ibpulse.core.statistics.port_statistics import describe_directions

MAIN_LANE = 0


def read_sampler(ring: RingFile) -> SamplerSnapshot:
    """Counts of the main sampler."""
    begin = at.lane_at(MAIN_LANE)
    words = ring.words[begin : begin + at.LANE_WORDS].tolist()
    return SamplerSnapshot(
        interval_seconds=ring.interval_ns / SECOND_NS,
        ticks=words[at.L_TICKS],
        missed_ticks=words[at.L_MISSED],
        clock_steps=words[at.L_CLOCK_STEPS],
        cpu_seconds=words[at.L_CPU_NS] / SECOND_NS,
        lateness=_histogram(words, at.L_LATENESS, words[at.L_LATENESS_SUM_NS], LATENESS_BUCKETS),
        tick_duration=_histogram(words, at.L_DURATION, words[at.L_DURATION_SUM_NS], TICK_DURATION_BUCKETS),
    )


def _histogram(words: list[int], first: int, sum_ns: int, bounds: tuple[float, ...]) -> Histogram:
    cumulative = tuple(accumulate(words[first : first + at.BUCKET_COUNT]))
    return Histogram(bounds, cumulative, sum_ns / SECOND_NS)


def port_snapshots(
    ports: Sequence[Port],
    placed: Sequence[RingPort],
    rows: Rows,
    totals: RunningTotals,
    windows: Sequence[int],
    resolutions: Resolutions,
    ring: RingFile,
) -> tuple[PortSnapshot, ...]:
    """A snapshot of every port of the fabric, in order; ports without a slot in the ring have no values."""
    table, counts = totals.table, totals.table.counts
    strides = np.array([port.stride for port in placed], dtype=np.int64)
    told = np.array([resolutions.ticks_of(port) == 1 for port in placed], dtype=np.bool_)
    values = describe_windows(table, rows, strides, told, windows)
    cumulative = np.cumsum(counts.histogram[rows], axis=2).tolist()
    sums = counts.moments[rows].tolist()
    found = {}
    for index, port in enumerate(placed):
        row = int(rows[index])
        found[port.port.id] = PortSnapshot(
            port=port.port,
            directions=tuple(
                DirectionSnapshot(
                    bytes_total=int(counts.bytes_total[row, way]) if counts.counted[row, way] else None,
                    active_seconds=float(counts.active_seconds[row, way]),
                    moments=_moments(port.port, sums[index][way], cumulative[index][way]),
                    windows=tuple(window[index][way] for window in values),
                )
                for way in range(2)
            ),
            observed_seconds=float(counts.observed[row]),
            resets=int(counts.resets[row] + table.replacements[row]),
            replacements=int(table.replacements[row]),
            jumps=int(counts.jumps[row]),
            read_errors=ring.slot_word(port.slot, at.S_ERRORS),
            uncertain_reads=ring.slot_word(port.slot, at.S_UNCERTAIN),
            implausible_samples=int(table.implausible[row]),
            left_alone=ring.slot_word(port.slot, at.S_STATUS) != at.OK,
            sampling_interval_seconds=port.stride * ring.interval_ns / 1e9,
            effective_resolution_seconds=resolutions.seconds_of(port),
            traffic=totals.traffic.of_port(port, row),
        )
    return tuple(found.get(port.id) or PortSnapshot(port) for port in ports)


def _moments(port: Port, sums: list[float], cumulative: list[int]) -> UtilizationMoments | None:
    """Sums of utilisation, None until the port's rate is known."""
    if port.rate_bytes_per_second is None and not cumulative[-1]:
        return None
    return UtilizationMoments(
        utilization_seconds=sums[UTILIZATION],
        utilization_squared_seconds=sums[UTILIZATION_SQUARED],
        active_utilization_seconds=sums[ACTIVE_UTILIZATION],
        active_utilization_squared_seconds=sums[ACTIVE_UTILIZATION_SQUARED],
        histogram=Histogram(UTILIZATION_BUCKETS, tuple(cumulative), sums[SAMPLED_UTILIZATION]),
    )


def describe_windows(
    table: PortTable,
    rows: Rows,
    strides: npt.NDArray[np.int64],
    told: npt.NDArray[np.bool_],
    windows: Sequence[int],
) -> list[list[list[DirectionStatistics]]]:
    """The statistics by window, port and direction; None if the counters do not resolve them."""
    found = describe_directions(
        np.stack([table.sums.sum(seconds)[rows] for seconds in windows]),
        np.stack([table.peaks.max(seconds)[rows] for seconds in windows]),
        strides,
        told,
    )
    numbers = np.stack([found.mean, found.peak, found.duty_cycle, found.burstiness_cv], axis=-1)
    values = numbers.astype(object)
    values[np.isnan(numbers)] = None
    return [
        [
            [
                DirectionStatistics.model_construct(
                    mean_bytes_per_second=mean, peak_bytes_per_second=peak, duty_cycle_ratio=duty, burstiness_cv=cv
                )
                for mean, peak, duty, cv in port
            ]
            for port in window
        ]
        for window in values.tolist()
    ]
