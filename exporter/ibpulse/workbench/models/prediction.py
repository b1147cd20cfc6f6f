"""Predicts the bytes, the times, and the samples of 10 ms of a job, and the cost of uneven expert loads.

Everything is computed once per reading of the unknown inputs; the result is the range over the readings.

MFU is defined in A. Chowdhery et al., PaLM, arXiv 2204.02311, appendix B, HFU in V. Korthikanti et al., arXiv
2205.05198, and the bubble of a pipeline in D. Narayanan et al., arXiv 2104.04473.

A fully sharded (FSDP, ZeRO-3) step has two streams: one of compute, one of collectives. An all-gather may run
`prefetch` units ahead of the compute. Backward goes through the units in reverse: gather, compute, and the
reduce-scatter of the gradients, which waits behind the gather of the next unit. Nothing is fitted but the compute time,
which is chosen such that the step has the given length. All traffic of another step is taken as a single burst at the
full rate, the most uneven case. Steps with other traffic than parameters and gradients on the wire have no time line.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ibpulse.workbench.models.collectives import MESSAGE_BYTES, Hardware, latency_seconds
from ibpulse.workbench.models.experts import chance_cv, penalty
from ibpulse.workbench.models.job import FULLY_SHARDED, Flow, Reading, TrainingJob, readings, step_flows

MFU, HFU, PEAK_SHARE = "mfu", "hfu", "peak-share"
UTILISATIONS = (MFU, HFU, PEAK_SHARE)
ATTENTION_SHARES = {"none": (0.0, 0.0), "causal": (0.5, 0.5), "full": (1.0, 1.0), "unknown": (0.0, 1.0)}
"""The least and the greatest share of the attention scores that a utilisation counts."""
PREFETCHES = (1, 2, 3)
MAX_TRIES = 60
PRECISION = 1e-12
"""Of the length of a step."""

Span = tuple[float, float, float]
"""Begin, end and rate of a part of a step; parts do not overlap."""


@dataclass(frozen=True, slots=True)
class Utilisation:
    """A share of the operations per second that a GPU can do, `peak`.

    `mfu` counts what the model needs, `hfu` recomputation too, both over the whole step, which contains exposed
    communication and idle time. `peak-share` is that of `hfu` over the time in which the GPU computes.
    """

    kind: str
    share: float
    peak: float
    attention: str = "unknown"


def attention_operations(layers: int, width: int, sequence: int) -> float:
    """Operations per token for the scores of all pairs of tokens, forward and backward: 12 l w s.

    w is the width of all heads together. With a causal mask, half of the pairs are needed.
    """
    return 12 * layers * width * sequence


def step_operations(parameters: float, tokens: float, attention: float = 0.0, *, recompute: bool) -> float:
    """Floating-point operations of a step: (6 P + attention) tokens; a third more with full recomputation.

    `attention` are the operations per token for attention scores.
    """
    return (4 / 3 if recompute else 1) * (6 * parameters + attention) * tokens


def bubble_share(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Idle time of a pipeline in relation to its ideal time: (p - 1) / (v m)."""
    return (stages - 1) / (chunks * micro_batches)


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """Statistics of samples of one length: peak in bytes per second, duty cycle, and CV of the active samples."""

    peak: float
    duty: float
    cv: float


def schedule_statistics(spans: Sequence[Span], period: float, sample: float) -> SampleStatistics:
    """Exact statistics over all phases of a load that repeats every `period`; times in seconds.

    A sample is the mean rate over its length; its phase is random. The value of a sample is linear in its phase between
    the edges of the rate and those edges minus the sample's length, so mean squares and shares follow from the values
    at these phases.
    """
    amount = _Amount(spans, period)
    mean = amount.total / period
    if not mean:
        raise ValueError("a load without traffic has no statistics")
    edges = {time % period for begin, end, _ in spans for time in (begin, end, begin - sample, end - sample)}
    phases = sorted(edges | {0.0})
    values = [(amount.until(phase + sample) - amount.until(phase)) / sample for phase in phases]
    least = mean * 1e-9
    square = active = 0.0
    for at, begin in enumerate(phases):
        last = at + 1 == len(phases)
        width = (period if last else phases[at + 1]) - begin
        first, second = values[at], values[0 if last else at + 1]
        square += width * (first * first + first * second + second * second) / 3
        active += width if max(first, second) > least else 0.0
    duty = active / period
    return SampleStatistics(max(values), duty, math.sqrt(max(0.0, square / period / mean**2 * duty - 1)))


class _Amount:
    """Bytes sent since the step began, at any time, also in later steps."""

    def __init__(self, spans: Sequence[Span], period: float) -> None:
        self.spans, self.period = sorted(spans), period
        self.begins = [begin for begin, _, _ in self.spans]
        self.before = [0.0]
        for begin, end, rate in self.spans:
            self.before.append(self.before[-1] + (end - begin) * rate)
        self.total = self.before[-1]

    def until(self, time: float) -> float:
        whole, rest = divmod(time, self.period)
        at = bisect_right(self.begins, rest) - 1
        if at < 0:
            return whole * self.total
        begin, end, rate = self.spans[at]
        return whole * self.total + self.before[at] + (min(rest, end) - begin) * rate


@dataclass(frozen=True, slots=True)
class ShardedStep:
    """A step of `units` equal units; `gather_seconds` is one all-gather or reduce-scatter of a unit at full rate.

    `backward_ratio` is the compute of backward in relation to forward: 2, or 3 with recomputation. `rate` is that of a
    node while a collective runs.
    """

    units: int
    gather_seconds: float
    rate: float
    prefetch: int = 2
    backward_ratio: float = 2.0

    def lay_out(self, compute: float) -> tuple[list[Span], float]:
        """The spans with traffic, and the length of the step, with this much compute in seconds."""
        forward = compute / (1 + self.backward_ratio) / self.units
        durations = [forward] * self.units + [forward * self.backward_ratio] * self.units
        spans: list[Span] = []
        ends: list[float] = []
        network = 0.0
        reduce_after: list[float] = []

        def send(issued: float) -> float:
            nonlocal network
            begin = max(network, issued)
            network = begin + self.gather_seconds
            spans.append((begin, network, self.rate))
            return network

        gathered: list[float] = []
        for at, duration in enumerate(durations):
            while len(gathered) < min(len(durations), at + self.prefetch):
                nth = len(gathered)
                gathered.append(send(ends[nth - self.prefetch] if nth >= self.prefetch else 0.0))
                if reduce_after:
                    send(reduce_after.pop(0))
            ends.append(max(ends[-1] if ends else 0.0, gathered[at]) + duration)
            if at >= self.units:
                reduce_after.append(ends[-1])
        for issued in reduce_after:
            send(issued)
        return spans, max(network, ends[-1])


def fit_step(step: ShardedStep, seconds: float) -> tuple[list[Span], float]:
    """The spans with traffic of a step of this length, and its compute in seconds.

    Raises:
        ValueError: the collectives alone take longer.
    """
    least = step.lay_out(0.0)[1]
    if least > seconds:
        raise ValueError(f"{seconds * 1e3:.4g} ms is shorter than its collectives at the full rate of all rails")
    low, high = 0.0, seconds
    below, above = least - seconds, step.lay_out(seconds)[1] - seconds
    found, compute = step.lay_out(low), low
    for _ in range(MAX_TRIES):
        if abs(found[1] - seconds) <= PRECISION * seconds or above <= below:
            break
        # regula falsi with the Illinois rule: the length is piecewise linear in the compute, and never falls
        compute = low - below * (high - low) / (above - below)
        found = step.lay_out(compute)
        off = found[1] - seconds
        if off <= 0:
            low, below, above = compute, off, above / 2
        else:
            high, above, below = compute, off, below / 2
    return found[0], compute


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The length of a step, or its utilisation; `prefetch` None is a range over 1 to 3."""

    step_seconds: float | None = None
    utilisation: Utilisation | None = None
    prefetch: int | None = None
    units: int = 0


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """Traffic that repeats every `period` seconds; rates are those at which a node sends, in bytes per second."""

    period: float
    spans: tuple[Span, ...]


def step_timelines(
    job: TrainingJob,
    hardware: Hardware,
    inputs: StepInputs,
    choices: Sequence[Reading],
    flows: Sequence[Sequence[Flow]],
) -> tuple[tuple[StepTimeline, ...], tuple[str, ...]]:
    """The time lines of all readings, and warnings about those that have none.

    The length of the step must be known, and parameters and gradients the only traffic on the wire.
    """
    if inputs.step_seconds is None:
        return (), ()
    others = {flow.source for each in flows for flow in each if flow.wire} - {"parameters", "gradients"}
    if others:
        return (), (f"samples are not predicted with traffic of {', '.join(sorted(others))} on the wire",)
    if job.sharding not in FULLY_SHARDED:
        node = hardware.node_bytes_per_second
        bursts = dict.fromkeys(sum(flow.wire for flow in each) / node for each in flows)
        fitting = [burst for burst in bursts if 0 < burst <= inputs.step_seconds]
        return tuple(StepTimeline(inputs.step_seconds, ((0.0, burst, node),)) for burst in fitting), ()
    period = inputs.step_seconds / job.micro_batches
    steps = _sharded_steps(job, hardware, inputs, choices, flows)
    found = []
    for step in steps:
        with suppress(ValueError):
            found.append(StepTimeline(period, tuple(fit_step(step, period)[0])))
    if len(found) == len(steps):
        return tuple(found), ()
    return tuple(found), ("readings whose collectives take longer than the step are left out of the samples",)


def _sharded_steps(
    job: TrainingJob,
    hardware: Hardware,
    inputs: StepInputs,
    choices: Sequence[Reading],
    flows: Sequence[Sequence[Flow]],
) -> list[ShardedStep]:
    """The distinct steps of one micro-batch under all readings that reduce gradients after each."""
    units = inputs.units or job.model.layers
    steps = [
        ShardedStep(
            units=units,
            gather_seconds=flow.wire / flow.count / units / hardware.node_bytes_per_second,
            rate=hardware.node_bytes_per_second,
            prefetch=prefetch,
            backward_ratio=3.0 if reading.recompute else 2.0,
        )
        for reading, each in zip(choices, flows, strict=True)
        for flow in each
        if flow.operation == "all-gather" and flow.wire and (reading.reduce_each or job.micro_batches == 1)
        for prefetch in ((inputs.prefetch,) if inputs.prefetch else PREFETCHES)
    ]
    return list(dict.fromkeys(steps))


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
    """Maximum over mean of the loads of expert ranks by chance, and seconds per step at stake.

    `seconds` begins at 0, because an exchange that is hidden behind compute costs nothing.
    """

    ranks: int
    chance: float
    seconds: ValueRange


def load_sensitivity(found: Prediction) -> LoadSensitivity | None:
    """The cost of the uneven loads of a job with expert parallelism: (penalty - 1) x the time of its exchanges."""
    job = found.job
    if job.ep == 1:
        return None
    copies = job.tokens_per_gpu * job.ep * job.model.chosen_experts
    chance = penalty(job.ep, chance_cv(job.ep, copies))
    exchange = sum(
        max(row.wire_seconds.high, row.nvlink_seconds.high) for row in found.sources if row.source == "experts"
    )
    return LoadSensitivity(job.ep, chance, ValueRange(0.0, (chance - 1) * exchange))
