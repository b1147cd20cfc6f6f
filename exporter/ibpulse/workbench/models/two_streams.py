"""A fully sharded (FSDP, ZeRO-3) step as two streams: one of compute, one of collectives.

An all-gather may run `prefetch` units ahead of the compute. Backward goes through the units in reverse: gather,
compute, and the reduce-scatter of the gradients, which waits behind the gather of the next unit. Nothing is fitted but
the compute time, which is chosen such that the step has the given length.
"""

from __future__ import annotations

from dataclasses import dataclass

from ibpulse.workbench.models.sampled_load import Span

MOST_TRIES = 60
PRECISION = 1e-12
"""Of the length of a step."""


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

    @property
    def wire_seconds(self) -> float:
        """Seconds of all collectives: two gathers and one reduce-scatter per unit."""
        return 3 * self.units * self.gather_seconds

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
        raise ValueError(
            f"{seconds * 1e3:.4g} ms is shorter than its collectives at the full rate of all rails, "
            f"{step.wire_seconds * 1e3:.4g} ms; check the step time, the rails and the algorithm"
        )
    low, high = 0.0, seconds
    below, above = least - seconds, step.lay_out(seconds)[1] - seconds
    found, compute = step.lay_out(low), low
    for _ in range(MOST_TRIES):
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
