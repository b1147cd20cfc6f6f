"""The rules about tensor, pipeline and data parallelism: overlap of their collectives, and torch's FSDP2."""

from __future__ import annotations

from ibpulse.overlap.megatron_rules import (
    ARGUMENTS,
    BRIDGE,
    BRIDGE_CONFIG,
    CHANGED,
    OFF,
    STOPS,
    WARNING,
    Effect,
    OverlapRule,
    RuleSource,
)
from ibpulse.overlap.rule_conditions import (
    Condition,
    at_least,
    differs,
    either,
    equals,
    every,
    off,
    on,
    same,
)

BUCKET_SIZE = 128 * 1024 * 1024
FSDP2 = on("use_torch_fsdp2")
SEVERAL_STAGES = at_least("pipeline_model_parallel_size", 2)
INTERLEAVED = at_least("virtual_pipeline_model_parallel_size", 2)
VIRTUAL = differs("virtual_pipeline_model_parallel_size", None)
DISTRIBUTED = on("use_distributed_optimizer")
WITH_STEP = on("overlap_param_gather_with_optimizer_step")
BRIDGE_DATA_PARALLEL = every(on("comm_overlap"), DISTRIBUTED, at_least("data_parallel_size", 2))


def _rule(
    rule_id: str,
    applies: Condition,
    needs: Condition,
    sources: tuple[RuleSource, ...],
    change: str,
    effect: Effect = STOPS,
) -> OverlapRule:
    return OverlapRule(rule_id, applies, needs, sources, effect, change)


def _fsdp2(rule_id: str, needs: Condition, change: str) -> OverlapRule:
    return OverlapRule(f"fsdp2-{rule_id}", FSDP2, needs, (ARGUMENTS,), STOPS, change)


PARALLEL_RULES = (
    _rule(
        "tp-overlap-sequence-parallel",
        on("tp_comm_overlap"),
        on("sequence_parallel"),
        (ARGUMENTS, BRIDGE),
        "switch sequence_parallel on; Megatron-LM stops, Megatron-Bridge switches the overlap off",
    ),
    _rule(
        "tp-overlap-ranks",
        on("tp_comm_overlap"),
        at_least("tensor_model_parallel_size", 2),
        (BRIDGE,),
        "set tensor_model_parallel_size to 2 or more",
        OFF,
    ),
    _rule(
        "tp-overlap-transformer-engine",
        on("tp_comm_overlap"),
        differs("transformer_engine", None),
        (BRIDGE,),
        "install Transformer Engine",
        OFF,
    ),
    _rule(
        "p2p-overlap-interleaved",
        every(on("overlap_p2p_comm"), SEVERAL_STAGES),
        INTERLEAVED,
        (ARGUMENTS, BRIDGE),
        "set virtual_pipeline_model_parallel_size to 2 or more; without it, transfers between stages do not overlap",
        WARNING,
    ),
    _rule(
        "p2p-overlap-stages",
        every(on("comm_overlap"), on("overlap_p2p_comm")),
        SEVERAL_STAGES,
        (BRIDGE,),
        "use two or more pipeline stages, or switch overlap_p2p_comm off",
        WARNING,
    ),
    _rule(
        "p2p-overlap-batch",
        every(on("overlap_p2p_comm"), SEVERAL_STAGES, INTERLEAVED),
        off("batch_p2p_comm"),
        (BRIDGE,),
        "switch batch_p2p_comm off",
        CHANGED,
    ),
    _rule(
        "align-param-gather-interleaved",
        every(on("align_param_gather"), SEVERAL_STAGES),
        VIRTUAL,
        (ARGUMENTS,),
        "set virtual_pipeline_model_parallel_size; without it, align_param_gather is switched off",
        WARNING,
    ),
    _rule(
        "virtual-stages-overlap",
        every(VIRTUAL, on("overlap_p2p_comm")),
        SEVERAL_STAGES,
        (ARGUMENTS,),
        "use two or more pipeline stages, or no virtual ones",
    ),
    _rule(
        "virtual-stages-no-overlap",
        every(VIRTUAL, off("overlap_p2p_comm")),
        at_least("pipeline_model_parallel_size", 3),
        (ARGUMENTS,),
        "use three or more pipeline stages, or switch overlap_p2p_comm on",
    ),
    _rule(
        "param-gather-optimizer",
        on("overlap_param_gather"),
        either(DISTRIBUTED, on("use_megatron_fsdp"), equals("optimizer", "dist_muon")),
        (ARGUMENTS,),
        "switch use_distributed_optimizer or use_megatron_fsdp on",
    ),
    _rule(
        "param-gather-grad-reduce",
        on("overlap_param_gather"),
        on("overlap_grad_reduce"),
        (ARGUMENTS,),
        "switch overlap_grad_reduce on",
    ),
    _rule(
        "param-gather-save-params",
        on("overlap_param_gather"),
        equals("save_params_interval", None),
        (ARGUMENTS,),
        "remove save_params_interval, or switch overlap_param_gather off",
    ),
    _rule("step-gather-optimizer", WITH_STEP, DISTRIBUTED, (ARGUMENTS,), "switch use_distributed_optimizer on"),
    _rule(
        "step-gather-param-gather",
        WITH_STEP,
        on("overlap_param_gather"),
        (ARGUMENTS,),
        "switch overlap_param_gather on",
    ),
    _rule(
        "step-gather-virtual-stages",
        WITH_STEP,
        VIRTUAL,
        (ARGUMENTS,),
        "set virtual_pipeline_model_parallel_size to 2 or more",
    ),
    _rule(
        "step-gather-checkpoint",
        WITH_STEP,
        equals("ckpt_format", "torch"),
        (ARGUMENTS,),
        "set ckpt_format to torch, which is not a distributed checkpoint",
    ),
    _rule(
        "data-parallel-optimizer",
        every(on("comm_overlap"), either(on("overlap_grad_reduce"), on("overlap_param_gather"))),
        DISTRIBUTED,
        (BRIDGE,),
        "switch ddp.use_distributed_optimizer on; without it, comm_overlap changes nothing for data parallelism",
        WARNING,
    ),
    _rule(
        "data-parallel-overlap",
        BRIDGE_DATA_PARALLEL,
        every(on("overlap_grad_reduce"), on("overlap_param_gather")),
        (BRIDGE,),
        "switch both on in ddp as well, or off in comm_overlap; Megatron-Bridge switches them on by itself",
        CHANGED,
    ),
    _rule(
        "data-parallel-bucket",
        BRIDGE_DATA_PARALLEL,
        equals("bucket_size", BUCKET_SIZE),
        (BRIDGE,),
        f"set bucket_size in comm_overlap for another one; Megatron-Bridge sets it to {BUCKET_SIZE}",
        CHANGED,
    ),
    _rule(
        "data-parallel-align",
        every(BRIDGE_DATA_PARALLEL, SEVERAL_STAGES, INTERLEAVED),
        on("align_param_gather"),
        (BRIDGE,),
        "switch align_param_gather on, or off in comm_overlap; Megatron-Bridge switches it on by itself",
        CHANGED,
    ),
    _rule(
        "param-gather-agreement",
        on("comm_overlap"),
        same("overlap_param_gather", "optimizer_overlap_param_gather"),
        (BRIDGE_CONFIG,),
        "set overlap_param_gather in ddp and optimizer alike; Megatron-Bridge corrects it with a message",
        CHANGED,
    ),
    _fsdp2("torch", at_least("torch", "2.4.0"), "use PyTorch 2.4.0 or newer"),
    _fsdp2("stages", equals("pipeline_model_parallel_size", 1), "use one pipeline stage"),
    _fsdp2("expert-ranks", equals("expert_model_parallel_size", 1), "set expert_model_parallel_size to 1"),
    _fsdp2("optimizer", off("use_distributed_optimizer"), "switch use_distributed_optimizer off"),
    _fsdp2("fusion", off("gradient_accumulation_fusion"), "switch gradient_accumulation_fusion off"),
    _fsdp2(
        "checkpoint", equals("ckpt_format", "torch_dist", "torch_dcp"), "set ckpt_format to torch_dist or torch_dcp"
    ),
    _fsdp2("embeddings", on("untie_embeddings_and_output_weights"), "switch untie_embeddings_and_output_weights on"),
    _fsdp2("precision", off("fp16"), "train in bf16 or fp32"),
    _fsdp2("connections", differs("CUDA_DEVICE_MAX_CONNECTIONS", 1), "set CUDA_DEVICE_MAX_CONNECTIONS to more than 1"),
)
