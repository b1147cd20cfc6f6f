"""`ibpulse model --against=RECORDING` or `--url`: predicts the traffic of a job, and compares it with a recording."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ibpulse.base.values import GivenText
from ibpulse.commands import model
from ibpulse.commands.sources import load_against
from ibpulse.config import Settings
from ibpulse.reports.model import (
    MeasuredTraffic,
    ModelComparison,
    compare_with_model,
    comparison_json,
    comparison_sections,
    measure_traffic,
)
from ibpulse.reports.span import ReportOptions
from ibpulse.text import escape_controls


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the prediction and the comparison, and draw both.

    Raises:
        ConfigError: the file or an input cannot be used, or one is missing.
        IbpulseError: the recording cannot be read, or the picture cannot be drawn.
    """
    file = model.read_file(arguments)
    options = ReportOptions(
        active_bytes_per_second=settings.analysis.active_threshold, timescales_ns=(10_000_000, 100_000_000)
    )
    found = load_against(arguments, options)
    if found is None:
        return model.show(model.answer(arguments, file, {}), arguments, model.Measurement())
    path, recording, outside = found
    measured = measure_traffic(str(path), recording, options, outside)
    answer = model.answer(arguments, file, _observed(measured))
    compared = compare_with_model(answer.found, measured)
    shown = model.Measurement(comparison_sections(compared), comparison_json(compared), _picture(compared))
    return model.show(answer, arguments, shown)


def _observed(measured: MeasuredTraffic) -> Mapping[str, GivenText]:
    """Inputs that a recording shows: the length of a step, and the rails in use."""
    place = f"recording {measured.name}"
    texts = {"rails": str(measured.active_rails)} if measured.active_rails else {}
    if measured.rhythm_seconds is not None:
        texts["step"] = f"{round(measured.rhythm_seconds * 1e9)}ns"
    return {name: GivenText(text, f"{place}: {name}") for name, text in texts.items()}


def _picture(compared: ModelComparison) -> dict[str, Any]:
    """The members of the picture that the measurement has."""
    measured = compared.measured
    file = escape_controls(measured.name.rpartition("/")[2])
    lack = "too many missing samples" if measured.too_much_missing else "no whole step"
    return {
        "measured": measured.stretch,
        "sample_seconds": measured.interval_seconds,
        "measured_name": f"{'SIMULATED, ' if measured.simulated else ''}{file}",
        "inflation": (compared.headers.low + compared.headers.high) / 2,
        "not_drawn": "" if measured.stretch.size else f"not drawn: {lack} in {file}",
    }
