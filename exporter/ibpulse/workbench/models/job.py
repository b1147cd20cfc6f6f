"""A training job, and the traffic of its step by source: bytes that a node sends and a GPU sends over NVLink.

g: ranks of a group; N: nodes that it spans; m: its ranks on one node; P: parameters of a rank before sharding.
Sources of the counts: Megatron-LM (parallel_state.py, schedules.py) and PyTorch's FSDP; S. Rajbhandari et al., ZeRO,
arXiv 1910.02054; M. Shoeybi et al., Megatron-LM, arXiv 1909.08053, for tensor parallelism.

A plain all-to-all sends one copy of a token per chosen expert. A deduplicated dispatch (DeepEP, HybridEP, NCCL EP in
its high-throughput mode) sends one copy per node and spreads it there over NVLink.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

from ibpulse.workbench.models.catalogue import Architecture
from ibpulse.workbench.models.collectives import (
    ALGORITHMS,
    HIERARCHICAL,
    RING,
    RULES,
    RankGroup,
    node_wire_bytes,
    nvlink_bytes,
)

PLAIN, DEDUPLICATED = "alltoall", "deduplicated"
DISPATCHERS = (PLAIN, DEDUPLICATED)
FP8_BYTES, BF16_BYTES = 1 + 4 / 128, 2.0
"""Bytes of an element: FP8 has a scale of 4 bytes per 128 elements (DeepEP, tests/test_internode.py)."""


def distinct_nodes(nodes: int, experts: int, chosen: int, most_nodes: int = 0) -> float:
    """Expected number of distinct nodes among the experts of a token: N (1 - C(E - E/N, k) / C(E, k)).

    Routing is uniform and without replacement over `experts`, spread evenly over `nodes`. With node-limited routing
    (`most_nodes` > 0, DeepSeek-V3), the experts are drawn from that many nodes.
    """
    if experts % nodes:
        raise ValueError(f"{experts} experts do not divide by {nodes} nodes")
    if 0 < most_nodes < nodes:
        experts, nodes = experts * most_nodes // nodes, most_nodes
    if chosen > experts:
        raise ValueError(f"{chosen} experts per token are more than the {experts} to choose from")
    return nodes * (1 - comb(experts - experts // nodes, chosen) / comb(experts, chosen))


def remote_copies(dispatcher: str, nodes: int, experts: int, chosen: int, most_nodes: int = 0) -> float:
    """Copies of a token that leave its node.

    Plain: k (N-1)/N. Deduplicated: u (N-1)/N, where u is `distinct_nodes`; by symmetry 1/N of them is its own node.
    """
    copies = chosen if dispatcher == PLAIN else distinct_nodes(nodes, experts, chosen, most_nodes)
    return copies * (nodes - 1) / nodes


SHARDINGS = ("ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp")
FULLY_SHARDED = ("zero3", "fsdp", "hsdp")
NCCL_ALGORITHMS = (RING, "tree", HIERARCHICAL)
UNKNOWN = "unknown"
ACTIVATION_BYTES = 2
PARAMETER_BYTES = 2


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """Degrees of parallelism and the work of a step; unknown inputs are `unknown` or None, and give ranges.

    `shard` is the number of ranks that share the parameters under HSDP. `micro_batch` counts sequences.
    """

    model: Architecture
    nodes: int
    node_gpus: int = 8
    tp: int = 1
    cp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int = 1
    chunks: int = 1
    sharding: str = "fsdp"
    shard: int = 0
    micro_batch: int = 1
    micro_batches: int = 1
    sequence: int = 4096
    algorithm: str = UNKNOWN
    dispatch: str = UNKNOWN
    recompute: str = UNKNOWN
    reduction: str = UNKNOWN
    gradient_bytes: int | None = None
    dispatch_bytes: float | None = None
    combine_bytes: float = BF16_BYTES

    def __post_init__(self) -> None:
        for sentence in self._faults():
            raise ValueError(sentence)
        # groups that do not fit are refused when they are made
        for name in ("tp", "cp", "dp", "ep", "expert-dp", "shard", "pp"):
            self.group(name)

    def _faults(self) -> Iterator[str]:
        inner = self.tp * self.cp * self.pp
        if self.gpus % inner:
            yield f"tp x cp x pp = {inner} does not divide {self.gpus} GPUs ({self.nodes} x {self.node_gpus})"
        if (self.tp * self.cp * self.dp) % (self.ep * self.etp):
            yield f"ep x etp = {self.ep * self.etp} does not divide the {self.tp * self.cp * self.dp} ranks of a stage"
        if self.ep > 1 and (not self.model.experts or self.model.experts % self.ep):
            yield f"ep: {self.ep} does not divide the {self.model.experts} experts of {self.model.name}"
        if self.pp > self.model.layers:
            yield f"pp: {self.pp} is more than the {self.model.layers} layers of {self.model.name}"
        if self.sharding == "hsdp" and (self.shard < 1 or (self.dp * self.cp) % self.shard):
            yield f"shard: {self.shard} does not divide the {self.dp * self.cp} data ranks; hsdp needs a divisor"
        if self.cp > 1 and not self.model.kv_width:
            yield f"cp: {self.cp} needs the width of keys of {self.model.name}; give kv-width"
        if self.sharding == "hsdp" and self.ep > 1:
            yield f"ep: {self.ep} with hsdp is not modelled; choose another sharding"
        if self.chunks > 1 and self.pp == 1:
            yield f"chunks: {self.chunks} virtual stages need pp above 1"

    @property
    def gpus(self) -> int:
        """All GPUs of the job."""
        return self.nodes * self.node_gpus

    @property
    def dp(self) -> int:
        """Data-parallel degree: what the other dimensions leave of the GPUs."""
        return self.gpus // (self.tp * self.cp * self.pp)

    def group(self, name: str) -> RankGroup:
        """A group of ranks by its name.

        tp, cp, pp, ep: those of a dimension. dp: the ranks that hold the same dense parameters, data and context ranks;
        shard: the part of them that shares parameters, gradients or optimizer states under HSDP, else all of them;
        replicas: those that hold the same shard. expert-dp: the ranks that hold the same experts. Experts are spread
        over the ranks of a pipeline stage.
        """
        data, experts = self.dp * self.cp, self.ep * self.etp
        shard = self.shard if self.sharding == "hsdp" else data
        size, stride = {
            "tp": (self.tp, 1),
            "cp": (self.cp, self.tp),
            "dp": (data, self.tp),
            "shard": (shard, self.tp),
            "replicas": (data // shard, self.tp * shard),
            "ep": (self.ep, self.etp),
            "expert-dp": (self.stage_ranks // experts, experts),
            "pp": (self.pp, self.stage_ranks),
        }[name]
        return RankGroup(name, size, stride, self.node_gpus)

    @property
    def stage_ranks(self) -> int:
        """Ranks of a pipeline stage, and the distance in ranks to the next one."""
        return self.tp * self.cp * self.dp

    @property
    def tokens_per_gpu(self) -> float:
        """Tokens of a micro-batch that one rank routes: sequences are split by context and tensor ranks."""
        return self.micro_batch * self.sequence / (self.cp * self.tp)

    @property
    def step_tokens(self) -> int:
        """Tokens of a whole step."""
        return self.micro_batch * self.micro_batches * self.sequence * self.dp


@dataclass(frozen=True, slots=True)
class Reading:
    """One choice for every unknown input; `end_stage` is the place of the node in the pipeline."""

    algorithm: str
    dispatch: str
    dispatch_bytes: float
    gradient_bytes: int
    recompute: bool
    reduce_each: bool
    end_stage: bool


def readings(job: TrainingJob) -> list[Reading]:
    """Every combination of the unknown inputs of a job; a single one if everything is known."""
    algorithms = ALGORITHMS if job.algorithm == UNKNOWN else (job.algorithm,)
    dispatches = DISPATCHERS if job.dispatch == UNKNOWN and job.ep > 1 else (job.dispatch,)
    unknown_bytes = (FP8_BYTES, BF16_BYTES) if job.ep > 1 else (BF16_BYTES,)
    elements = (job.dispatch_bytes,) if job.dispatch_bytes else unknown_bytes
    fully = job.sharding in FULLY_SHARDED
    gradients = (job.gradient_bytes,) if job.gradient_bytes else (2,) if fully else (2, 4)
    recompute = (False, True) if job.recompute == UNKNOWN else (job.recompute == "full",)
    each = (False, True) if job.reduction == UNKNOWN and job.micro_batches > 1 else (job.reduction != "once",)
    ends = (True, False) if job.group("pp").nodes > 2 else (True,)
    choices = itertools.product(algorithms, dispatches, elements, gradients, recompute, each, ends)
    return [Reading(*choice) for choice in choices]


@dataclass(frozen=True, slots=True)
class Flow:
    """Traffic of one source in a step: `count` times `size` bytes in every group of its kind.

    `operations` is the number of collectives or sends that carry them, because frameworks divide them into units.
    `wire` is what a node sends, `nvlink` what a GPU sends over NVLink, both in bytes per step.
    """

    source: str
    operation: str
    group: RankGroup
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
        yield from _sharded("", job, reading, dense + experts, job.group("shard"))
        return
    yield from _sharded("", job, reading, dense, job.group("shard"))
    yield from _sharded("expert ", job, reading, experts, job.group("expert-dp"))


def _sharded(kind: str, job: TrainingJob, reading: Reading, parameters: float, group: RankGroup) -> Iterator[Flow]:
    gradients, weights = parameters * reading.gradient_bytes, parameters * PARAMETER_BYTES
    grads_text, weights_text = f"P x {reading.gradient_bytes} B", f"P x {PARAMETER_BYTES} B"
    algorithm = reading.algorithm
    reductions = job.micro_batches if reading.reduce_each else 1
    fully = job.sharding in FULLY_SHARDED
    # the default of Megatron-LM
    bucket_parameters = max(40e6, 1e6 * job.group("dp").size)
    parts = math.ceil(job.model.layers / job.pp if fully else parameters / bucket_parameters)
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
            "gradients of replicas", "all-reduce", job.group("replicas"), algorithm, scatters, shard, text, parts
        )


def _tensor(job: TrainingJob, reading: Reading) -> Iterator[Flow]:
    """Four all-reduces per layer and micro-batch, or as many pairs of gather and scatter; half more if recomputed."""
    per_layer = 6 if reading.recompute else 4
    count = per_layer * job.micro_batches * job.model.layers / job.pp
    size = job.micro_batch * job.sequence * job.model.hidden * ACTIVATION_BYTES / job.cp
    yield collective_flow(
        "tensor parallel", "all-reduce", job.group("tp"), RING, count, size, "micro-batch x sequence/cp x hidden x 2 B"
    )


def _context(job: TrainingJob) -> Iterator[Flow]:
    """Keys and values travel once around the ring in forward, and about twice in backward."""
    count = 3 * (job.cp - 1) * job.micro_batches * job.model.layers / job.pp
    width = job.model.kv_width / job.tp
    size = 2 * job.micro_batch * (job.sequence / job.cp) * width * ACTIVATION_BYTES
    what = "2 x micro-batch x sequence/cp x kv width/tp x 2 B"
    yield collective_flow("context parallel", "send", job.group("cp"), RING, count, size, what)


def _pipeline(job: TrainingJob, reading: Reading) -> Iterator[Flow]:
    """Activations to the next stage and gradients to the one before; ranks of end stages send one less."""
    if job.pp == 1:
        return
    count = job.micro_batches * (2 * job.chunks - (1 if reading.end_stage else 0))
    size = job.tokens_per_gpu * job.model.hidden * ACTIVATION_BYTES
    group = job.group("pp")
    ranks = group.per_node
    wire = count * size * ranks if group.crosses_wire else 0.0
    inside = count * size if group.members > 1 else 0.0
    formula = f"{count:g} x S of each of {ranks} ranks, S = micro-batch x sequence/cp/tp x hidden x 2 B"
    yield Flow("pipeline", "send", group, count, size, count, wire, inside, formula)


def _experts(job: TrainingJob, reading: Reading) -> Iterator[Flow]:
    """Dispatch and combine per MoE layer and micro-batch: forward and backward, and once more if recomputed."""
    group = job.group("ep")
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
    yield Flow("experts", "all-to-all", group, 2 * pairs, size, 2 * pairs, wire, inside, formula)


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
    yield Flow("tied embeddings", "all-reduce", group, 1, size, 1, wire, inside, formula)
