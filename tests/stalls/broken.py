"""Jobs that stall because of a link, lost packets, one node, or all together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tests.stalls.material import NEVER, Case, Clock, Flow, LinkEvent, Node, Truth
from tests.stalls.training import (
    CHUNK,
    IN_FLIGHT,
    INF,
    Shape,
    Table,
    computation_times,
    cut_delays,
    incomplete,
    schedule,
)

CLOCKS = {"exact": (0.0, 100e-6), "ptp": (20e-6, 200e-6), "ntp": (1.5e-3, 6e-3), "poor": (25e-3, 100e-3)}
"""Standard deviation of a node's clock, and the bound that its daemon states; seconds."""
WRONG_CLOCK = 0.4
"""Offset in seconds of the one clock of the class `wrong`, whose daemon states the bound of `ntp`."""
VARIANTS = {
    "link": ("running", "waiting", "leaf"),
    "loss": ("out", "in", "both"),
    "node": ("hang", "gone", "died"),
    "together": ("running", "all"),
}
MAX_WIRE_SECONDS = 0.5
"""The longest collective: 20 GB on each rail."""
RETRIES = 7
"""Repetitions of a packet before a queue pair fails, as NCCL sets it."""


@dataclass(frozen=True)
class Plan:
    """What to break, and under which conditions.

    `steps` precede the stall, `quiet` seconds are recorded after it. `healed` seconds after the cause traffic
    returns. `storage` is where storage traffic goes on during the stall: none, apart, or on a rail. `exponent` is that
    of the acknowledgement timeout, 4.096 µs × 2^exponent. Queue pairs are counted if `connected`.
    """

    kind: str
    variant: str
    shape: Shape
    clocks: str = "ntp"
    storage: str = "none"
    lost_share: float = 0.0
    outage: bool = False
    counted: bool = True
    decoys: bool = False
    connected: bool = True
    steps: int = 40
    quiet: float = 100.0
    healed: float = NEVER
    exponent: int = 18

    @property
    def name(self) -> str:
        shape = self.shape
        return f"{self.kind}/{self.variant} {shape.topology} {shape.nodes} nodes {shape.step:g} s {self.clocks}"


class Stall:
    """One stalled job while it is made."""

    def __init__(self, plan: Plan, rng: np.random.Generator) -> None:
        self.plan, self.rng, self.shape = plan, rng, plan.shape
        shape = plan.shape
        self.rails = tuple(f"mlx5_{rail}:1" for rail in range(shape.rails))
        self.nodes = [Node(f"node{index:03d}", self.rails) for index in range(shape.nodes)]
        self.cause = int(rng.integers(shape.nodes))
        self.rail = int(rng.integers(shape.rails))
        self.spans: dict[tuple[int, int, str], list[tuple[float, float, float]]] = {}
        self.at = self._choose_operation()

    def make(self) -> Case:
        """The job, recorded from its first step to `quiet` seconds after its cause."""
        plan, shape = self.plan, self.shape
        times = computation_times(shape, self.at + 3 * shape.operations, self.rng)
        times[:, :: shape.operations] += 0.03 * shape.step  # the optimizer
        arrives, ends = schedule(shape, times)
        stopped = self._instant(arrives, ends)
        arrives, ends = self._broken(times)
        assert not np.isfinite(ends[:, -1]).any(), "some nodes go on"
        self._complete_operations(arrives, ends)
        self._last_operations(arrives, ends, stopped)
        end = stopped + plan.quiet
        if plan.healed < plan.quiet:
            self._resume(stopped + plan.healed, end)
        for (index, rail, way), spans in self.spans.items():
            self.nodes[index].job[self.rails[rail], way] = Flow.of(spans)
        for index, node in enumerate(self.nodes):
            node.present.append((0.0, NEVER))
            node.connected = [(0.0, NEVER)] if plan.connected else None
            node.clock = self._clock(index)
        truth = self._signs(stopped)
        self._surroundings(stopped, end)
        return Case(plan.name, self.nodes, 0.0, end, replace(truth, resumes=stopped + plan.healed))

    def _choose_operation(self) -> int:
        """The operation that does not end: one with a partner of the cause; the first of a step if all stop."""
        shape, first = self.shape, self.plan.steps * self.shape.operations
        if self.plan.variant == "all":
            return first
        fit = [
            index
            for index in range(first, first + shape.operations)
            if any(self.cause in group and len(group) > 1 for group in shape.groups(index))
        ]
        return int(self.rng.choice(fit))

    def _group(self, index: int) -> list[int]:
        return next(group for group in self.shape.groups(index) if self.cause in group)

    def _running(self) -> bool:
        """Whether the cause comes while the operation runs, or before it."""
        return self.plan.variant in ("running", "leaf", "out", "in", "both")

    def _instant(self, arrives: Table, ends: Table) -> float:
        """The true instant of the cause, from the times that the job would have had."""
        end = ends[self.cause, self.at]
        if self._running():
            return float(end - self.shape.wire * self.rng.uniform(0.05, 0.95))
        before = ends[self.cause, self.at - 1]
        latest = max(arrives[self.cause, self.at], before)
        return float(self.rng.uniform(before, latest))

    def _broken(self, times: Table) -> tuple[Table, Table]:
        """Arrivals and ends with the cause in them."""
        times = times.copy()
        if self.plan.variant == "all":
            times[:, self.at] = INF
        elif self.plan.kind == "node":
            times[self.cause, self.at] = INF
        else:
            return schedule(self.shape, times, broken={self.at: {self.cause}})
        return schedule(self.shape, times)

    def _span(self, index: int, rail: int, way: str, begin: float, end: float, volume: float) -> None:
        if volume > 0:
            self.spans.setdefault((index, rail, way), []).append((begin, end, volume))

    def _both_ways(self, index: int, rail: int, begin: float, end: float) -> None:
        volume = self.shape.rate * (end - begin)
        for way in ("sent", "received"):
            self._span(index, rail, way, begin, end - self.rng.uniform(0, 2e-4) * (end - begin > 1e-3), volume)

    def _complete_operations(self, arrives: Table, ends: Table, shift: float = 0.0) -> None:
        """Traffic of the operations that ended, with members finishing within 0.2 ms."""
        for operation in range(arrives.shape[1]):
            for group in self.shape.groups(operation):
                if len(group) < 2 or not np.isfinite(end := ends[group[0], operation]):
                    continue
                for index in group:
                    for rail in range(self.shape.rails):
                        self._both_ways(index, rail, end + shift - self.shape.wire, end + shift)

    def _last_operations(self, arrives: Table, ends: Table, stopped: float) -> None:
        """Traffic of the operations that never end."""
        for operation in range(self.at, arrives.shape[1]):
            for group in self.shape.groups(operation):
                if len(group) < 2 or np.isfinite(ends[group[0], operation]):
                    continue
                if operation == self.at and self.cause in group and self.plan.kind != "node":
                    if self.plan.variant != "all":
                        self._interrupted(group, arrives[:, operation], stopped)
                elif not np.isfinite(arrives[group, operation]).all():
                    for rail in range(self.shape.rails):
                        self._partial(group, arrives[:, operation], rail)

    def _partial(self, group: list[int], arrives: Table, rail: int) -> None:
        """What the arrived members still exchange on a rail; nothing reaches a member behind a broken one."""
        credit = 0.0 if rail == self.rail and self.plan.kind in ("link", "loss") else None
        sent, received = incomplete(self.shape, group, arrives, self.rng, credit=credit)
        for way, spans in (("sent", sent), ("received", received)):
            for index, span in spans.items():
                self._span(index, rail, way, *span)

    def _interrupted(self, group: list[int], arrives: Table, stopped: float) -> None:
        """The operation in which the cause comes: broken rails stop or never begin, the others carry it to its end."""
        begin = float(arrives[group].max())
        broken = range(self.shape.rails) if self.plan.kind == "together" else (self.rail,)
        for rail in range(self.shape.rails):
            if rail not in broken:
                for index in group:
                    self._both_ways(index, rail, begin, begin + self.shape.wire)
            elif self._running():
                delays = cut_delays(group, self.cause, self.rng)
                for index in group:
                    self._both_ways(index, rail, begin, min(stopped + delays[index], begin + self.shape.wire))
            else:
                missing = arrives.copy()
                missing[self.cause] = INF
                self._partial(group, missing, rail)

    def _resume(self, begin: float, end: float) -> None:
        """Traffic returns: as many steps as fit before the end of the recording."""
        steps = max(1, int((end - begin) / (1.1 * self.shape.step)))
        times = computation_times(self.shape, steps * self.shape.operations, self.rng)
        self._complete_operations(*schedule(self.shape, times), shift=begin)

    def _clock(self, index: int) -> Clock:
        if self.plan.clocks == "unknown":
            return Clock(float(self.rng.normal(0, 0.05)), None)
        if self.plan.clocks == "wrong":
            spread, bound = CLOCKS["ntp"]
            others = index != (self.cause + 1) % self.shape.nodes
            return Clock(float(self.rng.normal(0, spread)) if others else -WRONG_CLOCK, bound)
        spread, bound = CLOCKS[self.plan.clocks]
        return Clock(float(np.clip(self.rng.normal(0, spread), -bound, bound)), bound)

    def _signs(self, stopped: float) -> Truth:
        """Link events and timeouts of the cause, and the truth."""
        plan, cause, rail = self.plan, self.nodes[self.cause], self.rails[self.rail]
        truth = Truth(plan.kind, plan.variant, (cause.name,), (rail,), (cause.name,), stopped)
        group = self._group(self.at)
        before = self.nodes[group[group.index(self.cause) - 1]]
        if plan.kind == "together":
            return replace(truth, nodes=(), rails=(), affected=())
        if plan.kind == "node":
            affected = self._end_node(cause, before, stopped) if plan.variant != "hang" else truth.affected
            return replace(truth, rails=(), affected=affected)
        peers = [self.nodes[index] for index in group if index != self.cause]
        senders = peers if self.shape.topology == "all-to-all" else [before]
        if plan.kind == "link":
            down = [cause, *peers] if plan.variant == "leaf" else [cause]
            for node in down:
                self._link_down(node, rail, stopped)
                self._time_out(node, rail, stopped, repeats=False)
            for node in senders if plan.variant != "leaf" else ():
                self._time_out(node, rail, stopped)
            names = tuple(node.name for node in down)
            return replace(truth, nodes=names, affected=(*names, *(node.name for node in senders)))
        repeating = ([cause] if plan.variant in ("out", "both") else []) + (
            senders if plan.variant in ("in", "both") else []
        )
        for node in repeating:
            self._time_out(node, rail, stopped)
        return replace(truth, affected=tuple(node.name for node in repeating))

    def _end_node(self, cause: Node, before: Node, stopped: float) -> tuple[str, ...]:
        """A node without power, or one whose process died; the nodes on which its signs may be seen."""
        if self.plan.variant == "gone":
            cause.answers = [(-NEVER, stopped)]
        elif cause.connected:
            # the kernel destroys what the process had
            cause.connected = [(0.0, stopped + self.rng.uniform(0.05, 2.0))]
        for port in self.rails:
            self._time_out(before, port, stopped)
        return cause.name, before.name

    def _link_down(self, node: Node, port: str, stopped: float) -> None:
        """A daemon that looks at states every second at most, on its own clock; the carrier takes up to 50 ms."""
        for instant, up in ((stopped, False), (stopped + self.plan.healed - 1, True)):
            if np.isfinite(instant):
                changed = instant + self.rng.uniform(0, 0.05) + node.clock.offset
                period = self.rng.uniform(0.1, 1.0)
                noticed = changed + self.rng.uniform(0, period)
                node.links.append(LinkEvent(port, up, noticed - period, noticed))

    def _time_out(self, node: Node, port: str, stopped: float, *, repeats: bool = True) -> None:
        """Timeouts of the queue pairs of a port until they fail or heal; each repeats what is in flight."""
        pairs, timeout = int(self.rng.integers(1, 5)), 4.096e-6 * 2**self.plan.exponent * self.rng.uniform(1.0, 1.5)
        instants = stopped + timeout * np.arange(1, RETRIES + 2)
        instants = instants[instants < stopped + min(self.plan.quiet, self.plan.healed)]
        volume = float(np.exp(self.rng.uniform(np.log(CHUNK / 8), np.log(IN_FLIGHT))))
        if repeats:
            spans = [(at + 1e-5, at + 1e-5 + volume / self.shape.rate, volume) for at in instants[:RETRIES]]
            node.add(port, "sent", spans)
        if node.timeouts is not None:
            each = (instants[:, None] + self.rng.uniform(0, 2e-3, (len(instants), pairs))).ravel()
            node.timeouts[port] = np.sort(np.concatenate((node.timeouts.get(port, np.zeros(0)), each)))

    def _surroundings(self, stopped: float, end: float) -> None:
        """Storage traffic, management packets, lost samples, and signs of former faults that healed."""
        plan, rng = self.plan, self.rng
        for node in self.nodes:
            for port in node.rails:
                for at in np.arange(rng.uniform(0, 30), end, 30.0):
                    node.add(port, "sent", [(at, at + 1e-6, 288.0)])
                    node.add(port, "received", [(at - 1e-5, at - 0.9e-5, 288.0)])
            if plan.storage != "none":
                port = node.rails[0] if plan.storage == "rail" else node.storage[0]
                begin = rng.uniform(0, 1)
                node.add(port, "received", [(begin, end, rng.uniform(0.2e9, 2e9) * (end - begin))])
            node.lost_share = plan.lost_share
            if plan.outage and rng.random() < 0.3:
                lost = stopped + rng.uniform(-3, 1)
                node.lost.append((lost, lost + rng.uniform(0.5, 4)))
            if not plan.counted:
                node.timeouts = None
        if plan.decoys:
            self._decoys(stopped)

    def _decoys(self, stopped: float) -> None:
        """A rail that flapped and recovered, a storage link that fails now, and a few timeouts while traffic ran."""
        rng, chosen = self.rng, self.nodes[int(self.rng.integers(len(self.nodes)))]
        down = rng.uniform(0.2, 0.6) * stopped
        chosen.links += [LinkEvent(chosen.rails[-1], up, at - 0.5, at) for at, up in ((down, False), (down + 1, True))]
        chosen.links.append(LinkEvent(chosen.storage[0], False, stopped - 0.7, stopped - 0.2))
        if chosen.timeouts is not None:
            few = np.sort(rng.uniform(0, stopped - 0.1, 3))
            known = chosen.timeouts.get(chosen.rails[0], np.zeros(0))
            chosen.timeouts[chosen.rails[0]] = np.sort(np.concatenate((known, few)))
        for node in self.nodes:
            node.links.sort(key=lambda event: event.noticed)


def make(plan: Plan, seed: int) -> Case:
    """A stalled job; the same for the same plan and seed."""
    return Stall(plan, np.random.default_rng(seed)).make()


def plans(seed: int, count: int) -> Iterator[Plan]:
    """Plans of all kinds in turn, each with conditions drawn at random."""
    rng, connecting = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    kinds = [(kind, variant) for kind, variants in VARIANTS.items() for variant in variants]
    for index in range(count):
        kind, variant = kinds[index % len(kinds)]
        topology = str(rng.choice(["ring", "all-to-all", "pipeline", "shards"]))
        step, share = float(rng.choice([0.3, 1.0, 3.0, 10.0])), float(rng.uniform(0.15, 0.97))
        least = max(4 if topology == "pipeline" else 2, math.ceil(step * share / MAX_WIRE_SECONDS))
        shape = Shape(
            nodes=int(rng.choice([2, 4, 8, 16, 32])),
            topology=topology,
            rails=int(rng.choice([1, 2, 4, 8])),
            step=step,
            operations=least * int(rng.choice([1, 2])),
            share=share,
            ahead=int(rng.choice([1, 2])),
            spread=float(rng.choice([0.01, 0.02, 0.09])),
        )
        yield Plan(
            kind,
            variant,
            shape,
            clocks=str(rng.choice([*CLOCKS, "wrong", "unknown"], p=[0.2, 0.2, 0.35, 0.1, 0.05, 0.1])),
            storage=str(rng.choice(["none", "apart", "rail"], p=[0.5, 0.4, 0.1])),
            lost_share=float(rng.choice([0.0, 0.01, 0.2])),
            outage=bool(rng.random() < 0.15),
            counted=bool(rng.random() < 0.85),
            decoys=bool(rng.random() < 0.3),
            connected=bool(connecting.random() < 0.85),
            steps=int(rng.choice([3, math.ceil(40 / step), 25 + math.ceil(60 / step)])),
            healed=float(rng.choice([NEVER, 20.0], p=[0.8, 0.2])),
            exponent=int(rng.choice([16, 18, 20])),
        )
