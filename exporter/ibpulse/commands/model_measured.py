"""`ibpulse model --against=RECORDING` or `--url`: predicts the traffic of a job, and compares it with a recording."""

from __future__ import annotations

import argparse

from ibpulse.agent.config import Settings
from ibpulse.commands import model
from ibpulse.commands.compare import load_against
from ibpulse.workbench.models.prediction import Prediction
from ibpulse.workbench.reports.model import compare_with_model, comparison_json, comparison_sections, measure_traffic
from ibpulse.workbench.reports.span import ReportOptions


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the prediction and the comparison, and draw both."""
    file = model.read_file(arguments)
    options = ReportOptions(
        active_bytes_per_second=settings.analysis.active_threshold, timescales_ns=(10_000_000, 100_000_000)
    )
    against = load_against(arguments, options)
    if against is None:
        return model.show(arguments, file, {}, lambda _: model.Measurement())
    path, recording, outside = against
    measured = measure_traffic(str(path), recording, options, outside)

    def measure(found: Prediction) -> model.Measurement:
        compared = compare_with_model(found, measured)
        return model.Measurement(comparison_sections(compared), comparison_json(compared), compared.picture_members())

    return model.show(arguments, file, measured.model_inputs(), measure)
