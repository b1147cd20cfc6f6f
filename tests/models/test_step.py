"""Statistics of samples and time lines of sharded steps, against closed forms, sampled series and simulated queues."""

from __future__ import annotations

import itertools
import math
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.workbench.models.prediction import (
    ShardedStep,
    Span,
    attention_operations,
    bubble_share,
    fit_step,
    schedule_statistics,
    step_operations,
)

TABLE = [
    (0.55, 7.27, 10, 1.0000, 0.1736),
    (0.55, 27.27, 10, 0.9167, 0.5443),
    (0.55, 181.8, 10, 0.6050, 0.2517),
    (0.50, 40, 10, 0.7500, 0.5000),
    (0.30, 315, 10, 0.3317, 0.2585),
    (0.30, 315, 100, 0.6175, 0.5765),
    (0.75, 315, 100, 1.0000, 0.3834),
    (0.90, 1444, 10, 0.9069, 0.0715),
]


def sampled(spans: list[Span], period: float, sample: float) -> tuple[float, float]:
    """Duty, and CV of the active samples, of 200,000 samples at random phases."""
    edges = np.array(sorted({0.0, period, *(time for begin, end, _ in spans for time in (begin, end))}))
    middles = (edges[1:] + edges[:-1]) / 2
    rates = np.array([sum(rate for begin, end, rate in spans if begin <= at < end) for at in middles])
    amounts = np.concatenate([[0.0], np.cumsum(np.diff(edges) * rates)])

    def amount(times: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        whole, rest = np.divmod(times, period)
        return np.asarray(whole * amounts[-1] + np.interp(rest, edges, amounts))

    phases = np.random.default_rng(11).uniform(0, period, 200_000)
    values = (amount(phases + sample) - amount(phases)) / sample
    active = values[values > 1e-9 * values.max()]
    return active.size / values.size, float(active.std() / active.mean())


def on_off(share: float, sample: float) -> tuple[float, float, float]:
    """Peak, duty and CV of a rate of 1 that is on for a share d of every second, in closed form; D is the sample.

    CV_all^2 = (1/d^2) sum over k of 2 (sin(pi k d)/(pi k))^2 sinc(k D)^2, duty = min(1, d + D), CV^2 = (CV_all^2 + 1)
    duty - 1. Products of sines are differences of cosines, and the sum of cos(2 pi k x)/k^4 is a polynomial in x.
    """

    def cosines(x: float) -> float:
        x %= 1.0
        return -((2 * math.pi) ** 4) / 48 * (x**4 - 2 * x**3 + x**2 - 1 / 30)

    products = cosines(0.0) - cosines(share) - cosines(sample) + (cosines(share - sample) + cosines(share + sample)) / 2
    variance = max(0.0, products / (2 * math.pi**4 * (share * sample) ** 2))
    duty = min(1.0, share + sample)
    # whole periods within the sample, and the best part of the next
    longest = math.floor(sample) * share + min(sample % 1, share)
    return longest / sample, duty, math.sqrt(max(0.0, (variance + 1) * duty - 1))


@pytest.mark.parametrize(("share", "period", "sample", "duty", "cv"), TABLE)
def test_statistics_of_bursts_are_the_published_ones(
    share: float, period: float, sample: float, duty: float, cv: float
) -> None:
    found = schedule_statistics([(0, share * period, 1.0)], period, sample)
    assert (found.duty, found.cv) == pytest.approx((duty, cv), rel=5e-3)
    assert sampled([(0, share * period, 1.0)], period, sample) == pytest.approx((duty, cv), abs=0.01)


@given(st.floats(0.02, 1), st.floats(0.02, 5))
def test_statistics_of_bursts_have_the_closed_form(share: float, sample: float) -> None:
    found = schedule_statistics([(0.0, share, 1.0)], 1.0, sample)
    # the sum of squares loses half of its digits in the root
    assert (found.peak, found.duty, found.cv) == pytest.approx(on_off(share, sample), rel=1e-4, abs=2e-4)


def test_any_schedule_has_the_statistics_of_its_samples() -> None:
    random = np.random.default_rng(2)
    edges = np.sort(random.uniform(0, 0.9, 24)).tolist()
    spans = [(edges[at], edges[at + 1], float(random.uniform(1, 5))) for at in range(0, 24, 2)]
    for sample in (0.01, 0.1, 1.7):
        found = schedule_statistics(spans, 1.0, sample)
        assert (found.duty, found.cv) == pytest.approx(sampled(spans, 1.0, sample), abs=0.01)


def test_a_load_without_traffic_has_no_statistics() -> None:
    with pytest.raises(ValueError, match="without traffic"):
        schedule_statistics([], 1.0, 0.01)


RATE = 7 * 47e9


def unit_seconds(parameters: float, units: int) -> float:
    return 2 * parameters * 15 / 16 / units / RATE


DENSE = ShardedStep(28, unit_seconds(7.6156e9, 28), RATE, prefetch=2, backward_ratio=2)
# two gathers and one reduce-scatter of each unit
COLLECTIVES = 3 * 28 * DENSE.gather_seconds
MOE = ShardedStep(32, unit_seconds(46.703e9, 32), RATE, prefetch=2, backward_ratio=3)


@pytest.mark.parametrize(
    ("step", "seconds", "cv", "published_cv", "cv_100"),
    [(DENSE, 0.315, 0.206, 0.20, 0.028), (MOE, 1.444, 0.436, 0.42, 0.189)],
)
def test_samples_of_the_published_runs(
    step: ShardedStep, seconds: float, cv: float, published_cv: float, cv_100: float
) -> None:
    """Qwen2.5-7B and Mixtral-8x7B under FSDP on two nodes of eight GPUs, seven rails in use."""
    spans, _ = fit_step(step, seconds)
    found = schedule_statistics(spans, seconds, 0.01)
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
def test_lay_out_matches_simulated_queues(prefetch: int, compute: float) -> None:
    step = ShardedStep(6, 0.02, 1e9, prefetch=prefetch, backward_ratio=2)
    spans, length = step.lay_out(compute)
    slow_length, busy = Queues(step, compute, 1e-4).run()
    assert length == pytest.approx(slow_length, rel=0.02)
    assert sum(end - begin for begin, end, _ in spans) == pytest.approx(busy, rel=0.02)


def test_collectives_are_complete_and_in_order() -> None:
    spans, length = DENSE.lay_out(0.2)
    assert all(first[1] <= second[0] + 1e-12 for first, second in itertools.pairwise(spans))
    assert sum(end - begin for begin, end, _ in spans) == pytest.approx(COLLECTIVES)
    assert spans[-1][1] <= length


def test_a_step_between_perfect_overlap_and_none() -> None:
    for compute in (0.01, 0.1, 1.0):
        _, length = DENSE.lay_out(compute)
        assert max(compute, COLLECTIVES) <= length <= compute + COLLECTIVES


def test_fitted_compute_gives_the_step_length() -> None:
    _, compute = fit_step(DENSE, 0.315)
    assert DENSE.lay_out(compute)[1] == pytest.approx(0.315)


def test_a_step_shorter_than_its_collectives_is_refused() -> None:
    with pytest.raises(ValueError, match="100 ms is shorter than its collectives at the full rate of all rails"):
        fit_step(DENSE, 0.1)


def test_operations_of_a_gpt_have_the_published_formula() -> None:
    """96 B s l h^2 (1 + s/(6 h) + V/(16 l h)) with full recomputation: arXiv 2104.04473, equation 3."""
    layers, hidden, vocabulary, sequence, batch = 128, 25_600, 51_200, 2048, 3072
    inside = 1 + sequence / (6 * hidden) + vocabulary / (16 * layers * hidden)
    published = 96 * batch * sequence * layers * hidden**2 * inside
    attention = attention_operations(layers, hidden, sequence)
    matrices = 12 * layers * hidden**2
    found = step_operations(matrices, batch * sequence, attention, recompute=True)
    # the head is not recomputed
    assert found + 6 * vocabulary * hidden * batch * sequence == pytest.approx(published, rel=1e-9)
    assert step_operations(matrices, 1.0, recompute=False) == pytest.approx(6 * matrices)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 3), (4, 8), (8, 8)])
def test_bubble_of_a_pipeline_that_is_carried_out(stages: int, micro_batches: int) -> None:
    """All forwards, then all backwards: each takes m + p - 1 slots where m are ideal."""
    ready = [[0] * (micro_batches + 1) for _ in range(stages + 1)]
    for stage in range(1, stages + 1):
        for batch in range(1, micro_batches + 1):
            ready[stage][batch] = max(ready[stage - 1][batch], ready[stage][batch - 1]) + 1
    assert ready[-1][-1] / micro_batches - 1 == pytest.approx(bubble_share(stages, micro_batches))
