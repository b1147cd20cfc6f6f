"""The workloads by name, each a model of a schedule: FSDP, expert parallelism, predicted jobs, and simple waves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ibpulse.base.errors import ConfigError
from ibpulse.base.values import GivenText
from ibpulse.core.arrays import Floats
from ibpulse.workbench.models.catalogue import SAMPLED_JOBS
from ibpulse.workbench.models.inputs import JobFile, read_inputs
from ibpulse.workbench.models.prediction import predict
from ibpulse.workbench.simulate.timeline import (
    LINE_BYTES_PER_SECOND,
    NODE_RAILS,
    Step,
    Workload,
    build_step,
    even_weights,
)

BYTES_PER_PARAMETER = 2
CAPTURED_RAILS = 7
"""Rails of a node that carry traffic in the published capture."""
PREFIX = "model:"
# as in the published capture
FIRST_IDLE_RAIL = 6
STEP_NS = 250_000_000
HALF_LINE = LINE_BYTES_PER_SECOND / 2


class _EqualRails:
    """A workload with equal shares on all rails."""

    __slots__ = ()

    def weights(self, rails: int) -> Floats:
        """The share of each rail, transmit and receive: (rails, 2)."""
        return even_weights(rails)


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of the model that is gathered as one. `active` counts the parameters that compute for each token.

    A `kept` unit (the root) stays whole after the forward pass and is not gathered again.
    """

    parameters: float
    active: float
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Fsdp(_EqualRails):
    """A fully sharded (FSDP) training job over `ranks` GPUs, eight to a node, one rail each, as the network sees it.

    Forward: every unit (a layer, the embedding, the head) is gathered, then computed; a few gathers run ahead.
    Backward, in reverse: the unit is gathered again and computed, then its gradient is reduce-scattered. With
    activation checkpointing (`recompute`) the unit is first recomputed, and only then the gather of the next one is
    issued. At the end the host takes its time: optimizer, synchronisation, loader.

    Physics, from the model and the hardware: the parameters of each unit; the bytes of a ring collective, which a node
    sends and receives once: 2 bytes per parameter x (ranks - 1) / ranks; three collectives per unit and step, two for
    the root; the line rate, which no port passes.

    Fitted, so that a minute of the model shows what the published capture shows: `forward_seconds`, the forward compute
    of all units (backward takes twice that, and `recompute` adds it once more); `collective_bytes_per_second`, the
    speed of a node's `CAPTURED_RAILS` in one direction (a reduce-scatter, which must also add, is `scatter_slowness`
    times slower); the tail, the gathers that run ahead, the jitter, and `wire_fraction`. The last is needed because the
    capture carries fewer bytes than the ring predicts, 74 % (dense) and 91 % (MoE) when its mean and its duty cycle are
    multiplied; the reason is unknown. In the capture, one of eight rails is idle. Here each rail carries what a busy
    one carries there, so a healthy node of eight carries 8/7 of the capture, and one with the fault `idle-rail` the
    same.

    The capture's own reading of its MoE run, bright bands made by expert routing, does not hold: that run had no expert
    parallelism, and the gathers of its ten times larger layers explain the bytes and the burstiness. `ExpertParallel`
    is the model of a job that does route tokens between nodes.
    """

    name: str
    units: tuple[Unit, ...]
    ranks: int
    recompute: bool
    gathers_ahead: int
    forward_seconds: float
    tail_seconds: float
    collective_bytes_per_second: float
    scatter_slowness: float
    latency_seconds: float
    wire_fraction: float
    compute_jitter: float
    speed_jitter: float

    def step(self, rng: np.random.Generator) -> Step:
        """One training step with its own compute times and collective speeds."""
        return _Streams(self, rng).run()

    def ring_bytes(self, parameters: float) -> float:
        """Bytes that a node sends, and receives, in one ring collective over all ranks."""
        return parameters * BYTES_PER_PARAMETER * (self.ranks - 1) / self.ranks

    @property
    def step_bytes(self) -> float:
        """Bytes that `CAPTURED_RAILS` send in one step, after `wire_fraction`."""
        gathered = sum(unit.parameters * (2 if unit.kept else 3) for unit in self.units)
        return self.ring_bytes(gathered) * self.wire_fraction


class _Streams:
    """The two streams of one step while it is laid out. Times are seconds since the step began."""

    def __init__(self, model: Fsdp, rng: np.random.Generator) -> None:
        self.model = model
        count = len(model.units)
        active = np.array([unit.active for unit in model.units])
        share = active / active.sum() * model.forward_seconds
        jitter = np.maximum(0.2, 1 + model.compute_jitter * rng.standard_normal((3, count)))
        self.forward, self.again, self.backward = (share * jitter).tolist()
        self.slowness = (1 + model.speed_jitter * np.abs(rng.standard_normal(3 * count))).tolist()
        self.tail = model.tail_seconds * max(0.2, 1 + model.compute_jitter * float(rng.standard_normal()))
        self.spans: list[tuple[float, float, float]] = []
        self.network_free = 0.0

    def run(self) -> Step:
        end = self._run_backward(self._run_forward())
        return build_step(self.spans, max(end, self.network_free) + self.tail)

    def _run_forward(self) -> float:
        """Lay out the forward pass; return the time at which its compute ends."""
        ahead = self.model.gathers_ahead
        begun: list[float] = []
        free = 0.0
        for unit, compute in enumerate(self.forward):
            ready = self._send(unit, begun[unit - ahead] if unit >= ahead else 0.0)
            begun.append(max(free, ready))
            free = begun[-1] + compute
        return free

    def _run_backward(self, begin: float) -> float:
        """Lay out the backward pass from `begin`; return the time at which its compute ends."""
        last = len(self.model.units) - 1
        free, ready = begin, self._gather_again(last, begin)
        for unit in range(last, -1, -1):
            computing = max(free, ready) + (self.again[unit] if self.model.recompute else 0.0)
            ready = self._gather_again(unit - 1, computing)
            free = computing + 2 * self.backward[unit]
            self._send(unit, free, self.model.scatter_slowness)
        return free

    def _gather_again(self, unit: int, issued: float) -> float:
        return issued if unit < 0 or self.model.units[unit].kept else self._send(unit, issued)

    def _send(self, unit: int, issued: float, slowness: float = 1.0) -> float:
        """Put one gather or reduce-scatter on the network when it is free; return the time at which it is done."""
        model = self.model
        sent = model.ring_bytes(model.units[unit].parameters) * model.wire_fraction
        if sent == 0:
            return issued
        speed = model.collective_bytes_per_second / (slowness * self.slowness[len(self.spans)])
        begin = max(issued, self.network_free) + model.latency_seconds
        self.network_free = begin + sent / speed
        self.spans.append((begin, self.network_free, speed / CAPTURED_RAILS))
        return self.network_free


DENSE = Fsdp(
    name="dense",
    units=(Unit(0.822e9, 0, kept=True), Unit(0.545e9, 0), *[Unit(0.2037e9, 0.2331e9)] * 28, Unit(0.545e9, 0.3e9)),
    ranks=16,
    recompute=False,
    gathers_ahead=1,
    forward_seconds=0.0655,
    tail_seconds=0.090,
    collective_bytes_per_second=235e9,
    scatter_slowness=1.25,
    latency_seconds=0.00005,
    wire_fraction=0.769,
    compute_jitter=0.04,
    speed_jitter=0.02,
)
"""Qwen2.5-7B on 2 nodes of 8 GPUs, 2048 tokens per GPU, 315 ms steps.

Units as created by wrapping by size (1e8 parameters): the rest in the root, the embedding, 28 MLPs, the head.
"""

MOE = Fsdp(
    name="moe",
    units=(Unit(0.262e9, 0, kept=True), *[Unit(1.4513e9, 0.3943e9)] * 32, Unit(0, 0.131e9)),
    ranks=16,
    recompute=True,
    gathers_ahead=1,
    forward_seconds=0.3515,
    tail_seconds=0.015,
    collective_bytes_per_second=332e9,
    scatter_slowness=1.5,
    latency_seconds=0.00005,
    wire_fraction=0.91,
    compute_jitter=0.1,
    speed_jitter=0.02,
)
"""Mixtral-8x7B on 2 nodes of 8 GPUs, 2048 tokens per GPU, activation checkpointing, 1,444 ms steps.

One unit per decoder layer; embedding and head stay in the root.
"""


@dataclass(frozen=True, slots=True)
class PredictedJob:
    """The time line of a node, on as many rails of eight as the job uses; a rail carries an equal share."""

    name: str
    period_seconds: float
    spans: tuple[tuple[float, float, float], ...] = field(repr=False)
    idle_rails: tuple[int, ...]

    @classmethod
    def of(cls, job: str) -> PredictedJob:
        """The published job of that name, whose traffic within a step is predicted."""
        inputs = read_inputs({"job": GivenText(job, f"{PREFIX}{job}")}, JobFile())
        found = predict(inputs.job, inputs.hardware, inputs.step)
        (line,) = found.timelines
        rails = inputs.hardware.rails
        idle = tuple((FIRST_IDLE_RAIL + at) % NODE_RAILS for at in range(NODE_RAILS - rails))
        spans = tuple((begin, end, rate / rails) for begin, end, rate in line.spans)
        return cls(PREFIX + job, line.period, spans, idle)

    def step(self, rng: np.random.Generator) -> Step:
        """One step, always the same."""
        return build_step(list(self.spans), self.period_seconds)

    def weights(self, rails: int) -> Floats:
        """Equal shares on all rails except the idle ones."""
        return even_weights(rails, self.idle_rails)


def _check_rate(name: str, rate_bytes_per_second: float) -> None:
    if not 0 <= rate_bytes_per_second <= LINE_BYTES_PER_SECOND:
        raise ConfigError(
            [
                f"{name}: a rate of {rate_bytes_per_second / 1e9:g} GB/s is not possible on a port of "
                f"{LINE_BYTES_PER_SECOND / 1e9:g} GB/s (400 Gb/s)"
            ]
        )


@dataclass(frozen=True, slots=True)
class Constant(_EqualRails):
    """The same rate on every rail in both directions, without a pause. The default is half of 400 Gb/s."""

    rate_bytes_per_second: float = HALF_LINE
    name: str = field(default="constant", init=False)

    def __post_init__(self) -> None:
        _check_rate(self.name, self.rate_bytes_per_second)

    def step(self, rng: np.random.Generator) -> Step:
        """A quarter of a second at the rate."""
        # a rate given as an integer would overflow when it is added up
        return Step(np.array([STEP_NS]), np.array([float(self.rate_bytes_per_second)]))


@dataclass(frozen=True, slots=True)
class Idle(_EqualRails):
    """No traffic at all."""

    name: str = field(default="idle", init=False)

    def step(self, rng: np.random.Generator) -> Step:
        """A quarter of a second of silence."""
        return Step(np.array([STEP_NS]), np.array([0.0]))


@dataclass(frozen=True, slots=True)
class Square(_EqualRails):
    """Busy for `duty` of every `period_ns`, silent for the rest; begins busy.

    `jitter` is the relative standard deviation of each busy time and each gap; 0 makes the wave exact.
    """

    period_ns: int = 100_000_000
    duty: float = 0.5
    rate_bytes_per_second: float = HALF_LINE
    jitter: float = 0.0
    name: str = field(default="square", init=False)

    def __post_init__(self) -> None:
        if self.period_ns < 2 or not 0 < self.duty < 1:
            raise ConfigError(
                [f"square: period {self.period_ns} ns, duty {self.duty}: give a period and a duty between 0 and 1"]
            )
        _check_rate(self.name, self.rate_bytes_per_second)

    def step(self, rng: np.random.Generator) -> Step:
        """As many periods as fill a quarter of a second."""
        count = max(1, STEP_NS // self.period_ns)
        busy_ns = round(self.period_ns * self.duty)
        mean = np.tile(np.array([busy_ns, self.period_ns - busy_ns]), count)
        factor = np.maximum(0.1, 1 + self.jitter * rng.standard_normal(mean.size))
        durations = np.maximum(1, np.rint(mean * factor)).astype(np.int64)
        return Step(durations, np.tile(np.array([self.rate_bytes_per_second, 0.0]), count))


@dataclass(frozen=True, slots=True)
class ExpertParallel(_EqualRails):
    """Tokens routed between nodes: in each layer a dispatch (FP8) and a combine (BF16), all-to-all, on every rail.

    Physics, of a DeepSeek-V3 layer over 64 GPUs on 8 nodes, each token sent to at most four nodes: bytes per GPU =
    tokens x 4 x 7/8 x hidden, in one byte plus scales (dispatch) or two (combine). The times are those of a published
    training profile: dispatch 3.1-4.6 ms, combine 5.9-6.6 ms, eight pairs in 129 ms. Fitted: where the pauses lie.
    """

    tokens: int = 4096
    hidden: int = 7168
    layers: int = 8
    dispatch_seconds: tuple[float, float] = (0.0031, 0.0046)
    combine_seconds: tuple[float, float] = (0.0059, 0.0066)
    pauses_seconds: tuple[float, float] = (0.0020, 0.0040)
    jitter: float = 0.1
    name: str = field(default="expert-parallel", init=False)

    def step(self, rng: np.random.Generator) -> Step:
        """One micro-batch forward and one backward, overlapped, through four layers."""
        spans: list[tuple[float, float, float]] = []
        now = 0.0
        copies = self.tokens * self.hidden * 4 * 7 / 8
        for _ in range(self.layers):
            for sent, time, pause in (
                (copies * (1 + 4 / 128), self.dispatch_seconds, self.pauses_seconds[0]),
                (copies * 2, self.combine_seconds, self.pauses_seconds[1]),
            ):
                took = float(rng.uniform(*time))
                spans.append((now, now + took, sent / took))
                now += took + pause * max(0.1, 1 + self.jitter * float(rng.standard_normal()))
        return build_step(spans, now)


@dataclass(frozen=True, slots=True)
class Stretched:
    """Another workload that takes `factor` times as long for the same bytes; longer where the line rate demands it."""

    workload: Workload
    factor: float

    @property
    def name(self) -> str:
        """The name of the stretched workload."""
        return self.workload.name

    def step(self, rng: np.random.Generator) -> Step:
        """A step of the stretched workload, longer and slower."""
        step = self.workload.step(rng)
        moved = step.rates_bytes_per_second * step.durations_ns
        least = np.ceil(moved / LINE_BYTES_PER_SECOND)
        durations = np.maximum(np.maximum(1, least), np.rint(step.durations_ns * self.factor)).astype(np.int64)
        return Step(durations, moved / durations)

    def weights(self, rails: int) -> Floats:
        """The shares of the stretched workload."""
        return self.workload.weights(rails)


WORKLOADS: Mapping[str, tuple[Callable[..., Workload], tuple[str, ...]]] = {
    "dense": (lambda: DENSE, ()),
    "moe": (lambda: MOE, ()),
    "expert-parallel": (ExpertParallel, ()),
    "constant": (Constant, ("rate_bytes_per_second",)),
    "square": (Square, ("period_ns", "duty", "rate_bytes_per_second", "jitter")),
    "idle": (Idle, ()),
    **{PREFIX + job: (partial(PredictedJob.of, job), ()) for job in SAMPLED_JOBS},
}
"""Constructors by the names on the command line, each with its options."""


def make_workload(name: str, **options: float | None) -> Workload:
    """The workload with that name; options that are None keep their defaults.

    Raises ConfigError for an unknown name, or an option that the workload does not have.
    """
    if name not in WORKLOADS:
        raise ConfigError([f'unknown workload "{name}"; choose one of {", ".join(WORKLOADS)}'])
    make, allowed = WORKLOADS[name]
    given = {option: value for option, value in options.items() if value is not None}
    strange = [option for option in given if option not in allowed]
    if strange:
        known = ", ".join(allowed) or "none"
        raise ConfigError([f'workload "{name}" has no option "{option}": it has {known}' for option in strange])
    return make(**given)
