"""`ibpulse model [FILE]`: predicts the traffic of a training job, and compares it with a recording."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import GivenText
from ibpulse.errors import ConfigError
from ibpulse.models.input_keys import KEYS
from ibpulse.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibpulse.config import Settings
    from ibpulse.models.job_file import JobFile
    from ibpulse.models.job_inputs import JobInputs
    from ibpulse.models.load_sensitivity import LoadSensitivity
    from ibpulse.models.prediction import Prediction
    from ibpulse.pictures.options import PictureOptions
    from ibpulse.pictures.predicted_steps import PredictedPicture
    from ibpulse.reports.measured_traffic import MeasuredTraffic
    from ibpulse.reports.model_comparison import ModelComparison

FORMATS = ("text", "json", "html")
PICTURES = (".png", ".svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the file, the inputs that have a flag, the recording, and the output."""
    from ibpulse.commands.arguments import add_against_arguments

    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="The job: YAML of such inputs, config.json, run_config.yaml or a file with MODEL_ARGS.",
    )
    for key in KEYS.values():
        if key.flag:
            default = f"; {key.default} by default." if key.default else ""
            parser.add_argument(f"--{key.name}", metavar=key.kind.metavar, help=f"{key.sentence}{default}")
    add_against_arguments(parser, "Recording of a node to compare with.")
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help=f"Output format: {', '.join(FORMATS)} (default: text)."
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT", help="Also draw two steps into this file, .png or .svg."
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    """Everything that is shown."""

    inputs: JobInputs
    found: Prediction
    loads: LoadSensitivity | None
    compared: ModelComparison | None


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the prediction, and draw it.

    Raises:
        ConfigError: the file or an input cannot be used, or one is missing.
        IbpulseError: the recording cannot be read, or the picture cannot be drawn.
    """
    if arguments.output and arguments.output.suffix.lower() not in PICTURES:
        raise ConfigError([f"flag --output: {str(arguments.output)!r} is not a picture; end it with .png or .svg"])
    file = _read_file(arguments.file)
    measured = _measure(arguments, settings)
    answer = _answer(_flags(arguments), file, measured)
    shown = _show(answer, arguments.format)
    if arguments.output:
        from ibpulse.pictures.predicted_steps import save_predicted_steps  # not for text

        picture = _picture(answer)
        save_predicted_steps(picture, arguments.output, _drawing())
        if picture.not_drawn:
            print(f"ibpulse: {arguments.output}: {picture.not_drawn}", file=sys.stderr)
    print(shown, end="")
    return 0


def _measure(arguments: argparse.Namespace, settings: Settings) -> MeasuredTraffic | None:
    """The traffic of the recording or daemon to compare with, None without one."""
    if not (arguments.against or arguments.url or arguments.last):
        return None
    from ibpulse.commands.arguments import load_against
    from ibpulse.reports.measured_traffic import measure_traffic
    from ibpulse.reports.span import ReportOptions

    options = ReportOptions(
        active_bytes_per_second=settings.analysis.active_threshold, timescales_ns=(10_000_000, 100_000_000)
    )
    found = load_against(arguments, options)
    if found is None:
        return None
    path, recording, outside = found
    return measure_traffic(str(path), recording, options, outside)


def _answer(flags: Mapping[str, GivenText], file: JobFile, measured: MeasuredTraffic | None) -> _Answer:
    from ibpulse.models.job_inputs import read_inputs  # not for help texts
    from ibpulse.models.load_sensitivity import load_sensitivity
    from ibpulse.models.prediction import predict

    inputs = read_inputs(flags, file, _observed(measured))
    try:
        found = predict(inputs.job, inputs.hardware, inputs.step)
    except ValueError as error:
        raise ConfigError([f"job: {error}"]) from None
    try:
        loads = load_sensitivity(found, inputs.expert_loads)
    except ValueError as error:
        raise ConfigError([f"{inputs.given['expert-loads'].place}: {error}"]) from None
    if measured is None:
        return _Answer(inputs, found, loads, None)
    from ibpulse.reports.model_comparison import compare_with_model

    return _Answer(inputs, found, loads, compare_with_model(found, measured))


def _observed(measured: MeasuredTraffic | None) -> Mapping[str, GivenText]:
    """Inputs that a recording shows: the length of a step, and the rails in use."""
    if measured is None:
        return {}

    place = f"recording {measured.name}"
    texts = {"rails": str(measured.active_rails)} if measured.active_rails else {}
    if measured.rhythm_seconds is not None:
        texts["step"] = f"{round(measured.rhythm_seconds * 1e9)}ns"
    return {name: GivenText(text, f"{place}: {name}") for name, text in texts.items()}


def _show(answer: _Answer, form: str) -> str:
    from ibpulse.base.document import render_page, render_text
    from ibpulse.models.prediction_sections import assumption_sections, prediction_sections, render_json

    compared = answer.compared
    if form == "json":
        document = None
        if compared:
            from ibpulse.reports.model_formats import comparison_json

            document = comparison_json(compared)
        return render_json(answer.inputs, answer.found, answer.loads, document)
    sections = prediction_sections(answer.inputs, answer.found, answer.loads)
    if compared:
        from ibpulse.reports.model_formats import comparison_sections

        sections += comparison_sections(compared)
    sections += assumption_sections(answer.inputs, answer.found)
    if form == "text":
        return render_text(sections)
    title = f"Predicted traffic: {answer.found.job.model.name}"
    text = "Predicted rate of a node over two steps, and the measured one if there is one"
    return render_page(title, sections=sections, warnings=(), picture=_picture_url(answer), picture_text=text)


def _picture(answer: _Answer) -> PredictedPicture:
    """The picture of two steps.

    Raises:
        ConfigError: samples are not predicted.
        PictureError: the drawing libraries are not installed.
    """
    from ibpulse.pictures.predicted_steps import PredictedPicture

    found, compared = answer.found, answer.compared
    if not found.timelines:
        raise ConfigError(["flag --output: samples of this job are not predicted; give --step, and see the warnings"])
    title = f"{found.job.model.name}, {found.job.sharding}, {found.job.nodes} nodes"
    if compared is None:
        import numpy as np

        return PredictedPicture(title, found.timelines, np.zeros(0), 0.01)
    measured = compared.measured
    file = escape_controls(measured.name.rpartition("/")[2])
    name = f"{'SIMULATED, ' if measured.simulated else ''}{file}"
    inflation = (compared.headers.low + compared.headers.high) / 2
    why = "" if measured.stretch.size else f"not drawn: {_lack(measured)} in {file}"
    return PredictedPicture(title, found.timelines, measured.stretch, measured.interval_seconds, name, inflation, why)


def _lack(measured: MeasuredTraffic) -> str:
    return "too many missing samples" if measured.too_much_missing else "no whole step"


def _picture_url(answer: _Answer) -> str:
    """The picture for a page; empty without samples, or without the drawing libraries."""
    from ibpulse.errors import PictureError

    if not answer.found.timelines:
        return ""
    try:
        from ibpulse.pictures.predicted_steps import predicted_steps_url

        return predicted_steps_url(_picture(answer), _drawing())
    except PictureError:
        return ""


def _drawing() -> PictureOptions:
    from ibpulse.pictures.options import PictureOptions

    return PictureOptions(width_pixels=2000, dpi=200)


def _flags(arguments: argparse.Namespace) -> Mapping[str, GivenText]:

    given = {key.name: getattr(arguments, key.name.replace("-", "_")) for key in KEYS.values() if key.flag}
    return {name: GivenText(text, f"flag --{name}") for name, text in given.items() if text is not None}


def _read_file(path: Path | None) -> JobFile:
    from ibpulse.models.job_file import JobFile, read_job_file

    return read_job_file(path) if path else JobFile()
