"""A prediction as sections for people, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from ibpulse.base import document
from ibpulse.base.document import Section
from ibpulse.base.text import significant, statistic_text
from ibpulse.workbench.models.assumptions import assumptions
from ibpulse.workbench.models.job_inputs import JobInputs
from ibpulse.workbench.models.load_sensitivity import LoadSensitivity
from ibpulse.workbench.models.prediction import Prediction, StepPrediction, ValueRange
from ibpulse.workbench.models.step_time import PEAK_SHARE
from ibpulse.workbench.models.training_job import UNKNOWN

RECEIVED = "one direction; a node receives as many bytes as it sends"


def render_json(
    inputs: JobInputs, found: Prediction, loads: LoadSensitivity | None, compared: Mapping[str, Any] | None = None
) -> str:
    """The prediction as one JSON object; a range has `low` and `high`, and unknown values are null.

    `compared` is the comparison with a recording.
    """
    job = asdict(found.job)
    members = {
        "given": {name: {"text": one.text, "place": one.place} for name, one in inputs.given.items()},
        "model": job.pop("model"),
        "job": {**job, "dp": found.job.dp, "gpus": found.job.gpus, "step_tokens": found.job.step_tokens},
        "hardware": found.hardware,
        "readings": found.readings,
        "sources": found.sources,
        "node_bytes": found.node_bytes,
        "wire_seconds": found.wire_seconds,
        "communication_seconds": found.communication_seconds,
        "step": found.step,
        "samples": found.sampled,
        "residual": _residual(inputs, found),
        "network": inputs.network,
        "expert_load": loads,
        "compared": compared,
        "assumptions": assumptions(inputs),
        "warnings": _warnings(inputs, found),
    }
    return document.render_json("ibpulse_model_version", members)


def _residual(inputs: JobInputs, found: Prediction) -> dict[str, Any] | None:
    """Measured minus predicted bytes; a measurement inside the range keeps both differences."""
    measured = inputs.measured_bytes
    if measured is None:
        return None
    return {
        "measured_node_bytes": measured,
        "unexplained_bytes": {"low": measured - found.node_bytes.high, "high": measured - found.node_bytes.low},
    }


def _warnings(inputs: JobInputs, found: Prediction) -> list[str]:
    return [*found.warnings, *(inputs.network.warnings if inputs.network else ())]


def prediction_sections(inputs: JobInputs, found: Prediction, loads: LoadSensitivity | None) -> list[Section]:
    """The sections that say something, without what the results rest on."""
    parts = [_head(found), _traffic(found), _formulas(found), _times(found), _samples(found)]
    parts += [Section(lines=lines) for lines in (_measured(inputs, found), _network(inputs, found))]
    parts.append(Section(lines=_experts(loads)))
    return [part for part in parts if part.rows or part.lines]


def assumption_sections(inputs: JobInputs, found: Prediction) -> list[Section]:
    """The assumptions, and warnings if there are any."""
    parts = Section("assumptions", lines=assumptions(inputs)), Section("warnings", lines=_warnings(inputs, found))
    return [part for part in parts if part.lines]


def _head(found: Prediction) -> Section:
    job, model = found.job, found.job.model
    degrees = {"TP": job.tp, "CP": job.cp, "PP": job.pp, "DP": job.dp, "EP": job.ep}
    size = f"{significant(model.parameters / 1e9)}e9 parameters"
    active = f", {significant(model.active_parameters / 1e9)}e9 per token" if model.experts else ""
    steps = (
        f"{job.micro_batches} micro-batch{'' if job.micro_batches == 1 else 'es'} of {job.micro_batch} x {job.sequence}"
    )
    return Section(
        lines=(
            f"{model.name}: {size}{active}",
            f"{job.nodes} nodes x {job.node_gpus} GPUs, {found.hardware.rails} rails; "
            f"{' '.join(f'{name} {degree}' for name, degree in degrees.items())}; {job.sharding}; {steps} tokens",
        )
    )


def _traffic(found: Prediction) -> Section:
    heads = ("source", "operation", "ranks", "nodes", "node", "GPU", "rail", "messages per rail", "NVLink per GPU")
    rows = tuple(
        (
            row.source,
            row.operation,
            str(row.group_size),
            str(row.group_nodes),
            bytes_text(row.node_bytes),
            bytes_text(row.gpu_bytes),
            bytes_text(row.rail_bytes),
            range_text(row.rail_messages, lambda value: f"{value:,.0f}"),
            bytes_text(row.nvlink_gpu_bytes),
        )
        for row in found.sources
    )
    total = ("total", "", "", "", bytes_text(found.node_bytes), *[""] * 4)
    return Section(f"bytes sent per step ({RECEIVED})", heads, (*rows, total))


def _formulas(found: Prediction) -> Section:
    lines = tuple(f"{row.source}: {formula}" for row in found.sources for formula in row.formulas)
    symbols = "g ranks of a group, N its nodes, m its ranks on a node, G GPUs of a node, P parameters of a rank"
    return Section(f"formulas ({symbols})", lines=lines)


def _times(found: Prediction) -> Section:
    rows = tuple(
        (row.source, _seconds(row.wire_seconds), _seconds(row.nvlink_seconds), _seconds(row.latency_seconds))
        for row in found.sources
    )
    lines = (
        f"wire at the full rate of all rails: {_seconds(found.wire_seconds)}",
        f"all communication one after another: {_seconds(found.communication_seconds)}",
        *(_step(found.step) if found.step else ()),
    )
    return Section("", ("seconds per step", "wire", "NVLink", "latency"), rows, lines)


def _step(step: StepPrediction) -> Iterator[str]:
    if step.compute:
        yield f"compute: {_seconds(step.compute)}"
    if step.bubble:
        yield f"pipeline bubble: {significant(100 * step.bubble)} % of the compute"
    yield f"step: {_seconds(step.seconds)} ({_reason(step)})"
    both = step.transmit_rate.times(2)
    yield f"mean of a node: {_rate(step.transmit_rate)} sent, {_rate(both)} sent and received"


def _reason(step: StepPrediction) -> str:
    """Where the length of a step comes from."""
    used = step.utilisation
    if used is None:
        return "given"
    if used.kind == PEAK_SHARE:
        return "from perfect overlap to none"
    inside = "exposed communication and the bubble" if step.bubble else "exposed communication"
    scores = "; from no attention scores to all of them" if used.attention == UNKNOWN else ""
    return f"{used.kind.upper()} of {significant(100 * used.share)} %, contains {inside}{scores}"


def _samples(found: Prediction) -> Section:
    heads = ("samples of", "peak (sent and received)", "duty cycle", "CV of active samples")
    rows = tuple(
        (
            statistic_text(row.sample_seconds, "seconds"),
            _rate(row.peak),
            range_text(row.duty, lambda value: f"{value:.3f}"),
            range_text(row.cv, lambda value: f"{value:.3f}"),
        )
        for row in found.sampled
    )
    return Section("", heads if rows else (), rows)


def _measured(inputs: JobInputs, found: Prediction) -> tuple[str, ...]:
    measured = inputs.measured_bytes
    if measured is None:
        return ()
    low, high = (_signed(measured - end) for end in (found.node_bytes.high, found.node_bytes.low))
    unexplained = low if low == high else f"{low} to {high}"
    return (
        f"measured bytes sent by a node per step: {statistic_text(measured, 'bytes')}",
        f"unexplained (measured - predicted): {unexplained}",
    )


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + statistic_text(value, "bytes")


def _network(inputs: JobInputs, found: Prediction) -> tuple[str, ...]:
    network = inputs.network
    if network is None:
        return ()
    job = found.job
    half = job.nodes * found.hardware.rails * found.hardware.rail_bytes_per_second / 2
    share = significant(100 * network.bytes_per_second / half)
    return (
        f"bisection of the network, one direction: {statistic_text(network.bytes_per_second, 'rate')} "
        f"({share} % of half of the rails); {network.formula}",
    )


def _experts(loads: LoadSensitivity | None) -> tuple[str, ...]:
    if loads is None:
        return ()
    measured = (
        f"; measured {significant(loads.measured)}" if loads.measured else "; give expert-loads for measured ones"
    )
    return (
        f"most loaded of {loads.ranks} expert ranks in relation to the mean: by chance {significant(loads.chance)}"
        f"{measured}",
        f"uneven loads add {_seconds(loads.seconds)} per step",
    )


def range_text(value: ValueRange, show: Callable[[float], str]) -> str:
    """Both ends of a range, or one number if they look the same."""
    low, high = show(value.low), show(value.high)
    return low if low == high else f"{low} to {high}"


def bytes_text(value: ValueRange) -> str:
    """A range of bytes."""
    return range_text(value, lambda one: statistic_text(one, "bytes"))


def _rate(value: ValueRange) -> str:
    return range_text(value, lambda one: statistic_text(one, "rate"))


def _seconds(value: ValueRange) -> str:
    return range_text(value, lambda one: statistic_text(one, "seconds"))
