"""The workloads by name, and those without layers that are gathered: constant, square, idle, expert parallelism.

Each is a model of a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from ibpulse.base.errors import ConfigError
from ibpulse.workbench.models.catalogue import SAMPLED_JOBS
from ibpulse.workbench.simulate.fsdp import DENSE, MOE
from ibpulse.workbench.simulate.predicted_job import PREFIX, PredictedJob
from ibpulse.workbench.simulate.timeline import LINE_BYTES_PER_SECOND, Step, Workload, build_step, even_weights

STEP_NS = 250_000_000
HALF_LINE = LINE_BYTES_PER_SECOND / 2


def _check_rate(name: str, rate_bytes_per_second: float) -> None:
    if not 0 <= rate_bytes_per_second <= LINE_BYTES_PER_SECOND:
        raise ConfigError(
            [
                f"{name}: a rate of {rate_bytes_per_second / 1e9:g} GB/s is not possible on a port of "
                f"{LINE_BYTES_PER_SECOND / 1e9:g} GB/s (400 Gb/s)"
            ]
        )


@dataclass(frozen=True, slots=True)
class Constant:
    """The same rate on every rail in both directions, without a pause. The default is half of 400 Gb/s."""

    rate_bytes_per_second: float = HALF_LINE
    name: str = field(default="constant", init=False)

    def __post_init__(self) -> None:
        _check_rate(self.name, self.rate_bytes_per_second)

    def step(self, rng: np.random.Generator) -> Step:
        """A quarter of a second at the rate."""
        # a rate given as an integer would overflow when it is added up
        return Step(np.array([STEP_NS]), np.array([float(self.rate_bytes_per_second)]))

    def weights(self, rails: int) -> npt.NDArray[np.float64]:
        """All rails alike."""
        return even_weights(rails)


@dataclass(frozen=True, slots=True)
class Idle:
    """No traffic at all."""

    name: str = field(default="idle", init=False)

    def step(self, rng: np.random.Generator) -> Step:
        """A quarter of a second of silence."""
        return Step(np.array([STEP_NS]), np.array([0.0]))

    def weights(self, rails: int) -> npt.NDArray[np.float64]:
        """All rails alike."""
        return even_weights(rails)


@dataclass(frozen=True, slots=True)
class Square:
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

    def weights(self, rails: int) -> npt.NDArray[np.float64]:
        """All rails alike."""
        return even_weights(rails)


@dataclass(frozen=True, slots=True)
class ExpertParallel:
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

    def weights(self, rails: int) -> npt.NDArray[np.float64]:
        """All rails alike."""
        return even_weights(rails)


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

    def weights(self, rails: int) -> npt.NDArray[np.float64]:
        """The shares of the stretched workload."""
        return self.workload.weights(rails)


@dataclass(frozen=True, slots=True)
class WorkloadEntry:
    """A workload on the command line: its constructor, its options, and a one-line description."""

    make: Callable[..., Workload]
    options: tuple[str, ...]
    text: str


WORKLOADS: Mapping[str, WorkloadEntry] = {
    "dense": WorkloadEntry(lambda: DENSE, (), "Qwen2.5-7B under FSDP on 2 nodes, 315 ms steps"),
    "moe": WorkloadEntry(lambda: MOE, (), "Mixtral-8x7B under FSDP on 2 nodes, 1,444 ms steps"),
    "expert-parallel": WorkloadEntry(ExpertParallel, (), "tokens routed between nodes in every layer, all rails"),
    "constant": WorkloadEntry(Constant, ("rate_bytes_per_second",), "a constant rate, by default half of 400 Gb/s"),
    "square": WorkloadEntry(
        Square, ("period_ns", "duty", "rate_bytes_per_second", "jitter"), "alternately busy and silent"
    ),
    "idle": WorkloadEntry(Idle, (), "no traffic"),
    **{
        PREFIX + job: WorkloadEntry(partial(PredictedJob.of, job), (), f"{job} as predicted by `ibpulse model`")
        for job in SAMPLED_JOBS
    },
}


def make_workload(name: str, **options: float | None) -> Workload:
    """The workload with that name; options that are None keep their defaults.

    Raises ConfigError for an unknown name, or an option that the workload does not have.
    """
    entry = WORKLOADS.get(name)
    if entry is None:
        raise ConfigError([f'unknown workload "{name}"; choose one of {", ".join(WORKLOADS)}'])
    given = {option: value for option, value in options.items() if value is not None}
    strange = [option for option in given if option not in entry.options]
    if strange:
        known = ", ".join(entry.options) or "none"
        raise ConfigError([f'workload "{name}" has no option "{option}": it has {known}' for option in strange])
    return entry.make(**given)
