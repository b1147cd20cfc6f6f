"""A prediction beside the measured traffic: both values of each quantity, and what stays unexplained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ibpulse.models.prediction import Prediction, ValueRange
from ibpulse.nccl.wire_factors import header_factors
from ibpulse.reports.measured_traffic import MeasuredTraffic
from ibpulse.text import escape_controls, link_rate_text, percent, time_text

SAMPLE_SECONDS = 0.01
SAME_STEP = 0.02
"""Steps whose lengths differ by less are the same."""
RATE_DIFFERS = 0.1


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
        file = escape_controls(measured.name.rpartition("/")[2])
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
