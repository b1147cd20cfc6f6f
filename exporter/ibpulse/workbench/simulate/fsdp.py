"""A fully sharded (FSDP) training step as the network sees it: two streams, one of compute and one of collectives.

Forward: every unit (a layer, the embedding, the head) is gathered, then computed; a few gathers run ahead.
Backward, in reverse: the unit is gathered again and computed, then its gradient is reduce-scattered. With activation
checkpointing the unit is first recomputed, and only then the gather of the next one is issued. At the end the host
takes its time: optimizer, synchronisation, loader.

Physics, from the model and the hardware: the parameters of each unit; the bytes of a ring collective, which a node
sends and receives once: 2 bytes per parameter x (ranks - 1) / ranks; three collectives per unit and step, two for the
root; the line rate, which no port passes.

Fitted, so that a minute of the model shows what the published capture shows: the speed of a collective, the time of
the compute, the tail, the gathers that run ahead, the jitter, and `wire_fraction`. The last is needed because the
capture carries fewer bytes than the ring predicts, 74 % (dense) and 91 % (MoE) when its mean and its duty cycle are
multiplied; the reason is unknown. In the capture, one of eight rails is idle. Here each rail carries what a busy one
carries there, so a healthy node of eight carries 8/7 of the capture, and one with the fault `idle-rail` the same.

The capture's own reading of its MoE run, bright bands made by expert routing, does not hold: that run had no expert
parallelism, and the gathers of its ten times larger layers explain the bytes and the burstiness. `expert-parallel`
is the model of a job that does route tokens between nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.workbench.simulate.timeline import Step, build_step, even_weights

BYTES_PER_PARAMETER = 2
CAPTURED_RAILS = 7
"""Rails of a node that carry traffic in the published capture."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of the model that is gathered as one. `active` counts the parameters that compute for each token.

    A `kept` unit (the root) stays whole after the forward pass and is not gathered again.
    """

    parameters: float
    active: float
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Fsdp:
    """A training job under FSDP over `ranks` GPUs, eight to a node, one rail each; the module lists the fitted values.

    `forward_seconds` is the forward compute of all units; backward takes twice that, and `recompute` adds it once
    more. `collective_bytes_per_second` is the speed of a node's `CAPTURED_RAILS` in one direction; a reduce-scatter,
    which must also add, is `scatter_slowness` times slower.
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

    def weights(self, rails: int) -> npt.NDArray[np.float64]:
        """Equal shares on all rails."""
        return even_weights(rails)

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
