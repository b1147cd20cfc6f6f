"""The two streams of a fully sharded step: the published runs, and a simulation that advances in small steps."""

from __future__ import annotations

import itertools
from collections import deque

import pytest

from ibpulse.workbench.models.sampled_load import schedule_statistics
from ibpulse.workbench.models.two_streams import ShardedStep, fit_step

RATE = 7 * 47e9


def unit_seconds(parameters: float, units: int) -> float:
    return 2 * parameters * 15 / 16 / units / RATE


DENSE = ShardedStep(28, unit_seconds(7.6156e9, 28), RATE, prefetch=2, backward_ratio=2)
MOE = ShardedStep(32, unit_seconds(46.703e9, 32), RATE, prefetch=2, backward_ratio=3)


@pytest.mark.parametrize(
    ("step", "seconds", "mean", "cv", "published_cv", "cv_100", "published_mean"),
    [(DENSE, 0.315, 272.0, 0.206, 0.20, 0.028, 270), (MOE, 1.444, 363.9, 0.436, 0.42, 0.189, 363)],
)
def test_the_published_runs(
    step: ShardedStep,
    seconds: float,
    mean: float,
    cv: float,
    published_cv: float,
    cv_100: float,
    published_mean: float,
) -> None:
    """Qwen2.5-7B and Mixtral-8x7B under FSDP on two nodes of eight GPUs, seven rails in use."""
    spans, _ = fit_step(step, seconds)
    found = schedule_statistics(spans, seconds, 0.01)
    assert 2 * found.mean / 1e9 == pytest.approx(mean, rel=1e-3)
    assert 2 * found.mean / 1e9 == pytest.approx(published_mean, rel=0.02)
    assert found.cv == pytest.approx(cv, abs=0.03)
    assert found.cv == pytest.approx(published_cv, abs=0.1)
    assert schedule_statistics(spans, seconds, 0.1).cv == pytest.approx(cv_100, abs=0.03)


def test_the_peak_of_the_published_moe_run() -> None:
    """658 GB/s transmit and receive; the measured one was 659."""
    spans, _ = fit_step(MOE, 1.444)
    assert 2 * schedule_statistics(spans, 1.444, 0.01).peak / 1e9 == pytest.approx(658, rel=1e-3)


class Queues:
    """A step whose network and compute work off their queues tick by tick."""

    def __init__(self, step: ShardedStep, compute: float, tick: float) -> None:
        forward = compute / (1 + step.backward_ratio) / step.units
        self.step, self.tick = step, tick
        self.work = [forward] * step.units + [forward * step.backward_ratio] * step.units
        self.queue: deque[tuple[str, int]] = deque(("gather", nth) for nth in range(step.prefetch))
        self.issued, self.gathered, self.done = step.prefetch, set[int](), 0
        self.sending = self.computing = self.busy = self.now = 0.0

    def run(self) -> tuple[float, float]:
        """Length of the step, and its seconds with traffic."""
        while self.done < len(self.work) or self.queue:
            if not self.sending and self.queue:
                self.sending = self.step.gather_seconds
            if not self.computing and self.done in self.gathered:
                self.computing = self.work[self.done]
            self.now += self.tick
            self.send()
            self.compute()
        return self.now, self.busy

    def send(self) -> None:
        if self.sending:
            self.busy += self.tick
            self.sending -= self.tick
            if self.sending <= self.tick / 2:
                kind, nth = self.queue.popleft()
                self.gathered |= {nth} if kind == "gather" else set()
                self.sending = 0.0

    def compute(self) -> None:
        if self.computing:
            self.computing -= self.tick
            if self.computing <= self.tick / 2:
                self.finish()

    def finish(self) -> None:
        self.computing = 0.0
        if self.issued < len(self.work):
            self.queue.append(("gather", self.issued))
            self.issued += 1
        if self.done >= self.step.units:
            self.queue.append(("scatter", self.done))
        self.done += 1


@pytest.mark.parametrize("prefetch", [1, 2, 3])
@pytest.mark.parametrize("compute", [0.03, 0.3, 0.9])
def test_the_rule_agrees_with_queues_that_advance_tick_by_tick(prefetch: int, compute: float) -> None:
    step = ShardedStep(6, 0.02, 1e9, prefetch=prefetch, backward_ratio=2)
    spans, length = step.lay_out(compute)
    slow_length, busy = Queues(step, compute, 1e-4).run()
    assert length == pytest.approx(slow_length, rel=0.02)
    assert sum(end - begin for begin, end, _ in spans) == pytest.approx(busy, rel=0.02)


def test_collectives_follow_one_another_and_are_all_there() -> None:
    spans, length = DENSE.lay_out(0.2)
    assert all(first[1] <= second[0] + 1e-12 for first, second in itertools.pairwise(spans))
    assert sum(end - begin for begin, end, _ in spans) == pytest.approx(DENSE.wire_seconds)
    assert spans[-1][1] <= length


def test_a_step_between_perfect_overlap_and_none() -> None:
    for compute in (0.01, 0.1, 1.0):
        _, length = DENSE.lay_out(compute)
        assert max(compute, DENSE.wire_seconds) <= length <= compute + DENSE.wire_seconds


def test_compute_is_chosen_such_that_the_step_has_its_length() -> None:
    _, compute = fit_step(DENSE, 0.315)
    assert DENSE.lay_out(compute)[1] == pytest.approx(0.315)


def test_a_step_shorter_than_its_collectives_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"100 ms is shorter than its collectives at the full rate of all rails, 130[.]2"
    ):
        fit_step(DENSE, 0.1)
