"""The comparison of a prediction with a recording, as sections for people and for JSON."""

from __future__ import annotations

from typing import Any

from ibpulse.base.document import Section
from ibpulse.base.text import NOT_KNOWN, count_text, significant, statistic_text
from ibpulse.workbench.models.prediction import ValueRange
from ibpulse.workbench.models.report import range_text
from ibpulse.workbench.reports.model_comparison import ComparedValue, ModelComparison

_HEADS = ("predicted", "measured", "unexplained (measured - predicted)")


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
    text = range_text(found, lambda one: _signed(one, value.unit))
    # shares of a share or of a CV say nothing
    if value.unit in ("ratio", "number") or not value.measured:
        return text
    parts = ValueRange(found.low / value.measured, found.high / value.measured)
    return f"{text} ({range_text(parts, lambda one: f'{100 * one:+.2f} %')})"


def _signed(value: float, unit: str) -> str:
    return ("+" if value > 0 else "") + _text(value, unit)


def comparison_json(compared: ModelComparison) -> dict[str, Any]:
    """The comparison for JSON; null for what is not predicted or not measured."""
    measured = compared.measured
    return {
        "recording": measured.name,
        "host": measured.host,
        "simulated": measured.simulated,
        "window_seconds": measured.window_seconds,
        "observed_ratio": measured.observed_ratio,
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
    return {
        "key": value.key,
        "unit": value.unit,
        "predicted": value.predicted,
        "measured": value.measured,
        "unexplained": value.unexplained,
        "indicative": value.indicative,
    }
