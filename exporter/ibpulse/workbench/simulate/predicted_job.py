"""A published job as `ibpulse model` predicts it: every step the same, with no jitter and nothing fitted."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ibpulse.base.values import GivenText
from ibpulse.workbench.models.inputs import JobFile, read_inputs
from ibpulse.workbench.models.prediction import predict
from ibpulse.workbench.simulate.timeline import NODE_RAILS, Step, build_step, even_weights

PREFIX = "model:"
# as in the published capture
FIRST_IDLE_RAIL = 6


@dataclass(frozen=True, slots=True)
class PredictedJob:
    """The time line of a node, on as many rails of eight as the job uses; a rail carries an equal share."""

    name: str
    period_seconds: float
    spans: tuple[tuple[float, float, float], ...] = field(repr=False)
    idle_rails: tuple[int, ...]

    @classmethod
    def of(cls, job: str) -> PredictedJob:
        """The published job of that name, whose traffic within a step is predicted.

        Raises:
            ConfigError: there is no such job.
        """
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

    def weights(self, rails: int) -> npt.NDArray[np.float64]:
        """Equal shares on all rails except the idle ones."""
        return even_weights(rails, self.idle_rails)
