"""The traffic of a training step by source: what one node sends, what a GPU sends over NVLink, and how often.

g: ranks of a group; N: nodes that it spans; m: its ranks on one node; P: parameters of a rank before sharding.
Sources of the counts: Megatron-LM (parallel_state.py, schedules.py) and PyTorch's FSDP; S. Rajbhandari et al., ZeRO,
arXiv 1910.02054; M. Shoeybi et al., Megatron-LM, arXiv 1909.08053, for tensor parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ibpulse.workbench.models.collectives import HIERARCHICAL, RING, RULES, node_wire_bytes, nvlink_bytes
from ibpulse.workbench.models.expert_traffic import remote_copies
from ibpulse.workbench.models.placement import RankGroup
from ibpulse.workbench.models.training_job import ACTIVATION_BYTES, FULLY_SHARDED, PARAMETER_BYTES, Reading, TrainingJob


@dataclass(frozen=True, slots=True)
class Flow:
    """Traffic of one source in a step: `count` times `size` bytes in every group of its kind.

    `operations` is the number of collectives or sends that carry them, because frameworks divide them into units.
    `wire` is what a node sends, `nvlink` what a GPU sends over NVLink, both in bytes per step.
    """

    source: str
    operation: str
    group: RankGroup
    algorithm: str
    count: float
    size: float
    operations: float
    wire: float
    nvlink: float
    formula: str


def step_flows(job: TrainingJob, reading: Reading) -> list[Flow]:
    """All sources of traffic of a step under one reading of the unknowns, without those that move nothing."""
    found = [*_data(job, reading), *_tensor(job, reading), *_context(job), *_pipeline(job, reading)]
    return [flow for flow in (*found, *_experts(job, reading), *_embeddings(job)) if flow.count * flow.size]


def collective_flow(
    source: str,
    operation: str,
    group: RankGroup,
    algorithm: str,
    count: float,
    size: float,
    what: str,
    parts: int = 1,
) -> Flow:
    """The traffic of a collective; `what` names S in the formula.

    `parts` is the number of units. NCCL has no trees for gathers and scatters.
    """
    if algorithm == "tree":
        algorithm = HIERARCHICAL if operation == "all-reduce" else RING
    return Flow(
        source,
        operation,
        group,
        algorithm,
        count,
        size if group.size > 1 else 0.0,
        count * parts,
        count * node_wire_bytes(operation, algorithm, size, group),
        count * nvlink_bytes(operation, algorithm, size, group),
        f"{count:g} x G/m x {RULES[operation][algorithm].formula}, S = {what}",
    )


def _data(job: TrainingJob, reading: Reading) -> Iterator[Flow]:
    """Gradients and parameters of the dense layers, then those of the experts over their own group."""
    dense = job.model.dense_parameters / (job.tp * job.pp)
    experts = job.model.expert_parameters / (job.etp * job.ep * job.pp)
    if job.ep == job.etp == job.tp == 1 or not experts:
        yield from _sharded("", job, reading, dense + experts, job.shard_group)
        return
    yield from _sharded("", job, reading, dense, job.shard_group)
    yield from _sharded("expert ", job, reading, experts, job.expert_data)


def _sharded(kind: str, job: TrainingJob, reading: Reading, parameters: float, group: RankGroup) -> Iterator[Flow]:
    gradients, weights = parameters * reading.gradient_bytes, parameters * PARAMETER_BYTES
    grads_text, weights_text = f"P x {reading.gradient_bytes} B", f"P x {PARAMETER_BYTES} B"
    algorithm = reading.algorithm
    reductions = job.micro_batches if reading.reduce_each else 1
    fully = job.sharding in FULLY_SHARDED
    parts = math.ceil(job.model.layers / job.pp) if fully else math.ceil(parameters / bucket_parameters(job))
    if job.sharding == "ddp":
        yield collective_flow(f"{kind}gradients", "all-reduce", group, algorithm, 1, gradients, grads_text, parts)
        return
    gathers = 2 * job.micro_batches if fully else 1
    scatters = reductions if fully or job.sharding == "zero2" else 1
    yield collective_flow(f"{kind}parameters", "all-gather", group, algorithm, gathers, weights, weights_text, parts)
    yield collective_flow(
        f"{kind}gradients", "reduce-scatter", group, algorithm, scatters, gradients, grads_text, parts
    )
    if job.sharding == "hsdp" and not kind:
        shard = gradients / group.size
        text = f"{grads_text} / {group.size} shards"
        yield collective_flow(
            "gradients of replicas", "all-reduce", job.replicas, algorithm, scatters, shard, text, parts
        )


def bucket_parameters(job: TrainingJob) -> float:
    """Parameters of a gradient bucket: max(40e6, 1e6 x data ranks), the default of Megatron-LM."""
    return max(40e6, 1e6 * job.data.size)


def _tensor(job: TrainingJob, reading: Reading) -> Iterator[Flow]:
    """Four all-reduces per layer and micro-batch, or as many pairs of gather and scatter; half more if recomputed."""
    per_layer = 6 if reading.recompute else 4
    count = per_layer * job.micro_batches * job.model.layers / job.pp
    size = job.micro_batch * job.sequence * job.model.hidden * ACTIVATION_BYTES / job.cp
    yield collective_flow(
        "tensor parallel", "all-reduce", job.tensor, RING, count, size, "micro-batch x sequence/cp x hidden x 2 B"
    )


def _context(job: TrainingJob) -> Iterator[Flow]:
    """Keys and values travel once around the ring in forward, and about twice in backward."""
    count = 3 * (job.cp - 1) * job.micro_batches * job.model.layers / job.pp
    width = job.model.kv_width / job.tp
    size = 2 * job.micro_batch * (job.sequence / job.cp) * width * ACTIVATION_BYTES
    what = "2 x micro-batch x sequence/cp x kv width/tp x 2 B"
    yield collective_flow("context parallel", "send", job.context, RING, count, size, what)


def _pipeline(job: TrainingJob, reading: Reading) -> Iterator[Flow]:
    """Activations to the next stage and gradients to the one before; ranks of end stages send one less."""
    if job.pp == 1:
        return
    count = job.micro_batches * (2 * job.chunks - (1 if reading.end_stage else 0))
    size = job.tokens_per_gpu * job.model.hidden * ACTIVATION_BYTES
    group = job.pipeline
    ranks = group.per_node
    wire = count * size * ranks if group.crosses_wire else 0.0
    inside = count * size if group.members > 1 else 0.0
    formula = f"{count:g} x S of each of {ranks} ranks, S = micro-batch x sequence/cp/tp x hidden x 2 B"
    yield Flow("pipeline", "send", group, RING, count, size, count, wire, inside, formula)


def _experts(job: TrainingJob, reading: Reading) -> Iterator[Flow]:
    """Dispatch and combine per MoE layer and micro-batch: forward and backward, and once more if recomputed."""
    group = job.expert
    if job.ep == 1 or not job.model.experts:
        return
    model = job.model
    pairs = (3 if reading.recompute else 2) * job.micro_batches * model.moe_layers / job.pp
    # of a token in a dispatch and a combine together
    both = model.hidden * (reading.dispatch_bytes + job.combine_bytes)
    copies = remote_copies(reading.dispatch, group.nodes, model.experts, model.chosen_experts, model.most_nodes)
    # a GPU's own share of a token's copies stays in its memory
    size = job.tokens_per_gpu * model.chosen_experts * both / 2
    wire = pairs * job.node_gpus * job.tokens_per_gpu * copies * both
    inside = 2 * pairs * nvlink_bytes("all-to-all", RING, size, group)
    element = f"({reading.dispatch_bytes:.4g} + {job.combine_bytes:.4g} B)"
    formula = f"{pairs:g} x G x tokens x {copies:.4g} remote copies x hidden x {element}"
    yield Flow("experts", "all-to-all", group, RING, 2 * pairs, size, 2 * pairs, wire, inside, formula)


def _embeddings(job: TrainingJob) -> Iterator[Flow]:
    """Gradients of embeddings that the first and the last stage share."""
    if job.pp == 1 or not job.model.tied:
        return
    size = job.model.vocabulary * job.model.hidden / job.tp * 4
    # the ends of a pipeline need not be at a distance that fills nodes evenly, as groups otherwise are
    crosses = job.nodes > 1
    group = RankGroup("embeddings", 2, job.node_gpus, job.node_gpus) if crosses else RankGroup("embeddings", 2, 1, 2)
    ranks = min(job.stage_ranks, job.node_gpus)
    # in a ring of two, each sends half of the array twice
    wire, inside = (ranks * size, 0.0) if crosses else (0.0, size)
    formula = f"S of each of {ranks} ranks, S = vocabulary x hidden / tp x 4 B"
    yield Flow("tied embeddings", "all-reduce", group, RING, 1, size, 1, wire, inside, formula)
