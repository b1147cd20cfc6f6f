"""A training job: its model, how it is spread over ranks, and what is assumed where nobody said."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ibpulse.workbench.models.architecture import Architecture
from ibpulse.workbench.models.collectives import ALGORITHMS, HIERARCHICAL, RING
from ibpulse.workbench.models.expert_traffic import BF16_BYTES, DISPATCHERS, FP8_BYTES
from ibpulse.workbench.models.placement import RankGroup

SHARDINGS = ("ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp")
FULLY_SHARDED = ("zero3", "fsdp", "hsdp")
NCCL_ALGORITHMS = (RING, "tree", HIERARCHICAL)
UNKNOWN = "unknown"
ACTIVATION_BYTES = 2
PARAMETER_BYTES = 2


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """Degrees of parallelism and what a step does; unknown inputs are `unknown` or None, and give ranges.

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
        _ = (self.tensor, self.context, self.data, self.expert, self.expert_data, self.shard_group, self.pipeline)

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

    @property
    def tensor(self) -> RankGroup:
        """The tensor-parallel group."""
        return RankGroup("tp", self.tp, 1, self.node_gpus)

    @property
    def context(self) -> RankGroup:
        """The context-parallel group."""
        return RankGroup("cp", self.cp, self.tp, self.node_gpus)

    @property
    def data(self) -> RankGroup:
        """The ranks that hold the same dense parameters: data and context ranks."""
        return RankGroup("dp", self.dp * self.cp, self.tp, self.node_gpus)

    @property
    def shard_group(self) -> RankGroup:
        """The ranks that share parameters, gradients or optimizer states: part of the data ranks under HSDP."""
        size = self.shard if self.sharding == "hsdp" else self.data.size
        return RankGroup("shard", size, self.tp, self.node_gpus)

    @property
    def replicas(self) -> RankGroup:
        """Ranks that hold the same shard under HSDP."""
        return RankGroup("replicas", self.data.size // self.shard_group.size, self.tp * self.shard, self.node_gpus)

    @property
    def expert(self) -> RankGroup:
        """The expert-parallel group, cut out of the ranks of a pipeline stage."""
        return RankGroup("ep", self.ep, self.etp, self.node_gpus)

    @property
    def expert_data(self) -> RankGroup:
        """The ranks that hold the same experts."""
        inner = self.ep * self.etp
        return RankGroup("expert-dp", self.tp * self.cp * self.dp // inner, inner, self.node_gpus)

    @property
    def stage_ranks(self) -> int:
        """Ranks of a pipeline stage, and the distance in ranks to the next one."""
        return self.tp * self.cp * self.dp

    @property
    def pipeline(self) -> RankGroup:
        """The ranks that hold one pipeline."""
        return RankGroup("pp", self.pp, self.stage_ranks, self.node_gpus)

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
    """One possible choice of everything that is unknown; `end_stage` is the place of the node in the pipeline."""

    algorithm: str
    dispatch: str
    dispatch_bytes: float
    gradient_bytes: int
    recompute: bool
    reduce_each: bool
    end_stage: bool


def readings(job: TrainingJob) -> list[Reading]:
    """Every combination of what is unknown about a job; a single one if everything is known."""
    algorithms = ALGORITHMS if job.algorithm == UNKNOWN else (job.algorithm,)
    dispatches = DISPATCHERS if job.dispatch == UNKNOWN and job.ep > 1 else (job.dispatch,)
    unknown_bytes = (FP8_BYTES, BF16_BYTES) if job.ep > 1 else (BF16_BYTES,)
    elements = (job.dispatch_bytes,) if job.dispatch_bytes else unknown_bytes
    fully = job.sharding in FULLY_SHARDED
    gradients = (job.gradient_bytes,) if job.gradient_bytes else (2,) if fully else (2, 4)
    recompute = (False, True) if job.recompute == UNKNOWN else (job.recompute == "full",)
    each = (False, True) if job.reduction == UNKNOWN and job.micro_batches > 1 else (job.reduction != "once",)
    ends = (True, False) if job.pipeline.nodes > 2 else (True,)
    choices = itertools.product(algorithms, dispatches, elements, gradients, recompute, each, ends)
    return [Reading(*choice) for choice in choices]
