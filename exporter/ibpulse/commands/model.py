"""`ibpulse model` and `ibpulse model experts`: the traffic of a training job, predicted from its inputs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ibpulse.agent.config import Settings
from ibpulse.base.document import Section, render_text
from ibpulse.base.errors import ConfigError
from ibpulse.base.units import SECOND_NS
from ibpulse.base.values import GivenText
from ibpulse.workbench import pictures
from ibpulse.workbench.models.experts import SkewInputs, describe_skew
from ibpulse.workbench.models.inputs import KEYS, JobFile, read_inputs, read_job_file, read_load_table
from ibpulse.workbench.models.prediction import Prediction, load_sensitivity, predict
from ibpulse.workbench.models.report import assumption_sections, prediction_sections, render_json, skew_json, skew_text
from ibpulse.workbench.pictures.options import PictureOptions


def run_experts(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the skew."""
    if arguments.placement and not arguments.ranks:
        raise ConfigError("flag --placement: needs --ranks, the number of ranks that the slots are on")
    rows = read_load_table(arguments.file)
    placements = read_load_table(arguments.placement) if arguments.placement else ()
    inputs = SkewInputs(
        ranks=arguments.ranks or len(rows[0].loads),
        nodes=arguments.nodes,
        tokens=arguments.tokens,
        placements=placements,
        exchange_seconds=arguments.exchange and arguments.exchange / SECOND_NS,
        step_seconds=arguments.step and arguments.step / SECOND_NS,
    )
    try:
        report = describe_skew(rows, inputs)
    except ValueError as error:
        raise ConfigError([f"{arguments.file}: {error}"]) from None
    print(skew_json(report) if arguments.format == "json" else skew_text(report), end="")
    return 0


PICTURES = (".png", ".svg")
DRAWING = PictureOptions(width_pixels=2000, dpi=200)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A comparison with a recording: sections, the member of the JSON, and members of the picture."""

    sections: Sequence[Section] = ()
    document: dict[str, Any] | None = None
    picture: Mapping[str, Any] = field(default_factory=dict)


def run_model(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the prediction, and draw it."""
    return show(arguments, read_file(arguments), {}, lambda _: Measurement())


def read_file(arguments: argparse.Namespace) -> JobFile:
    """The file with inputs, if one is given."""
    if arguments.output and arguments.output.suffix.lower() not in PICTURES:
        raise ConfigError([f"flag --output: {str(arguments.output)!r} is not a picture; end it with .png or .svg"])
    return read_job_file(arguments.file) if arguments.file else JobFile()


def show(
    arguments: argparse.Namespace,
    file: JobFile,
    observed: Mapping[str, GivenText],
    measure: Callable[[Prediction], Measurement],
) -> int:
    """Predict from the inputs of flags and file, and those that a recording shows; print it, and draw it if asked."""
    given = {key.name: getattr(arguments, key.name.replace("-", "_")) for key in KEYS.values() if key.flag}
    flags = {name: GivenText(text, f"flag --{name}") for name, text in given.items() if text is not None}
    inputs = read_inputs(flags, file, observed)
    try:
        found = predict(inputs.job, inputs.hardware, inputs.step)
    except ValueError as error:
        raise ConfigError([f"job: {error}"]) from None
    loads, measured = load_sensitivity(found), measure(found)
    if arguments.output:
        if not found.timelines:
            raise ConfigError(
                ["flag --output: samples of this job are not predicted; give --step, and see the warnings"]
            )
        title = f"{found.job.model.name}, {found.job.sharding}, {found.job.nodes} nodes"
        picture = pictures.PredictedPicture(title, found.timelines, **measured.picture)
        pictures.save_predicted_steps(picture, arguments.output, DRAWING)
        if picture.not_drawn:
            print(f"ibpulse: {arguments.output}: {picture.not_drawn}", file=sys.stderr)
    if arguments.format == "json":
        print(render_json(inputs, found, loads, measured.document), end="")
    else:
        sections = (*prediction_sections(inputs, found, loads), *measured.sections)
        print(render_text([*sections, *assumption_sections(inputs, found)]), end="")
    return 0
