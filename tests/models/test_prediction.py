"""The traffic of whole jobs: published runs, sources against closed forms, ranges that contain their readings."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.workbench.models.catalogue import Architecture
from ibpulse.workbench.models.collectives import Hardware
from ibpulse.workbench.models.job import TrainingJob, readings
from ibpulse.workbench.models.prediction import Prediction, StepInputs, Utilisation, predict

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


def test_hybrid_sharding_reduces_a_shard_over_replicas() -> None:
    job = known(DENSE, 4, sharding="hsdp", shard=8)
    assert sent(job, "parameters") == 0
    # 8 GPUs of a node, each in a group of 4 ranks on 4 nodes
    assert sent(job, "gradients of replicas") == pytest.approx(8 * 2 * (2 * 7.6156e9 / 8) * 3 / 4)


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


def test_context_parallel_traffic_is_a_ring_of_keys() -> None:
    # 15 hops forward and 30 backward, of K and V of 512 tokens each, over one boundary per node
    size = 2 * (8192 / 16) * 512 * 2
    assert sent(known(DENSE, 2, cp=16, sequence=8192), "context parallel") == pytest.approx(45 * 28 * size)


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


def test_tied_embeddings_are_reduced_between_pipeline_ends() -> None:
    # two ranks of a ring send half of the array twice
    assert sent(known(TIED, 2, pp=2, sharding="zero1"), "tied embeddings") == pytest.approx(8 * 100_000 * 4096 * 4)


@pytest.mark.parametrize(("nodes", "tp", "ranks"), [(1, 2, 0), (2, 4, 4), (4, 8, 8), (4, 4, 8)])
def test_tied_embeddings_of_four_stages(nodes: int, tp: int, ranks: int) -> None:
    """On one node they use NVLink alone; otherwise each rank of the first stage on a node sends its part once."""
    job = known(TIED, nodes, tp=tp, pp=4, sharding="zero1")
    (row,) = [row for row in prediction(job).sources if row.source == "tied embeddings"]
    size = 100_000 * 4096 * 4 / tp
    assert row.node_bytes.high == pytest.approx(ranks * size)
    assert row.nvlink_gpu_bytes.high == pytest.approx(0 if ranks else size)


def test_experts_are_reduced_over_their_ranks() -> None:
    job = known(MANY_EXPERTS, 4, ep=8, sharding="zero1", gradient_bytes=4)
    # 4 ranks hold the same experts, one per node: each of 8 groups sends 6 bytes per parameter x 3/4
    both = sent(job, "expert gradients") + sent(job, "expert parameters")
    assert both == pytest.approx(8 * 6 * 28.991e9 / 8 * 3 / 4)
    assert sent(job, "experts") == 0


def test_all_to_all_bytes_are_conserved() -> None:
    """Copies that leave nodes and copies that stay are all copies."""
    for nodes in (2, 4, 8):
        job = known(MANY_EXPERTS, nodes, ep=8 * nodes, sharding="zero1")
        remote = sent(job, "experts") * nodes
        local = remote / (nodes - 1)
        assert remote + local == pytest.approx(4 * 48 * 8 * nodes * 4096 * 8 * 2048 * 2)


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
    assert found.step is not None
    assert found.step.compute is not None
    bubbled = found.step.compute.times(1 + found.step.bubble)
    assert found.step.seconds.low >= bubbled.low * (1 - 1e-12)
    assert found.step.seconds.high <= (bubbled.high + found.communication_seconds.high) * (1 + 1e-12)
    assert found.step.transmit_rate.high <= EIGHT_RAILS.node_bytes_per_second * (1 + 1e-12)


def test_compute_follows_from_active_parameters() -> None:
    found = predict(known(MOE, 2, sequence=2048), EIGHT_RAILS, StepInputs(utilisation=COMPUTING))
    assert found.step is not None
    assert found.step.compute is not None
    # 2 of 8 experts, and no operations for input embeddings
    active = 46.703e9 - 45.097e9 * 6 / 8 - 32_000 * 4096
    assert found.step.compute.low == pytest.approx(6 * active * 16 * 2048 / (16 * 400e12))


def test_samples_are_a_range_over_unknown_prefetches() -> None:
    job = known(MOE, 2, recompute="full")
    ten, hundred = predict(job, SEVEN_RAILS, StepInputs(1.444, prefetch=2)).sampled
    assert (ten.sample_seconds, hundred.sample_seconds) == (0.01, 0.1)
    wide, _ = predict(job, SEVEN_RAILS, StepInputs(1.444)).sampled
    assert 0.4 < wide.cv.low <= ten.cv.low == ten.cv.high < wide.cv.high < 0.56


def test_samples_of_a_step_with_a_single_burst() -> None:
    found = prediction(known(DENSE, 2, sharding="ddp"), 0.3)
    wire = 2 * 2 * 7.6156e9 * 15 / 16 / EIGHT_RAILS.node_bytes_per_second
    ten, _ = found.sampled
    assert ten.duty.low == ten.duty.high == pytest.approx((wire + 0.01) / 0.3)
    assert ten.peak.low == pytest.approx(2 * EIGHT_RAILS.node_bytes_per_second)


def test_unpredicted_samples_give_a_reason() -> None:
    found = prediction(known(MANY_EXPERTS, 2, ep=16), 30.0)
    assert found.sampled == ()
    assert found.warnings == ("samples are not predicted with traffic of experts on the wire",)


def test_nothing_is_sampled_on_one_node() -> None:
    for sharding in ("fsdp", "ddp"):
        assert prediction(known(DENSE, 1, sharding=sharding), 0.3).sampled == ()


def test_a_step_shorter_than_its_bytes_warns() -> None:
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
