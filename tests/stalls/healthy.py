"""Jobs that never stall, for hours: steps, checkpoints, evaluations, restarts and changes of size.

Nodes share the spans of their steps, so that an hour costs thousands of numbers and not millions of samples. Bytes
that only some nodes exchange during a pause are added to these. Durations follow published work: asynchronous
checkpoints block for seconds, synchronous ones to remote storage for minutes (ByteCheckpoint), compilation and
initialisation take up to minutes, elastic jobs form anew within a minute or two. A job that starts again or forms anew
destroys its queue pairs: processes that stay abort their communicators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.stalls.broken import CLOCKS
from tests.stalls.material import NEVER, Case, Clock, Flow, LinkEvent, Node, Pause, Truth
from tests.stalls.training import Shape, incomplete

REASONS = {
    # reason: seconds at least, seconds at most, nodes that are busy while the others wait
    "checkpoint-async": (0.5, 3.0, "all"),
    "checkpoint-local": (5.0, 40.0, "all"),
    "checkpoint-remote": (15.0, 240.0, "all"),
    "checkpoint-one-replica": (10.0, 90.0, "some"),
    "evaluation-all": (5.0, 25.0, "all"),
    "evaluation-one": (20.0, 300.0, "one"),
    "data-late-all": (2.0, 20.0, "all"),
    "data-late-one": (1.0, 8.0, "one"),
    "restart": (40.0, 600.0, "all"),
    "elastic": (20.0, 120.0, "all"),
}
COUNTED = 0.85
"""The share of jobs on whose nodes the kernel tells how many queue pairs there are."""
TOKEN = 4096.0
"""Bytes with which a waiting node enters a barrier."""


@dataclass(frozen=True)
class Habits:
    """When a job pauses: mean seconds between the pauses of each reason, and how the job begins and ends.

    The first checkpoint and the first evaluation take up to twice as long as the later ones. `last` is the reason of
    the pause before the end, or empty; `lingers` is the time for which processes remain after it.
    """

    hours: float
    every: dict[str, float]
    compiles: float = 60.0
    last: str = "checkpoint-remote"
    lingers: float = 5.0
    storage_on_rails: bool = False


class Run:
    """One healthy job while it is made."""

    def __init__(self, name: str, shape: Shape, habits: Habits, seed: int) -> None:
        self.name, self.shape, self.habits, self.rng = name, shape, habits, np.random.default_rng(seed)
        # connections do not change what is drawn for the rest
        self.connecting = np.random.default_rng([seed, 1])
        rails = tuple(f"mlx5_{rail}:1" for rail in range(shape.rails))
        spread, bound = CLOCKS["ntp"]
        self.nodes = [Node(f"node{index:03d}", rails) for index in range(shape.nodes)]
        counted = bool(self.connecting.random() < COUNTED)
        for node in self.nodes:
            node.clock = Clock(float(np.clip(self.rng.normal(0, spread), -bound, bound)), bound)
            node.present.append((0.0, NEVER))
            node.connected = [(0.0, NEVER)] if counted else None
        self.shared: list[np.ndarray] = []
        self.apart: dict[tuple[int, str], list[tuple[float, float, float]]] = {}
        self.absent: dict[int, list[tuple[float, float]]] = {}
        self.pauses: list[Pause] = []
        self.lengths: dict[str, float] = {}
        self.barrier = bool(self.rng.random() < 0.5)

    def make(self) -> Case:
        """The job from its start, when its processes open the devices, to its end."""
        now = self._initialise(self.rng.uniform(2, 20))
        for at, reason in self._plan():
            if at > now:
                now = self._steps(now, at)
            if now >= self.habits.hours * 3600:
                break
            now = self._pause(now, reason)
        end = self._finish(now)
        self._share_out()
        self._harmless_signs(end)
        truth = Truth("healthy", ends=end, pauses=self.pauses)
        return Case(self.name, self.nodes, 0.0, end + 30, truth)

    def _plan(self) -> list[tuple[float, str]]:
        """Instants of the pauses: checkpoints and evaluations are regular, the rest comes at random."""
        end, plan = self.habits.hours * 3600, [(self.habits.hours * 3600, "")]
        for reason, every in self.habits.every.items():
            if reason.startswith(("checkpoint", "evaluation")):
                plan += [(at, reason) for at in np.arange(every, end, every)]
            else:
                plan += [(at, reason) for at in np.cumsum(self.rng.exponential(every, int(3 * end / every) + 3))]
        return sorted((float(at), reason) for at, reason in plan if at <= end)

    def _initialise(self, now: float) -> float:
        """Connections are made, parameters are broadcast, and the first step compiles."""
        size = self.rng.uniform(0.1e9, 4e9)
        self.shared.append(np.array([(now, now + 0.05, 2e5), (now + 0.5, now + 0.5 + size / self.shape.rate, size)]))
        begin = now + 0.5 + size / self.shape.rate
        end = begin + self.habits.compiles * self.rng.uniform(0.5, 1.5)
        self.pauses.append(Pause(begin, end, "first-step"))
        return end

    def _steps(self, begin: float, end: float) -> float:
        """Whole steps until an instant; one in a thousand takes up to three times as long."""
        shape, rng = self.shape, self.rng
        count = max(1, int(np.ceil((end - begin) / shape.step)))
        slow = np.where(rng.random(count) < 1e-3, rng.uniform(1.2, 3.0, count), 1.0)
        silent = shape.step * (1 - shape.share) / shape.operations * np.exp(rng.normal(0, shape.spread, count)) * slow
        wire = np.full(count, shape.wire)
        silent, wire = np.repeat(silent, shape.operations), np.repeat(wire, shape.operations)
        ends = begin + np.cumsum(silent + wire)
        self.shared.append(np.column_stack((ends - wire, ends, wire * shape.rate)))
        return float(ends[-1])

    def _pause(self, now: float, reason: str) -> float:
        """One pause; the length of a job's later pauses of a reason is that of the first within a fifth."""
        if not reason:
            return now
        shortest, longest, _ = REASONS[reason]
        first = reason not in self.lengths
        usual = self.lengths.setdefault(reason, float(np.exp(self.rng.uniform(np.log(shortest), np.log(longest)))))
        if reason.startswith(("checkpoint", "evaluation")):
            length = usual * (self.rng.uniform(1.0, 2.0) if first else self.rng.uniform(0.8, 1.2))
        else:
            length = float(np.exp(self.rng.uniform(np.log(shortest), np.log(longest))))
        end = now + length
        self.pauses.append(Pause(now, end, reason))
        if reason in ("restart", "elastic"):
            return self._reform(now, end, reason)
        self._busy_nodes(now, end, reason)
        return end

    def _busy_nodes(self, begin: float, end: float, reason: str) -> None:
        """Nodes that are done wait: in a barrier after a checkpoint, otherwise in the next collective."""
        shape, rng = self.shape, self.rng
        who = REASONS[reason][2]
        count = {"all": shape.nodes, "one": 1, "some": max(1, shape.nodes // 4)}[who]
        busy = [0] if reason == "evaluation-one" else sorted(rng.choice(shape.nodes, count, replace=False).tolist())
        if reason.startswith("checkpoint"):
            self._write(begin, end, reason, busy)
        elif reason == "evaluation-one" and self.barrier:
            for index in range(shape.nodes):
                self._enter_barrier(index, end - 1e-5 if index in busy else begin + rng.uniform(0, 1e-3))
        elif who == "one":
            arrives = begin + shape.computation * np.exp(rng.normal(0, shape.spread, shape.nodes))
            arrives[busy] = np.inf
            sent, received = incomplete(shape, list(range(shape.nodes)), arrives, rng)
            for way, spans in (("sent", sent), ("received", received)):
                for index, (first, last, volume) in spans.items():
                    if first < end:
                        self.apart.setdefault((index, way), []).append((first, min(last, end), volume))
        elif reason == "evaluation-all" and self.lengths[reason] > 8:
            for at in np.arange(begin + 4, end - 4, 1.0):
                self.shared.append(np.array([(at, at + 0.02, 0.02 * shape.rate)]))

    def _write(self, begin: float, end: float, reason: str, busy: list[int]) -> None:
        """A checkpoint of the busy nodes, after which each enters the barrier; the last one ends the pause soon."""
        parts = self.rng.uniform(0.4, 1.0, len(busy))
        length = max(end - begin - self.rng.uniform(0.2, 2.0), 0.5 * (end - begin))
        writes = dict(zip(busy, (begin + length * parts / parts.max()).tolist(), strict=True))
        for index in range(self.shape.nodes):
            done = writes.get(index, begin + self.rng.uniform(0, 1e-3))
            self._enter_barrier(index, done)
            if reason != "checkpoint-local" and index in writes:
                self._store(index, begin, done + (120.0 if reason == "checkpoint-async" else 0.0))

    def _enter_barrier(self, index: int, at: float) -> None:
        for way in ("sent", "received"):
            self.apart.setdefault((index, way), []).append((at, at + 1e-5, TOKEN))

    def _store(self, index: int, begin: float, end: float) -> None:
        port = self.nodes[index].rails[0] if self.habits.storage_on_rails else "storage"
        rate = self.rng.uniform(0.3e9, 6e9)
        self.nodes[index].add(port, "sent", [(begin, end, rate * (end - begin))])

    def _reform(self, begin: float, end: float, reason: str) -> float:
        """Processes end and begin again; an elastic job goes on without one node, which returns at the next change."""
        gap = (begin + self.rng.uniform(0.5, 10), end - self.rng.uniform(1, 15))
        keeps = reason == "restart" and self.rng.random() < 0.5
        leaves = int(self.rng.integers(1, self.shape.nodes)) if reason == "elastic" and self.shape.nodes > 2 else None
        for index, node in enumerate(self.nodes):
            self._disconnect(node, gap[0], self.connecting.uniform(0, 5))
            if node.connected is not None:
                node.connected.append((end - self.connecting.uniform(0, 5), NEVER))
            first, last = node.present[-1]
            if last < NEVER:
                node.present.append((gap[1], NEVER))
                self.absent[index][-1] = (self.absent[index][-1][0], end)
            elif index == leaves:
                node.present[-1] = (first, gap[0])
                self.absent.setdefault(index, []).append((begin, NEVER))
            elif not keeps and reason == "restart" and gap[1] > gap[0]:
                node.present[-1:] = [(first, gap[0]), (gap[1], NEVER)]
        return self._initialise(end)

    def _disconnect(self, node: Node, at: float, delay: float) -> None:
        if node.connected:
            node.connected[-1] = (node.connected[-1][0], at + delay)

    def _finish(self, now: float) -> float:
        """The last checkpoint or evaluation, processes that linger, and the end."""
        now = self._pause(now, self.habits.last)
        end = now + self.habits.lingers
        self.pauses.append(Pause(now, end, "end"))
        for node in self.nodes:
            first, last = node.present[-1]
            node.present[-1] = (first, min(last, end + self.rng.uniform(0, 1)))
            self._disconnect(node, now, self.connecting.uniform(0, self.habits.lingers))
        return end

    def _share_out(self) -> None:
        """Flows of each node; rails of one node carry the same."""
        rows = np.concatenate(self.shared)
        begins, ends, volumes = rows[np.argsort(rows[:, 0], kind="stable")].T
        for index, node in enumerate(self.nodes):
            here = np.ones(len(begins), bool)
            for first, last in self.absent.get(index, []):
                here &= (begins < first) | (begins >= last)
            common = Flow(begins[here], ends[here], volumes[here]) if not here.all() else Flow(begins, ends, volumes)
            for way in ("sent", "received"):
                flow = common.together(Flow.of(self.apart.get((index, way), [])))
                for rail in node.rails:
                    node.job[rail, way] = flow

    def _harmless_signs(self, end: float) -> None:
        """A few timeouts while traffic runs, and storage links that fail for a moment."""
        for node in self.nodes:
            flow = node.job[node.rails[0], "sent"]
            spans = self.rng.integers(0, len(flow.begins), int(self.rng.poisson(end / 3600 * 0.3)))
            assert node.timeouts is not None
            node.timeouts[node.rails[0]] = np.sort(self.rng.uniform(flow.begins[spans], flow.ends[spans]))
            if self.rng.random() < 0.02:
                at = self.rng.uniform(0, end)
                node.links += [LinkEvent("storage", up, at - 0.5, at) for at, up in ((at, False), (at + 5, True))]


def make(name: str, shape: Shape, habits: Habits, seed: int) -> Case:
    """A healthy job; the same for the same arguments."""
    return Run(name, shape, habits, seed).make()


def jobs(seed: int, hours: float) -> Iterator[Case]:
    """Healthy jobs of 1 to 24 hours until they have the given number of job-hours.

    Assumptions about the mix: every job writes checkpoints (a third of each way), half evaluate on all nodes, a tenth
    on one; one in five is elastic or restarts; data is late once in ten hours on all nodes and on one.
    """
    rng, done, index = np.random.default_rng(seed), 0.0, 0
    while done < hours:
        length = float(min(np.exp(rng.uniform(0, np.log(24))), hours - done))
        shape = Shape(
            nodes=int(rng.choice([2, 4, 8])),
            rails=int(rng.choice([1, 2])),
            step=float(np.exp(rng.uniform(np.log(0.3), np.log(100)))),
            operations=int(rng.choice([1, 2, 4])),
            share=float(rng.uniform(0.1, 0.95)),
            spread=float(rng.choice([0.01, 0.02, 0.09])),
        )
        every = {str(rng.choice(["checkpoint-async", "checkpoint-local", "checkpoint-remote"])): rng.uniform(600, 7200)}
        every |= {"data-late-all": 36_000.0, "data-late-one": 36_000.0}
        draw = rng.random(4)
        if draw[0] < 0.6:
            every["evaluation-all" if draw[0] < 0.5 else "evaluation-one"] = rng.uniform(1800, 14_400)
        if draw[1] < 0.2:
            every["restart" if draw[1] < 0.1 else "elastic"] = rng.uniform(3600, 36_000)
        if draw[2] < 0.1:
            every["checkpoint-one-replica"] = rng.uniform(1800, 7200)
        last = str(rng.choice(["", "checkpoint-local", "checkpoint-remote", "evaluation-one"], p=[0.3, 0.3, 0.3, 0.1]))
        lingers = float(np.exp(rng.uniform(np.log(1), np.log(120))))
        habits = Habits(length, every, rng.uniform(5, 180), last, lingers, storage_on_rails=bool(draw[3] < 0.1))
        yield make(
            f"healthy {index}: {', '.join(every)}, step {shape.step:.1f} s", shape, habits, seed * 10_000 + index
        )
        done, index = done + length, index + 1
