"""A prediction as JSON, and its sections as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ibpulse import __version__
from ibpulse.models.assumptions import assumptions
from ibpulse.models.job_inputs import JobInputs
from ibpulse.models.load_sensitivity import LoadSensitivity
from ibpulse.models.prediction import Prediction
from ibpulse.models.prediction_sections import PredictionSection
from ibpulse.text import escape_controls

VERSION = 1


def render_json(
    inputs: JobInputs, found: Prediction, loads: LoadSensitivity | None, compared: Mapping[str, Any] | None = None
) -> str:
    """The prediction as one JSON object; a range has `low` and `high`, and unknown values are null.

    `compared` is the comparison with a recording.
    """
    job = asdict(found.job)
    document = {
        "ibpulse_model_version": VERSION,
        "ibpulse_version": __version__,
        "given": {name: {"text": one.text, "place": one.place} for name, one in inputs.given.items()},
        "model": job.pop("model"),
        "job": {**job, "dp": found.job.dp, "gpus": found.job.gpus, "step_tokens": found.job.step_tokens},
        "hardware": asdict(found.hardware),
        "readings": found.readings,
        "sources": [asdict(row) for row in found.sources],
        "node_bytes": asdict(found.node_bytes),
        "wire_seconds": asdict(found.wire_seconds),
        "communication_seconds": asdict(found.communication_seconds),
        "step": asdict(found.step) if found.step else None,
        "samples": [asdict(row) for row in found.sampled],
        "residual": _residual(inputs, found),
        "network": asdict(inputs.network) if inputs.network else None,
        "expert_load": asdict(loads) if loads else None,
        "compared": compared,
        "assumptions": assumptions(inputs),
        "warnings": [*found.warnings, *(inputs.network.warnings if inputs.network else ())],
    }
    return escape_controls(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False), keep="\n") + "\n"


def _residual(inputs: JobInputs, found: Prediction) -> dict[str, Any] | None:
    """Measured minus predicted bytes; a measurement inside the range keeps both differences."""
    measured = inputs.measured_bytes
    if measured is None:
        return None
    return {
        "measured_node_bytes": measured,
        "unexplained_bytes": {"low": measured - found.node_bytes.high, "high": measured - found.node_bytes.low},
    }


def render_text(sections: Sequence[PredictionSection]) -> str:
    """Sections as text of at most 120 columns, except for long formulas and assumptions."""
    return escape_controls("\n\n".join(map(_section_text, sections)), keep="\n") + "\n"


def _section_text(section: PredictionSection) -> str:
    title = [f"{section.title}:"] if section.title else []
    indent = "  " if title and not section.heads else ""
    return "\n".join([*title, *_table(section), *(f"{indent}{line}" for line in section.lines)])


def _table(section: PredictionSection) -> list[str]:
    """Columns under their heads, the first to the left and the others to the right."""
    rows = [section.heads, *section.rows] if section.heads else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    )
    return [f"  {line}".rstrip() for line in lines]
