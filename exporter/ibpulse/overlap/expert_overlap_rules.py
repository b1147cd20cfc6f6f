"""The rules about experts: the overlap of their exchanges, delayed weight gradients, shared experts, dispatchers."""

from __future__ import annotations

from ibpulse.overlap.megatron_rules import (
    ADVICE,
    ARGUMENTS,
    BRIDGE,
    BRIDGE_ADVICE,
    BRIDGE_CONFIG,
    BRIDGE_FLEX,
    CHANGED,
    CORE,
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
    begins,
    below,
    differs,
    either,
    equals,
    every,
    has,
    lacks,
    off,
    on,
)

BOTH = (CORE, BRIDGE)
EP_OVERLAP = on("overlap_moe_expert_parallel_comm")
WGRAD = on("delay_wgrad_compute")
EARLY_WGRAD = on("overlap_dispatch_backward_with_experts_wgrad")
TE_GRAPH = equals("cuda_graph_impl", "transformer_engine")
GRAPHED_ROUTER = every(
    has("cuda_graph_modules", "moe_router"),
    differs("moe_shared_expert_intermediate_size", None),
    off("moe_shared_expert_overlap"),
)
GRAPHED_ATTENTION = every(WGRAD, has("cuda_graph_modules", "attn"))
GRAPHED_WGRAD = every(WGRAD, either(has("cuda_graph_modules", "attn"), GRAPHED_ROUTER))
OLDER_THAN_BLACKWELL = every(
    below("compute_capability", "10.0"),
    either(at_least("tensor_model_parallel_size", 2), at_least("context_parallel_size", 2)),
)
FLEX = equals("moe_token_dispatcher_type", "flex")
DEEPEP, HYBRIDEP, NCCLEP = (equals("moe_flex_dispatcher_backend", name) for name in ("deepep", "hybridep", "ncclep"))


def _ep(
    rule_id: str,
    needs: Condition,
    change: str,
    sources: tuple[RuleSource, ...] = BOTH,
    also: Condition | None = None,
    effect: Effect = STOPS,
) -> OverlapRule:
    """A rule about the overlap of expert-parallel communication."""
    applies = every(EP_OVERLAP, also) if also else EP_OVERLAP
    return OverlapRule(f"ep-overlap-{rule_id}", applies, needs, sources, effect, change)


def _wgrad(
    rule_id: str, needs: Condition, change: str, sources: tuple[RuleSource, ...], applies: Condition = WGRAD
) -> OverlapRule:
    """A rule about delayed weight gradients."""
    return OverlapRule(f"delay-wgrad-{rule_id}", applies, needs, sources, STOPS, change)


EXPERT_RULES = (
    _ep("torch", at_least("torch", "2.6.0"), "use PyTorch 2.6.0 or newer; older ones may hang"),
    _ep(
        "virtual-stages",
        differs("virtual_pipeline_model_parallel_size", None),
        "set virtual_pipeline_model_parallel_size, or use one pipeline stage",
        also=at_least("pipeline_model_parallel_size", 2),
    ),
    _ep("expert-ranks", at_least("expert_model_parallel_size", 2), "set expert_model_parallel_size to 2 or more"),
    _ep("experts", at_least("num_moe_experts", 2), "use a model with experts, or switch the overlap off", (BRIDGE,)),
    _ep(
        "dispatcher",
        equals("moe_token_dispatcher_type", "alltoall", "flex"),
        "set moe_token_dispatcher_type to alltoall or flex",
    ),
    _ep("full-recompute", differs("recompute_granularity", "full"), "use selective recomputation, or none"),
    _ep("recompute-method", equals("recompute_method", None), "remove recompute_method"),
    _ep("recompute-layers", equals("recompute_num_layers", None), "remove recompute_num_layers"),
    _ep("recompute-moe", lacks("recompute_modules", "moe"), "remove moe from recompute_modules"),
    _ep("precision", either(on("bf16"), on("fp16")), "train in bf16 or fp16"),
    _ep("shared-experts", off("moe_shared_expert_overlap"), "switch moe_shared_expert_overlap off"),
    _ep("mtp", equals("mtp_num_layers", None, 0, 1), "use at most one layer of multi-token prediction"),
    _ep(
        "ncclep-offload",
        either(off("fine_grained_activation_offloading"), lacks("offload_modules", "expert_fc1")),
        "remove expert_fc1 from offload_modules, or use another backend",
        (CORE,),
        every(FLEX, NCCLEP),
    ),
    _ep(
        "cuda-graph",
        lacks("cuda_graph_modules", "moe", "mlp"),
        "remove moe and mlp from cuda_graph_modules",
        (CORE,),
        TE_GRAPH,
    ),
    _ep(
        "energon-packing",
        off("native_energon_packing"),
        "pack sequences before training, or expect no overlap",
        (BRIDGE_CONFIG,),
        effect=OFF,
    ),
    _ep(
        "connections",
        every(equals("tensor_model_parallel_size", 1), equals("context_parallel_size", 1)),
        "before Blackwell, use TP 1 and CP 1, or measure with CUDA_DEVICE_MAX_CONNECTIONS 1 and 32",
        (ARGUMENTS,),
        below("compute_capability", "10.0"),
        WARNING,
    ),
    OverlapRule(
        "connections",
        every(
            OLDER_THAN_BLACKWELL,
            off("overlap_moe_expert_parallel_comm"),
            off("use_torch_fsdp2"),
            off("use_megatron_fsdp"),
        ),
        equals("CUDA_DEVICE_MAX_CONNECTIONS", 1),
        (ARGUMENTS,),
        STOPS,
        "export CUDA_DEVICE_MAX_CONNECTIONS=1",
    ),
    _ep(
        "small-groups",
        either(
            at_least("expert_model_parallel_size", 5),
            differs("moe_token_dispatcher_type", "alltoall"),
            at_least("nodes", 3),
        ),
        "measure with and without it: up to EP 4 with alltoall on one or two nodes, and with few micro-batches, the "
        "overlap may cost more than it hides",
        (BRIDGE_ADVICE,),
        effect=ADVICE,
    ),
    _wgrad("ep-overlap", EP_OVERLAP, "switch overlap_moe_expert_parallel_comm on", BOTH),
    _wgrad(
        "grad-reduce",
        at_least("transformer_engine", "2.8.0"),
        "use Transformer Engine 2.8.0 or newer (Megatron-Bridge asks for 2.7.0), or switch overlap_grad_reduce off",
        (BRIDGE, ARGUMENTS),
        every(WGRAD, on("overlap_grad_reduce")),
    ),
    _wgrad(
        "fusion",
        at_least("transformer_engine", "2.7.0"),
        "use Transformer Engine 2.7.0 or newer; Megatron-Bridge needs it with gradient_accumulation_fusion, "
        "Megatron-LM without",
        (BRIDGE, ARGUMENTS),
    ),
    _wgrad(
        "cuda-graph",
        at_least("transformer_engine", "2.10.0"),
        "use Transformer Engine 2.10.0 or newer, or another cuda_graph_impl",
        (CORE,),
        every(WGRAD, TE_GRAPH),
    ),
    _wgrad(
        "graph-transformer-engine",
        at_least("transformer_engine", "2.12.0"),
        "use Transformer Engine 2.12.0 or newer, or keep attention and router out of the graph",
        (BRIDGE, ARGUMENTS),
        GRAPHED_WGRAD,
    ),
    _wgrad(
        "graph-fusion",
        on("gradient_accumulation_fusion"),
        "switch gradient_accumulation_fusion on, or keep attention and router out of the graph",
        (BRIDGE, ARGUMENTS),
        GRAPHED_WGRAD,
    ),
    _wgrad(
        "graph-bias",
        every(off("add_bias_linear"), off("add_qkv_bias")),
        "switch add_bias_linear and add_qkv_bias off, or keep attention out of the graph",
        (BRIDGE, ARGUMENTS),
        GRAPHED_ATTENTION,
    ),
    _wgrad(
        "implementation",
        equals("transformer_impl", "transformer_engine"),
        "set transformer_impl to transformer_engine",
        (ARGUMENTS,),
    ),
    OverlapRule(
        "dispatch-wgrad-ep-overlap",
        EARLY_WGRAD,
        off("overlap_moe_expert_parallel_comm"),
        (CORE,),
        STOPS,
        "switch one of both overlaps off",
    ),
    OverlapRule(
        "dispatch-wgrad-transformer-engine",
        EARLY_WGRAD,
        at_least("transformer_engine", "2.3.0"),
        (CORE,),
        STOPS,
        "use Transformer Engine 2.3.0 or newer",
    ),
    OverlapRule(
        "dispatch-wgrad-delayed",
        EARLY_WGRAD,
        off("delay_wgrad_compute"),
        (CORE,),
        STOPS,
        "switch delay_wgrad_compute off, or the other overlap",
    ),
    OverlapRule(
        "early-attention-release",
        on("ep_overlap_early_attn_memory_release"),
        EP_OVERLAP,
        (CORE,),
        STOPS,
        "switch overlap_moe_expert_parallel_comm on, or the early release off",
    ),
    OverlapRule(
        "shared-experts-dispatcher",
        on("moe_shared_expert_overlap"),
        equals("moe_token_dispatcher_type", "alltoall", "flex"),
        (CORE,),
        STOPS,
        "set moe_token_dispatcher_type to alltoall or flex",
    ),
    OverlapRule(
        "shared-experts-recompute",
        on("moe_shared_expert_overlap"),
        lacks("recompute_modules", "shared_experts"),
        (CORE,),
        STOPS,
        "remove shared_experts from recompute_modules",
    ),
    OverlapRule(
        "flex-deepep-gpu",
        every(FLEX, DEEPEP),
        either(
            every(at_least("compute_capability", "8.0"), below("compute_capability", "10.0")),
            begins("gpu_name", "NVIDIA B200", "NVIDIA B300"),
        ),
        (BRIDGE_FLEX,),
        OFF,
        "use hybridep or alltoall on this GPU; otherwise the dispatcher falls back to alltoall",
    ),
    OverlapRule(
        "flex-hybridep-gpu",
        every(FLEX, HYBRIDEP),
        every(at_least("compute_capability", "8.0"), below("compute_capability", "11.0")),
        (BRIDGE_FLEX,),
        OFF,
        "use alltoall on this GPU; otherwise the dispatcher falls back to it",
    ),
    OverlapRule(
        "flex-shared-experts",
        every(FLEX, either(DEEPEP, HYBRIDEP)),
        off("moe_shared_expert_overlap"),
        (BRIDGE_FLEX,),
        CHANGED,
        "switch moe_shared_expert_overlap off, or use alltoall",
    ),
    OverlapRule(
        "flex-backend",
        FLEX,
        differs("moe_flex_dispatcher_backend", None),
        (BRIDGE_CONFIG,),
        CHANGED,
        "set moe_flex_dispatcher_backend to deepep or hybridep; otherwise the dispatcher becomes alltoall",
    ),
    OverlapRule(
        "flex-ncclep",
        FLEX,
        differs("moe_flex_dispatcher_backend", "ncclep"),
        (BRIDGE_FLEX,),
        WARNING,
        "use deepep or hybridep: Megatron-Core has ncclep, the helper of Megatron-Bridge has not",
    ),
)
