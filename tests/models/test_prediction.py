"""The traffic of whole jobs and the samples of a step: published runs, closed forms, routes, series and queues."""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.workbench.models.catalogue import Architecture
from ibpulse.workbench.models.collectives import Hardware
from ibpulse.workbench.models.job import DEDUPLICATED, PLAIN, TrainingJob, distinct_nodes, readings, remote_copies
from ibpulse.workbench.models.prediction import (
    Prediction,
    ShardedStep,
    StepInputs,
    Utilisation,
    attention_operations,
    bubble_share,
    fit_step,
    predict,
    schedule_statistics,
    step_operations,
)


def test_nodes_of_a_token_under_limited_and_impossible_routing() -> None:
    assert distinct_nodes(8, 256, 8, most_nodes=4) == pytest.approx(3.629, abs=1e-3)
    assert remote_copies(DEDUPLICATED, 8, 256, 8, most_nodes=4) == pytest.approx(3.175, abs=1e-3)
    with pytest.raises(ValueError, match="10 experts do not divide by 4 nodes"):
        distinct_nodes(4, 10, 2)
    with pytest.raises(ValueError, match="9 experts per token are more than the 8"):
        distinct_nodes(4, 8, 9)


@pytest.mark.parametrize(("nodes", "experts", "chosen"), [(2, 16, 2), (4, 16, 4), (8, 16, 6)])
def test_distinct_nodes_and_remote_copies_over_all_choices(nodes: int, experts: int, chosen: int) -> None:
    held = experts // nodes
    routes = [[expert // held for expert in route] for route in itertools.combinations(range(experts), chosen)]
    assert distinct_nodes(nodes, experts, chosen) == pytest.approx(np.mean([len(set(route)) for route in routes]))
    remote = np.mean([len(set(route) - {0}) for route in routes])
    assert remote_copies(DEDUPLICATED, nodes, experts, chosen) == pytest.approx(remote)
    copies = np.mean([np.count_nonzero(route) for route in routes])
    assert remote_copies(PLAIN, nodes, experts, chosen) == pytest.approx(copies)


EIGHT_RAILS = Hardware(8, 47e9, 370e9)
SEVEN_RAILS = Hardware(7, 47e9, 370e9)
DENSE = Architecture("Qwen2.5-7B", 7.6156e9, 28, 3584, "", kv_width=512, vocabulary=152_064)
MOE = Architecture("Mixtral-8x7B", 46.703e9, 32, 4096, "", 1024, 32_000, False, 45.097e9, 32, 8, 2)
MANY_EXPERTS = Architecture("Qwen3-30B-A3B", 30.532e9, 48, 2048, "", 512, 151_936, False, 28.991e9, 48, 128, 8)
TIED = Architecture("tied", 8e9, 32, 4096, "", 1024, 100_000, tied=True)
COMPUTING = Utilisation("peak-share", 0.4, 1000e12, "none")


def known(model: Architecture, nodes: int, **named: object) -> TrainingJob:
    """A job without unknown inputs, so that it has one reading."""
    choices = {"algorithm": "ring", "dispatch": "alltoall", "recompute": "none", "reduction": "each"}
    amounts = {"dispatch_bytes": 2.0, "gradient_bytes": 2}
    return TrainingJob(model, nodes, **{**choices, **amounts, **named})  # type: ignore[arg-type]


def prediction(job: TrainingJob, step: float | None = None) -> Prediction:
    return predict(job, EIGHT_RAILS, StepInputs(step))


def sent(job: TrainingJob, source: str) -> float:
    """Bytes that a node sends for a source; the job has one reading."""
    rows = {row.source: row for row in prediction(job).sources}
    assert rows[source].node_bytes.low == rows[source].node_bytes.high
    return rows[source].node_bytes.low


def test_the_published_moe_run_with_hierarchical_collectives() -> None:
    found = prediction(known(MOE, 2, algorithm="hierarchical"))
    assert found.node_bytes.low / 1e9 == pytest.approx(140.1, rel=1e-3)


@pytest.mark.parametrize(
    ("dispatch", "gigabytes", "seconds", "saved"), [("alltoall", 824.6, 18.3, 9.94), ("deduplicated", 205.4, 4.6, 3.72)]
)
def test_tokens_of_a_published_expert_parallel_run(
    dispatch: str, gigabytes: float, seconds: float, saved: float
) -> None:
    """Megatron-Bridge's Qwen3-30B-A3B on two nodes: overlap cannot save more than the wire takes at 45 GB/s."""
    job = known(MANY_EXPERTS, 2, ep=16, micro_batches=64, dispatch=dispatch, sharding="zero1")
    gpu = sent(job, "experts") / 8
    assert gpu / 1e9 == pytest.approx(gigabytes, rel=1e-3)
    assert gpu / 45e9 == pytest.approx(seconds, rel=0.01)
    assert saved < gpu / 45e9


def test_gradients_and_parameters_by_sharding() -> None:
    share, size = 15 / 16, 7.6156e9
    assert sent(known(DENSE, 2, sharding="ddp"), "gradients") == pytest.approx(2 * 2 * size * share)
    for sharding in ("zero1", "zero2"):
        job = known(DENSE, 2, sharding=sharding, gradient_bytes=4)
        assert sent(job, "gradients") + sent(job, "parameters") == pytest.approx(6 * size * share)
    for sharding in ("zero3", "fsdp"):
        job = known(DENSE, 2, sharding=sharding)
        assert sent(job, "parameters") == pytest.approx(2 * sent(job, "gradients")) == pytest.approx(4 * size * share)


def test_traffic_that_repeats_with_micro_batches() -> None:
    for sharding, once, often in (("zero1", 1, 1), ("zero2", 1, 4), ("fsdp", 1, 4)):
        job = known(DENSE, 2, sharding=sharding)
        each, last = replace(job, micro_batches=4), replace(job, micro_batches=4, reduction="once")
        assert sent(each, "gradients") == pytest.approx(often * sent(job, "gradients"))
        assert sent(last, "gradients") == pytest.approx(once * sent(job, "gradients"))
    assert sent(known(DENSE, 2, micro_batches=4), "parameters") == pytest.approx(
        4 * sent(known(DENSE, 2), "parameters")
    )


def test_bytes_of_hybrid_sharding_of_context_and_of_expert_parallelism() -> None:
    job = known(DENSE, 4, sharding="hsdp", shard=8)
    assert sent(job, "parameters") == 0
    # 8 GPUs of a node, each in a group of 4 ranks on 4 nodes
    assert sent(job, "gradients of replicas") == pytest.approx(8 * 2 * (2 * 7.6156e9 / 8) * 3 / 4)
    # 15 hops forward and 30 backward, of K and V of 512 tokens each, over one boundary per node
    size = 2 * (8192 / 16) * 512 * 2
    assert sent(known(DENSE, 2, cp=16, sequence=8192), "context parallel") == pytest.approx(45 * 28 * size)
    job = known(MANY_EXPERTS, 4, ep=8, sharding="zero1", gradient_bytes=4)
    # 4 ranks hold the same experts, one per node: each of 8 groups sends 6 bytes per parameter x 3/4
    both = sent(job, "expert gradients") + sent(job, "expert parameters")
    assert both == pytest.approx(8 * 6 * 28.991e9 / 8 * 3 / 4)
    assert sent(job, "experts") == 0


def test_tensor_parallel_traffic_beyond_a_node() -> None:
    inside, across = (known(DENSE, 2, tp=tp, sequence=2048) for tp in (8, 16))
    assert sent(inside, "tensor parallel") == 0
    size = 2048 * 3584 * 2
    assert sent(across, "tensor parallel") == pytest.approx(4 * 28 * 2 * size * 15 / 16)
    (row,) = [row for row in prediction(inside).sources if row.source == "tensor parallel"]
    assert row.nvlink_gpu_bytes.low == pytest.approx(4 * 28 * 2 * size * 7 / 8)
    assert sent(replace(across, recompute="full"), "tensor parallel") == pytest.approx(
        1.5 * sent(across, "tensor parallel")
    )


def sends_of_a_pipeline(stages: int, chunks: int, stage: int) -> int:
    """Sends of a stage for one micro-batch: chunk i of the whole model is on stage i % stages."""
    whole = stages * chunks
    forward = sum(chunk % stages == stage for chunk in range(whole - 1))
    backward = sum(chunk % stages == stage for chunk in range(1, whole))
    return forward + backward


@pytest.mark.parametrize(("stages", "chunks"), [(2, 1), (4, 1), (4, 2), (8, 3)])
def test_pipeline_traffic_of_every_stage(stages: int, chunks: int) -> None:
    job = known(TIED, stages, pp=stages, chunks=chunks, micro_batches=6, sequence=1024, sharding="zero1")
    (row,) = [row for row in prediction(job).sources if row.source == "pipeline"]
    size = 8 * 6 * 1024 * 4096 * 2
    counts = [sends_of_a_pipeline(stages, chunks, stage) for stage in range(stages)]
    assert row.node_bytes.low == pytest.approx(min(counts) * size)
    assert row.node_bytes.high == pytest.approx(max(counts) * size)


@pytest.mark.parametrize(("nodes", "tp", "ranks"), [(1, 2, 0), (2, 4, 4), (4, 8, 8), (4, 4, 8)])
def test_tied_embeddings_of_four_stages(nodes: int, tp: int, ranks: int) -> None:
    """On one node they use NVLink alone; otherwise each rank of the first stage on a node sends its part once."""
    job = known(TIED, nodes, tp=tp, pp=4, sharding="zero1")
    (row,) = [row for row in prediction(job).sources if row.source == "tied embeddings"]
    size = 100_000 * 4096 * 4 / tp
    assert row.node_bytes.high == pytest.approx(ranks * size)
    assert row.nvlink_gpu_bytes.high == pytest.approx(0 if ranks else size)


JOBS = st.sampled_from(
    [
        TrainingJob(model, nodes, pp=pp, tp=tp, ep=ep, sharding=sharding, micro_batches=batches)
        for model, nodes, pp, tp, ep, sharding, batches in itertools.product(
            (MANY_EXPERTS,), (2, 8), (1, 2), (1, 4), (1, 8), ("ddp", "zero1", "fsdp"), (1, 8)
        )
    ]
)


@given(JOBS)
def test_a_range_is_that_of_its_readings(job: TrainingJob) -> None:
    found = prediction(job)
    totals = []
    for one in readings(job):
        named = known(
            MANY_EXPERTS,
            job.nodes,
            **{name: getattr(job, name) for name in ("pp", "tp", "ep", "sharding", "micro_batches")},
            algorithm=one.algorithm,
            dispatch=one.dispatch,
            dispatch_bytes=one.dispatch_bytes,
            gradient_bytes=one.gradient_bytes,
            recompute="full" if one.recompute else "none",
            reduction="each" if one.reduce_each else "once",
        )
        totals += [prediction(named).node_bytes.low, prediction(named).node_bytes.high]
    assert found.readings == len(readings(job))
    assert (found.node_bytes.low, found.node_bytes.high) == pytest.approx((min(totals), max(totals)))


@given(JOBS)
def test_gpus_and_rails_add_up_to_the_node(job: TrainingJob) -> None:
    for row in prediction(job).sources:
        assert row.gpu_bytes.high * 8 == pytest.approx(row.node_bytes.high)
        assert row.rail_bytes.high * 8 == pytest.approx(row.node_bytes.high)
        assert row.rail_messages.high * 512 * 1024 == pytest.approx(row.rail_bytes.high)


@given(JOBS)
def test_a_computed_step_is_within_its_overlap_bounds(job: TrainingJob) -> None:
    found = predict(job, EIGHT_RAILS, StepInputs(utilisation=COMPUTING))
    bubbled = found.step.compute.times(1 + found.step.bubble)
    assert found.step.seconds.low >= bubbled.low * (1 - 1e-12)
    assert found.step.seconds.high <= (bubbled.high + found.communication_seconds.high) * (1 + 1e-12)
    assert found.step.transmit_rate.high <= EIGHT_RAILS.node_bytes_per_second * (1 + 1e-12)


def test_compute_follows_from_active_parameters() -> None:
    found = predict(known(MOE, 2, sequence=2048), EIGHT_RAILS, StepInputs(utilisation=COMPUTING))
    # 2 of 8 experts, and no operations for input embeddings
    active = 46.703e9 - 45.097e9 * 6 / 8 - 32_000 * 4096
    assert found.step.compute.low == pytest.approx(6 * active * 16 * 2048 / (16 * 400e12))


def test_samples_have_ranges_or_a_reason_why_there_are_none() -> None:
    job = known(MOE, 2, recompute="full")
    ten, hundred = predict(job, SEVEN_RAILS, StepInputs(1.444, prefetch=2)).sampled
    assert (ten.sample_seconds, hundred.sample_seconds) == (0.01, 0.1)
    wide, _ = predict(job, SEVEN_RAILS, StepInputs(1.444)).sampled
    assert 0.4 < wide.cv.low <= ten.cv.low == ten.cv.high < wide.cv.high < 0.56
    found = prediction(known(DENSE, 2, sharding="ddp"), 0.3)
    wire = 2 * 2 * 7.6156e9 * 15 / 16 / EIGHT_RAILS.node_bytes_per_second
    ten, _ = found.sampled
    assert ten.duty.low == ten.duty.high == pytest.approx((wire + 0.01) / 0.3)
    assert ten.peak.low == pytest.approx(2 * EIGHT_RAILS.node_bytes_per_second)
    found = prediction(known(MANY_EXPERTS, 2, ep=16), 30.0)
    assert found.sampled == ()
    assert found.warnings == ("samples are not predicted with traffic of experts on the wire",)
    for sharding in ("fsdp", "ddp"):
        assert prediction(known(DENSE, 1, sharding=sharding), 0.3).sampled == ()
    found = prediction(known(DENSE, 2), 0.05)
    assert found.sampled == ()
    assert found.warnings[0].startswith("the bytes need up to 0.1139 s at the full rate of all rails, but the step has")


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({"ep": 32}, "ep x etp = 32 does not divide the 16 ranks of a stage"),
        ({"sharding": "hsdp", "shard": 8, "ep": 2}, "ep: 2 with hsdp is not modelled"),
        ({"pp": 64, "nodes": 8}, "pp: 64 is more than the 32 layers"),
        ({"cp": 2, "model": replace(MOE, kv_width=0)}, "cp: 2 needs the width of keys of Mixtral-8x7B; give kv-width"),
    ],
)
def test_impossible_jobs_are_refused(named: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        known(**{"model": MOE, "nodes": 2, **named})


def test_times_of_collectives_within_a_node() -> None:
    """Eight GPUs of one node: 4 all-reduces in each of 28 layers, around a ring of 14 hops."""
    found = prediction(known(DENSE, 1, tp=8))
    (row,) = found.sources
    latency = 4 * 28 * (8.4 + 14 * 3.4) * 1e-6
    nvlink = 4 * 28 * 2 * 7 / 8 * 4096 * 3584 * 2
    assert row.latency_seconds.high == pytest.approx(latency)
    assert (row.nvlink_gpu_bytes.high, row.node_bytes.high) == (pytest.approx(nvlink), 0)
    assert found.communication_seconds.high == pytest.approx(latency + nvlink / EIGHT_RAILS.nvlink_bytes_per_second)


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


@given(st.floats(0.02, 1), st.floats(0.02, 5))
def test_statistics_of_bursts_have_the_closed_form(share: float, sample: float) -> None:
    found = schedule_statistics([(0.0, share, 1.0)], 1.0, sample)
    # the sum of squares loses half of its digits in the root
    assert (found.peak, found.duty, found.cv) == pytest.approx(on_off(share, sample), rel=1e-4, abs=2e-4)


def test_a_load_without_traffic_has_no_statistics() -> None:
    with pytest.raises(ValueError, match="without traffic"):
        schedule_statistics([], 1.0, 0.01)


RATE = 7 * 47e9


def unit_seconds(parameters: float, units: int) -> float:
    return 2 * parameters * 15 / 16 / units / RATE


DENSE_STEP = ShardedStep(28, unit_seconds(7.6156e9, 28), RATE, prefetch=2, backward_ratio=2)
# two gathers and one reduce-scatter of each unit
COLLECTIVES = 3 * 28 * DENSE_STEP.gather_seconds
MOE_STEP = ShardedStep(32, unit_seconds(46.703e9, 32), RATE, prefetch=2, backward_ratio=3)


@pytest.mark.parametrize(
    ("step", "seconds", "cv", "published_cv", "cv_100"),
    [(DENSE_STEP, 0.315, 0.206, 0.20, 0.028), (MOE_STEP, 1.444, 0.436, 0.42, 0.189)],
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


def test_a_step_has_its_collectives_in_order_and_its_fitted_length() -> None:
    spans, length = DENSE_STEP.lay_out(0.2)
    assert all(first[1] <= second[0] + 1e-12 for first, second in itertools.pairwise(spans))
    assert sum(end - begin for begin, end, _ in spans) == pytest.approx(COLLECTIVES)
    assert spans[-1][1] <= length
    _, compute = fit_step(DENSE_STEP, 0.315)
    assert DENSE_STEP.lay_out(compute)[1] == pytest.approx(0.315)
    with pytest.raises(ValueError, match="100 ms is shorter than its collectives at the full rate of all rails"):
        fit_step(DENSE_STEP, 0.1)


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
