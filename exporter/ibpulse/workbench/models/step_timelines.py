"""When a node of a job sends within a step: one time line per reading of what is unknown.

A fully sharded step has two streams. All traffic of another one is taken as a single burst at the full rate, the most
uneven case. Steps with other traffic than parameters and gradients on the wire have no time line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ibpulse.workbench.models.sampled_load import Span
from ibpulse.workbench.models.step_time import Utilisation
from ibpulse.workbench.models.traffic_sources import Flow
from ibpulse.workbench.models.training_job import FULLY_SHARDED, Reading, TrainingJob
from ibpulse.workbench.models.two_streams import ShardedStep, fit_step
from ibpulse.workbench.models.wire_timing import Hardware

PREFETCHES = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class StepInputs:
    """How long a step takes, or what that follows from; `prefetch` None is a range over 1 to 3."""

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
    found = [_fitted(step, period) for step in steps]
    fitting_lines = tuple(line for line in found if line is not None)
    if len(fitting_lines) == len(steps):
        return fitting_lines, ()
    return fitting_lines, ("readings whose collectives take longer than the step are left out of the samples",)


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


def _fitted(step: ShardedStep, period: float) -> StepTimeline | None:
    try:
        spans, _ = fit_step(step, period)
    except ValueError:
        return None
    return StepTimeline(period, tuple(spans))
