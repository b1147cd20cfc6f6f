"""What a recording says of a job's traffic: its rhythm, its bytes and its samples, to set beside a prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from ibpulse.analysis.node_statistics import OBSERVED, RECEIVE, TRANSMIT
from ibpulse.analysis.span_statistics import SpanStatistics, describe_span, sum_over_span
from ibpulse.analysis.steps.runs import MAX_MISSING_SHARE
from ibpulse.arrays import Floats
from ibpulse.base.document import finite
from ibpulse.base.values import GivenText
from ibpulse.recordings import Recording
from ibpulse.reports.span import Outside, ReportOptions, choose_window
from ibpulse.units import MILLISECOND_NS, SECOND_NS

Value = TypeVar("Value")
SAMPLE_NS = 10 * MILLISECOND_NS
STEPS_SHOWN = 2


@dataclass(frozen=True, slots=True)
class MeasuredRail:
    """A rail: its share of all bytes that the rails sent, and of those that they received; 0 if there were none."""

    name: str
    sent_share: float
    received_share: float
    active: bool


@dataclass(frozen=True, slots=True)
class MeasuredTraffic:
    """The traffic of a node; rates in bytes per second, None for what is unknown.

    `rhythm_seconds` is the mean length of whole steps, or else the period. The rates are those of the `whole_steps`, or
    of the whole window if there are none. `variations` are CVs of active samples by the length of a sample in seconds.
    `duty` and `peak` are about samples of 10 ms. `stretch` is two steps of samples or one, transmit and receive
    together; empty if there is no step without a missing sample. With `too_much_missing`, steps and peak are unknown.
    """

    name: str
    host: str
    simulated: bool
    window_seconds: float
    observed_ratio: float
    link_layer: str
    line_rate: float | None
    rhythm_seconds: float | None
    whole_steps: int
    sent_rate: float
    received_rate: float
    variations: Mapping[float, float | None]
    duty: float | None
    peak: float | None
    rails: tuple[MeasuredRail, ...]
    interval_seconds: float
    stretch: Floats
    too_much_missing: bool = False

    @property
    def active_rails(self) -> int:
        """Rails that carry traffic."""
        return sum(rail.active for rail in self.rails)

    def model_inputs(self) -> Mapping[str, GivenText]:
        """Inputs of a model that the recording shows: the length of a step, and the rails in use."""
        texts = {"rails": str(self.active_rails)} if self.active_rails else {}
        if self.rhythm_seconds is not None:
            texts["step"] = f"{round(self.rhythm_seconds * 1e9)}ns"
        return {name: GivenText(text, f"recording {self.name}: {name}") for name, text in texts.items()}


def measure_traffic(
    name: str, recording: Recording, options: ReportOptions, outside: Outside = (0, 0)
) -> MeasuredTraffic:
    """The traffic of the part of a recording that the options select; of the file, `outside` was not loaded.

    Raises:
        RecordingError: the part is empty, or the recording lacks a chosen port.
    """
    chosen = choose_window(Path(name), recording, options, outside)
    span, series = describe_span(chosen.series, options.span_options()), chosen.series
    ports = [port for port in recording.meta.ports if str(port.id) in series.rails.names]
    fine = series.interval_ns == SAMPLE_NS and series.resolution_ticks == 1
    too_much = 1 - span.coverage.observed_ratio > MAX_MISSING_SHARE + 1e-9
    steps = span.step_sums.sum(axis=0) if len(span.step_sums) and not too_much else None
    window = chosen.series.bandwidth[series.lead : series.lead + series.ticks]
    rhythm = finite(float(span.steps.seconds) if steps is not None else span.period.seconds) if not too_much else None
    return MeasuredTraffic(
        name=name,
        host=recording.meta.host,
        simulated=recording.meta.simulated,
        window_seconds=span.coverage.seconds,
        observed_ratio=span.coverage.observed_ratio,
        link_layer=_only({port.identity.link_layer for port in ports}) or "",
        line_rate=_only({port.rate_bytes_per_second for port in ports}),
        rhythm_seconds=rhythm,
        whole_steps=0 if steps is None else len(span.step_sums),
        sent_rate=float(span.node.transmit if steps is None else steps[TRANSMIT] / steps[OBSERVED]),
        received_rate=float(span.node.receive if steps is None else steps[RECEIVE] / steps[OBSERVED]),
        variations={
            scale_ns / SECOND_NS: finite(float(span.burstiness(scale_ns))) for scale_ns in options.timescales_ns
        },
        duty=finite(float(span.node.duty_cycle)) if fine else None,
        peak=finite(float(span.node.peak)) if fine and not too_much else None,
        rails=_rails(span, options),
        interval_seconds=series.interval_seconds,
        stretch=_stretch(window, rhythm, series.interval_seconds),
        too_much_missing=too_much,
    )


def _only(values: set[Value]) -> Value | None:
    return values.pop() if len(values) == 1 else None


def _rails(span: SpanStatistics, options: ReportOptions) -> tuple[MeasuredRail, ...]:
    moved = sum_over_span(span.series, options.active_bytes_per_second).moved_bytes
    shares = moved / np.maximum(moved.sum(axis=0), 1e-300)
    active = span.rail_means > options.active_bytes_per_second
    return tuple(
        MeasuredRail(name, float(sent), float(received), bool(one))
        for name, (sent, received), one in zip(span.series.rails.names, shares, active, strict=True)
    )


def _stretch(values: Floats, rhythm: float | None, interval: float) -> Floats:
    """Two steps of samples without missing ones, or one, from the middle of the window on; empty without any."""
    missing = np.concatenate(([0], np.cumsum(np.isnan(values))))
    for steps in range(STEPS_SHOWN if rhythm else 0, 0, -1):
        count = math.ceil(steps * (rhythm or 0.0) / interval)
        whole = np.flatnonzero(missing[count:] == missing[: max(0, missing.size - count)])
        if whole.size:
            first = int(whole[min(int(np.searchsorted(whole, values.size // 2)), whole.size - 1)])
            return values[first : first + count]
    return np.zeros(0)
