"""`ibpulse model --against=RECORDING` or `--url`: predicts the traffic of a job, and compares it with a recording."""

from __future__ import annotations

import argparse

from ibpulse.agent.config import Settings
from ibpulse.commands import model
from ibpulse.commands.compare import load_against
from ibpulse.workbench.reports.model import compare_with_model, comparison_json, comparison_sections, measure_traffic
from ibpulse.workbench.reports.span import ReportOptions


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the prediction and the comparison, and draw both."""
    file = model.read_file(arguments)
    options = ReportOptions(
        active_bytes_per_second=settings.analysis.active_threshold, timescales_ns=(10_000_000, 100_000_000)
    )
    found = load_against(arguments, options)
    if found is None:
        return model.show(model.answer(arguments, file, {}), arguments, model.Measurement())
    path, recording, outside = found
    measured = measure_traffic(str(path), recording, options, outside)
    answer = model.answer(arguments, file, measured.model_inputs())
    compared = compare_with_model(answer.found, measured)
    shown = model.Measurement(comparison_sections(compared), comparison_json(compared), compared.picture_members())
    return model.show(answer, arguments, shown)
