"""Predicts the bytes, the times, and the samples of 10 ms of a job, and the cost of uneven expert loads.

Everything is computed once per reading of the unknown inputs; the result is the range over the readings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ibpulse.workbench.models.collectives import MESSAGE_BYTES, Hardware, latency_seconds
from ibpulse.workbench.models.experts import chance_cv, measured_penalty, penalty, rank_loads
from ibpulse.workbench.models.job import Flow, Reading, TrainingJob, readings, step_flows
from ibpulse.workbench.models.step import (
    ATTENTION_SHARES,
    MFU,
    PEAK_SHARE,
    StepInputs,
    StepTimeline,
    Utilisation,
    attention_operations,
    bubble_share,
    schedule_statistics,
    step_operations,
    step_timelines,
)

SAMPLES = (0.01, 0.1)


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The least and the greatest value over all readings of what is unknown."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> ValueRange:
        """The range of some values."""
        found = list(values)
        return cls(min(found), max(found))

    def times(self, factor: float) -> ValueRange:
        """Both ends multiplied by a positive factor."""
        return ValueRange(self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source of traffic: bytes per step of a node, GPU and rail, network messages per rail, and seconds per step.

    `formulas` has one entry per distinct reading.
    """

    source: str
    operation: str
    group_size: int
    group_nodes: int
    operations: ValueRange
    node_bytes: ValueRange
    gpu_bytes: ValueRange
    rail_bytes: ValueRange
    rail_messages: ValueRange
    nvlink_gpu_bytes: ValueRange
    wire_seconds: ValueRange
    nvlink_seconds: ValueRange
    latency_seconds: ValueRange
    formulas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SampledRow:
    """Statistics of samples of one length of a node's rails, transmit and receive together, in bytes per second."""

    sample_seconds: float
    peak: ValueRange
    duty: ValueRange
    cv: ValueRange


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """The length of a step in seconds; `given` if it was an input, else it follows from `utilisation`.

    `compute` is known if the utilisation is that while computing. `bubble` is a share of the compute. Rates are of one
    node.
    """

    given: bool
    utilisation: Utilisation | None
    compute: ValueRange | None
    seconds: ValueRange
    bubble: float
    transmit_rate: ValueRange


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for a job; bytes are those that a node sends, and as many are received."""

    job: TrainingJob
    hardware: Hardware
    readings: int
    sources: tuple[SourceRow, ...]
    node_bytes: ValueRange
    wire_seconds: ValueRange
    communication_seconds: ValueRange
    step: StepPrediction | None
    sampled: tuple[SampledRow, ...]
    timelines: tuple[StepTimeline, ...]
    warnings: tuple[str, ...]


def predict(job: TrainingJob, hardware: Hardware, inputs: StepInputs) -> Prediction:
    """The traffic, the times and the samples of a job."""
    choices = readings(job)
    flows = [step_flows(job, reading) for reading in choices]
    names = dict.fromkeys(flow.source for each in flows for flow in each)
    seconds = [sum(flow_seconds(flow, hardware) for flow in each) for each in flows]
    node_bytes = ValueRange.over(sum(flow.wire for flow in each) for each in flows)
    wire = node_bytes.times(1 / hardware.node_bytes_per_second)
    step = _step(job, inputs, choices, seconds, [sum(flow.wire for flow in each) for each in flows])
    timelines, left_out = step_timelines(job, hardware, inputs, choices, flows)
    return Prediction(
        job=job,
        hardware=hardware,
        readings=len(choices),
        sources=tuple(
            _row([flow for each in flows for flow in each if flow.source == name], hardware) for name in names
        ),
        node_bytes=node_bytes,
        wire_seconds=wire,
        communication_seconds=ValueRange.over(seconds),
        step=step,
        sampled=tuple(_sampled_row(timelines, length) for length in SAMPLES if timelines),
        timelines=timelines,
        warnings=(*(_impossible(job, step, wire) if step else ()), *left_out),
    )


def flow_seconds(flow: Flow, hardware: Hardware) -> float:
    """Seconds of all operations of a source, one after another: latencies + max(wire, NVLink)."""
    latency = flow.operations * latency_seconds(flow.operation, flow.group)
    return latency + max(flow.wire / hardware.node_bytes_per_second, flow.nvlink / hardware.nvlink_bytes_per_second)


def _row(flows: Sequence[Flow], hardware: Hardware) -> SourceRow:
    first = flows[0]

    def over(value: Callable[[Flow], float]) -> ValueRange:
        return ValueRange.over(map(value, flows))

    node = over(lambda flow: flow.wire)
    rail = node.times(1 / hardware.rails)
    nvlink = over(lambda flow: flow.nvlink)
    return SourceRow(
        source=first.source,
        operation=first.operation,
        group_size=first.group.size,
        group_nodes=first.group.nodes,
        operations=over(lambda flow: flow.operations),
        node_bytes=node,
        gpu_bytes=node.times(1 / first.group.node_gpus),
        rail_bytes=rail,
        rail_messages=rail.times(1 / MESSAGE_BYTES),
        nvlink_gpu_bytes=nvlink,
        wire_seconds=node.times(1 / hardware.node_bytes_per_second),
        nvlink_seconds=nvlink.times(1 / hardware.nvlink_bytes_per_second),
        latency_seconds=over(lambda flow: flow.operations * latency_seconds(flow.operation, flow.group)),
        formulas=tuple(dict.fromkeys(flow.formula for flow in flows)),
    )


def _step(
    job: TrainingJob, inputs: StepInputs, choices: Sequence[Reading], seconds: Sequence[float], sent: Sequence[float]
) -> StepPrediction | None:
    """The step from its given length or its utilisation; while computing, between perfect and no overlap."""
    bubble = bubble_share(job.pp, job.micro_batches, job.chunks)
    used, compute = inputs.utilisation, None
    if inputs.step_seconds is not None:
        lengths = [(inputs.step_seconds, inputs.step_seconds)] * len(choices)
    elif used is not None:
        lengths = [_operation_seconds(job, used, reading) for reading in choices]
    else:
        return None
    if used is not None and used.kind == PEAK_SHARE:
        compute = ValueRange.over(one for pair in lengths for one in pair)
        lengths = [
            # from perfect overlap to none
            (max(low * (1 + bubble), wire), high * (1 + bubble) + wire)
            for (low, high), wire in zip(lengths, seconds, strict=True)
        ]
    return StepPrediction(
        given=inputs.step_seconds is not None,
        utilisation=used,
        compute=compute,
        seconds=ValueRange.over(length for pair in lengths for length in pair),
        bubble=bubble,
        transmit_rate=ValueRange.over(
            amount / length for amount, pair in zip(sent, lengths, strict=True) for length in pair
        ),
    )


def attention_per_token(job: TrainingJob) -> float:
    """Operations per token for the scores of all pairs of tokens."""
    model = job.model
    return attention_operations(model.layers, model.attention_width or model.hidden, job.sequence)


def _operation_seconds(job: TrainingJob, used: Utilisation, reading: Reading) -> tuple[float, float]:
    """Seconds of the operations that a utilisation counts, with the fewest and the most attention scores."""
    recompute = reading.recompute and used.kind != MFU
    low, high = (
        step_operations(
            job.model.multiplied_parameters, job.step_tokens, share * attention_per_token(job), recompute=recompute
        )
        / (job.gpus * used.share * used.peak)
        for share in ATTENTION_SHARES[used.attention]
    )
    return low, high


def _impossible(job: TrainingJob, step: StepPrediction, wire: ValueRange) -> Iterator[str]:
    """Warnings about steps that are too short for their bytes or their operations."""
    if step.compute is None and wire.high > step.seconds.low:
        yield (
            f"the bytes need up to {wire.high:.4g} s at the full rate of all rails, but the step has "
            f"{step.seconds.low:.4g} s; readings above the step are impossible"
        )
    used = step.utilisation
    if used and used.kind == MFU and job.recompute == "full" and used.share * 4 / 3 > 1:
        yield (
            f"with full recomputation, an MFU of {100 * used.share:.4g} % needs {400 * used.share / 3:.4g} % of the "
            "peak, which is impossible; if it counts recomputation, give hfu"
        )


def _sampled_row(timelines: Sequence[StepTimeline], length: float) -> SampledRow:
    found = [schedule_statistics(line.spans, line.period, length) for line in timelines]
    return SampledRow(
        sample_seconds=length,
        peak=ValueRange.over(2 * one.peak for one in found),
        duty=ValueRange.over(one.duty for one in found),
        cv=ValueRange.over(one.cv for one in found),
    )


@dataclass(frozen=True, slots=True)
class LoadSensitivity:
    """Maximum over mean of the loads of expert ranks, by chance and as measured, and seconds per step at stake.

    `seconds` begins at 0, because an exchange that is hidden behind compute costs nothing.
    """

    ranks: int
    chance: float
    measured: float | None
    seconds: ValueRange


def load_sensitivity(found: Prediction, loads: tuple[float, ...]) -> LoadSensitivity | None:
    """The cost of uneven loads of a job with expert parallelism: (penalty - 1) x the time of its exchanges.

    Raises:
        ValueError: the loads do not divide by the ranks, or are all 0.
    """
    job = found.job
    if job.ep == 1:
        return None
    copies = job.tokens_per_gpu * job.ep * job.model.chosen_experts
    chance = penalty(job.ep, chance_cv(job.ep, copies))
    measured = measured_penalty(rank_loads(loads, job.ep)) if loads else None
    exchange = sum(
        max(row.wire_seconds.high, row.nvlink_seconds.high) for row in found.sources if row.source == "experts"
    )
    return LoadSensitivity(job.ep, chance, measured, ValueRange(0.0, (max(chance, measured or 0.0) - 1) * exchange))
