"""A prediction compared with the measured traffic: both values of each quantity, and the unexplained rest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ibpulse.base.document import Section, finite, members_of
from ibpulse.base.text import NOT_KNOWN, count_text, link_rate_text, percent, significant, statistic_text, time_text
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.base.values import GivenText
from ibpulse.core.arrays import Floats, running_sum
from ibpulse.core.recordings import Recording
from ibpulse.core.statistics.span import SpanStatistics, describe_span, sum_over_span
from ibpulse.core.statistics.steps.runs import MAX_MISSING_SHARE
from ibpulse.core.statistics.sums import OBSERVED, RECEIVE, TRANSMIT
from ibpulse.workbench.models.prediction import Prediction, ValueRange
from ibpulse.workbench.models.report import range_text
from ibpulse.workbench.nccl.results import header_factors
from ibpulse.workbench.reports.span import Outside, ReportOptions, choose_window

Value = TypeVar("Value")
SAMPLE_NS = 10 * MILLISECOND_NS
STEPS_SHOWN = 2
SAMPLE_SECONDS = 0.01
SAME_STEP = 0.02
"""Steps whose lengths differ by less are the same."""
RATE_DIFFERS = 0.1
_HEADS = ("predicted", "measured", "unexplained (measured - predicted)")


@dataclass(frozen=True, slots=True)
class MeasuredRail:
    """A rail: its share of all bytes that the rails sent, and of those that they received; 0 if there were none."""

    name: str
    sent_share: float
    received_share: float
    active: bool


@dataclass(frozen=True, slots=True)
class MeasuredTraffic:
    """The traffic of a node; rates in bytes per second, None if unknown.

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
    """The traffic of the part of a recording that the options select; of the file, `outside` was not loaded."""
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
    missing = running_sum(np.isnan(values))
    for steps in range(STEPS_SHOWN if rhythm else 0, 0, -1):
        count = math.ceil(steps * (rhythm or 0.0) / interval)
        whole = np.flatnonzero(missing[count:] == missing[: max(0, missing.size - count)])
        if whole.size:
            first = int(whole[min(int(np.searchsorted(whole, values.size // 2)), whole.size - 1)])
            return values[first : first + count]
    return np.zeros(0)


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """A quantity; None if it is not predicted or not measured. `unit` is a key of `text.SCALES`.

    `indicative` quantities depend on details that the model does not have.
    """

    key: str
    label: str
    unit: str
    predicted: ValueRange | None
    measured: float | None
    indicative: bool = False

    @property
    def unexplained(self) -> ValueRange | None:
        """Measured minus predicted; a range if the prediction is one, also where it contains the measured value."""
        if self.predicted is None or self.measured is None:
            return None
        return ValueRange(self.measured - self.predicted.high, self.measured - self.predicted.low)


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """All quantities of the node, and the bytes that each rail sends and receives per step.

    `step_seconds` is the step that bytes per step are about, None if it is unknown. `headers` are the bytes on the wire
    per byte of payload, by which predicted bytes and rates are multiplied.
    """

    measured: MeasuredTraffic
    step_seconds: float | None
    headers: ValueRange
    node: tuple[ComparedValue, ...]
    rails: tuple[tuple[str, ComparedValue, ComparedValue], ...]
    remarks: tuple[str, ...]

    def picture_members(self) -> dict[str, Any]:
        """The members of the picture that the measurement has."""
        measured = self.measured
        file = measured.name.rpartition("/")[2]
        lack = "too many missing samples" if measured.too_much_missing else "no whole step"
        return {
            "measured": measured.stretch,
            "sample_seconds": measured.interval_seconds,
            "measured_name": f"{'SIMULATED, ' if measured.simulated else ''}{file}",
            "inflation": (self.headers.low + self.headers.high) / 2,
            "not_drawn": "" if measured.stretch.size else f"not drawn: {lack} in {file}",
        }


def compare_with_model(found: Prediction, measured: MeasuredTraffic) -> ModelComparison:
    """The prediction and the measurement of one node side by side."""
    # a simulator counts payload alone
    headers = ValueRange(1.0, 1.0) if measured.simulated else ValueRange(*header_factors(measured.link_layer))
    step = _step_of(found, measured)
    return ModelComparison(
        measured=measured,
        step_seconds=step,
        headers=headers,
        node=tuple(_node_values(found, measured, step, headers)),
        rails=tuple(_rail_values(found, measured, step, headers)),
        remarks=tuple(_remarks(found, measured, step)),
    )


def _given_step(found: Prediction) -> float | None:
    return found.step.seconds.low if found.step and found.step.given else None


def _is_micro_batch(found: Prediction, rhythm: float) -> bool:
    """Whether the rhythm is that of the micro-batches of the given step."""
    given, batches = _given_step(found), found.job.micro_batches
    return given is not None and batches > 1 and abs(rhythm * batches / given - 1) < SAME_STEP


def _step_of(found: Prediction, measured: MeasuredTraffic) -> float | None:
    """The measured length of a step, or else the given one."""
    rhythm = measured.rhythm_seconds
    if rhythm is None:
        return _given_step(found)
    return rhythm * found.job.micro_batches if _is_micro_batch(found, rhythm) else rhythm


def _inflated(value: ValueRange, headers: ValueRange) -> ValueRange:
    return ValueRange(value.low * headers.low, value.high * headers.high)


def _node_values(
    found: Prediction, measured: MeasuredTraffic, step: float | None, headers: ValueRange
) -> Iterator[ComparedValue]:
    length = found.step.seconds if found.step and not found.step.given else None
    yield ComparedValue("step_seconds", "step", "seconds", length, step)
    sent = _inflated(found.node_bytes, headers)
    for key, label, rate in (
        ("sent_bytes", "bytes sent per step", measured.sent_rate),
        ("received_bytes", "bytes received per step", measured.received_rate),
    ):
        yield ComparedValue(key, label, "bytes", sent, None if step is None else rate * step)
    mean = _inflated(found.step.transmit_rate.times(2), headers) if found.step else None
    both = measured.sent_rate + measured.received_rate
    yield ComparedValue("mean_bytes_per_second", "mean, sent and received", "rate", mean, both)
    sampled = {row.sample_seconds: row for row in found.sampled}
    for length_seconds, value in measured.variations.items():
        row = sampled.get(length_seconds)
        label = f"CV at {time_text(length_seconds)}"
        yield ComparedValue(f"cv_{length_seconds:g}s", label, "number", row.cv if row else None, value)
    fine = sampled.get(SAMPLE_SECONDS)
    duty, peak = (fine.duty, _inflated(fine.peak, headers)) if fine else (None, None)
    yield ComparedValue("duty_cycle_ratio", "duty cycle at 10 ms", "ratio", duty, measured.duty, indicative=True)
    busy = None if measured.duty is None or step is None else measured.duty * step
    predicted_busy = duty.times(_given_step(found) or 0.0) if duty else None
    yield ComparedValue("busy_seconds", "busy time per step", "seconds", predicted_busy, busy, indicative=True)
    yield ComparedValue("peak_bytes_per_second", "peak at 10 ms", "rate", peak, measured.peak, indicative=True)


def _rail_values(
    found: Prediction, measured: MeasuredTraffic, step: float | None, headers: ValueRange
) -> Iterator[tuple[str, ComparedValue, ComparedValue]]:
    """Bytes of each rail; the prediction does not say which rails are idle, and has none for those that are."""
    each = _inflated(found.node_bytes, headers).times(1 / found.hardware.rails)
    for rail in measured.rails:
        shares = (rail.sent_share * measured.sent_rate, rail.received_share * measured.received_rate)
        sent, received = (None if step is None else share * step for share in shares)
        predicted = each if rail.active else None
        yield (
            rail.name,
            ComparedValue("sent_bytes", "sent", "bytes", predicted, sent),
            ComparedValue("received_bytes", "received", "bytes", predicted, received),
        )


def _remarks(found: Prediction, measured: MeasuredTraffic, step: float | None) -> Iterator[str]:
    given, rhythm = _given_step(found), measured.rhythm_seconds
    if measured.too_much_missing:
        yield "so many samples are missing that steps and the peak of the recording are not known"
    if step is None:
        yield "no step was found in the recording; give --step for bytes per step"
    elif rhythm is None:
        yield "no step was found in the recording; bytes per step are the mean times the given step"
    elif _is_micro_batch(found, rhythm):
        yield f"the rhythm of {time_text(rhythm)} is that of {found.job.micro_batches} micro-batches per step"
    elif given is not None and abs(rhythm / given - 1) >= SAME_STEP:
        yield f"steps of the recording take {time_text(rhythm)}, the step of the prediction {time_text(given)}"
    if measured.active_rails != found.hardware.rails:
        yield (
            f"{measured.active_rails} of {len(measured.rails)} rails carry traffic, the prediction has "
            f"{found.hardware.rails}; give --rails={measured.active_rails}"
        )
    usable, line = found.hardware.rail_bytes_per_second, measured.line_rate
    if line is not None and not 1 - RATE_DIFFERS <= usable / line <= 1:
        yield (
            f"rails of the recording have {link_rate_text(line)}, the prediction uses {link_rate_text(usable)}; "
            "give --rail-rate=RATE"
        )
    if measured.observed_ratio < 1:
        yield f"{percent(measured.observed_ratio)} of the window was observed; missing samples are excluded"


def comparison_sections(compared: ModelComparison) -> list[Section]:
    """The comparison of the node and of its rails, as sections of the prediction."""
    measured = compared.measured
    simulated = "SIMULATED, " if measured.simulated else ""
    steps = f", {count_text(measured.whole_steps, 'whole step')}" if measured.whole_steps else ""
    title = (
        f"compared with {measured.name}: {simulated}{measured.host}, {significant(measured.window_seconds)} s{steps}"
    )
    certain = [value for value in compared.node if not value.indicative]
    rough = [value for value in compared.node if value.indicative]
    low, high = compared.headers.low, compared.headers.high
    headers = () if high == 1 else (f"predicted bytes include packet headers: x{low:.4f} to x{high:.4f}",)
    node = Section(title, ("", *_HEADS), tuple(map(_row, certain)), (*headers, *compared.remarks))
    indicative = Section("only indicative", ("", *_HEADS), tuple(map(_row, rough)))
    rails = Section(
        "bytes of each rail per step",
        ("rail", "predicted", "sent", "unexplained", "received", "unexplained"),
        tuple(
            (name, _range(sent), _measured(sent), _unexplained(sent), _measured(received), _unexplained(received))
            for name, sent, received in compared.rails
        ),
    )
    return [part for part in (node, indicative, rails) if part.rows]


def _row(value: ComparedValue) -> tuple[str, ...]:
    return value.label, _range(value), _measured(value), _unexplained(value)


def _range(value: ComparedValue) -> str:
    return NOT_KNOWN if value.predicted is None else range_text(value.predicted, lambda one: _text(one, value.unit))


def _measured(value: ComparedValue) -> str:
    return NOT_KNOWN if value.measured is None else _text(value.measured, value.unit)


def _text(value: float, unit: str) -> str:
    if not value:
        return "0"
    return f"{value:.3f}" if unit == "number" else statistic_text(value, unit)


def _unexplained(value: ComparedValue) -> str:
    found = value.unexplained
    if found is None:
        return NOT_KNOWN
    text = range_text(found, lambda one: f"{'+' if one > 0 else ''}{_text(one, value.unit)}")
    # shares of a share or of a CV say nothing
    if value.unit in ("ratio", "number") or not value.measured:
        return text
    parts = ValueRange(found.low / value.measured, found.high / value.measured)
    return f"{text} ({range_text(parts, lambda one: f'{100 * one:+.2f} %')})"


def comparison_json(compared: ModelComparison) -> dict[str, Any]:
    """The comparison for JSON; values that are not predicted or not measured are null."""
    measured = compared.measured
    return {
        "recording": measured.name,
        **members_of(measured, "host", "simulated", "window_seconds", "observed_ratio"),
        "step_seconds": compared.step_seconds,
        "whole_steps": measured.whole_steps,
        "headers": compared.headers,
        "node": [_value_json(value) for value in compared.node],
        "rails": [
            {"rail": name, "sent": _value_json(sent), "received": _value_json(received)}
            for name, sent, received in compared.rails
        ],
        "remarks": compared.remarks,
    }


def _value_json(value: ComparedValue) -> dict[str, Any]:
    return members_of(value, "key", "unit", "predicted", "measured", "unexplained", "indicative")
