"""Every rule both ways, and unknown where an option that decides is missing."""

from __future__ import annotations

import ast

import pytest

from ibpulse.workbench.models.megatron_rules import (
    DATE,
    EFFECTS,
    GivenOption,
    Options,
    OptionValue,
    check_rule,
    check_run,
    holds,
    version_key,
)
from ibpulse.workbench.models.megatron_rules import RULES as ALL_RULES
from ibpulse.workbench.models.run_options import BRIDGE, KINDS, LM
from tests.tables import for_each

RULES = {rule.id: rule for rule in ALL_RULES}
Values = dict[str, OptionValue]
EP: Values = {"overlap_moe_expert_parallel_comm": True}
WGRAD: Values = {"delay_wgrad_compute": True}
TE, PP, VPP = "transformer_engine", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size"
DISPATCHER, BACKEND = "moe_token_dispatcher_type", "moe_flex_dispatcher_backend"
GRAPH = "cuda_graph_modules"
ATTENTION: Values = {**WGRAD, GRAPH: ("attn",)}
ROUTER: Values = {
    **WGRAD, GRAPH: ("moe_router",), "moe_shared_expert_intermediate_size": 512, "moe_shared_expert_overlap": False,
}  # fmt: skip
HOPPER: Values = {"compute_capability": "9.0"}
EARLY: Values = {"overlap_dispatch_backward_with_experts_wgrad": True}
SHARED: Values = {"moe_shared_expert_overlap": True}
FLEX: Values = {DISPATCHER: "flex"}
STEP: Values = {"overlap_param_gather_with_optimizer_step": True}
GATHER: Values = {"overlap_param_gather": True}
BRIDGE_DP: Values = {"comm_overlap": True, "use_distributed_optimizer": True, "data_parallel_size": 8}
FSDP2: Values = {"use_torch_fsdp2": True}
P2P: Values = {"overlap_p2p_comm": True}
TP: Values = {"tp_comm_overlap": True}

CASES: list[tuple[str, Values, Values, Values]] = [
    # rule, where it applies, options that comply, options that do not
    ("ep-overlap-torch", EP, {"torch": "2.6.0"}, {"torch": "2.6.0a0+df5bbc09d1.nv24.12"}),
    ("ep-overlap-virtual-stages", {**EP, PP: 2}, {VPP: 2}, {VPP: None}),
    ("ep-overlap-expert-ranks", EP, {"expert_model_parallel_size": 2}, {"expert_model_parallel_size": 1}),
    ("ep-overlap-experts", EP, {"num_moe_experts": 2}, {"num_moe_experts": None}),
    ("ep-overlap-dispatcher", EP, {DISPATCHER: "alltoall"}, {DISPATCHER: "allgather"}),
    ("ep-overlap-dispatcher", EP, FLEX, {DISPATCHER: None}),
    ("ep-overlap-full-recompute", EP, {"recompute_granularity": "selective"}, {"recompute_granularity": "full"}),
    ("ep-overlap-recompute-method", EP, {"recompute_method": None}, {"recompute_method": "uniform"}),
    ("ep-overlap-recompute-layers", EP, {"recompute_num_layers": None}, {"recompute_num_layers": 4}),
    ("ep-overlap-recompute-moe", EP, {"recompute_modules": None}, {"recompute_modules": ("core_attn", "moe")}),
    ("ep-overlap-precision", EP, {"bf16": False, "fp16": True}, {"bf16": False, "fp16": False}),
    ("ep-overlap-shared-experts", EP, {"moe_shared_expert_overlap": False}, {"moe_shared_expert_overlap": True}),
    ("ep-overlap-mtp", EP, {"mtp_num_layers": None}, {"mtp_num_layers": 2}),
    ("ep-overlap-mtp", EP, {"mtp_num_layers": 1}, {"mtp_num_layers": 3}),
    (
        "ep-overlap-ncclep-offload",
        {**EP, **FLEX, BACKEND: "ncclep", "fine_grained_activation_offloading": True},
        {"offload_modules": ("attn",)},
        {"offload_modules": ("expert_fc1",)},
    ),
    ("ep-overlap-cuda-graph", {**EP, "cuda_graph_impl": "transformer_engine"}, {GRAPH: ("attn",)}, {GRAPH: ("mlp",)}),
    ("ep-overlap-energon-packing", EP, {"native_energon_packing": False}, {"native_energon_packing": True}),
    (
        "ep-overlap-connections",
        {**EP, **HOPPER},
        {"tensor_model_parallel_size": 1, "context_parallel_size": 1},
        {"tensor_model_parallel_size": 1, "context_parallel_size": 2},
    ),
    (
        "connections",
        {
            **HOPPER,
            "tensor_model_parallel_size": 2,
            "overlap_moe_expert_parallel_comm": False,
            "use_torch_fsdp2": False,
            "use_megatron_fsdp": False,
        },
        {"CUDA_DEVICE_MAX_CONNECTIONS": 1},
        {"CUDA_DEVICE_MAX_CONNECTIONS": 8},
    ),
    (
        "ep-overlap-small-groups",
        {**EP, DISPATCHER: "alltoall", "nodes": 2},
        {"expert_model_parallel_size": 8},
        {"expert_model_parallel_size": 4},
    ),
    ("delay-wgrad-ep-overlap", WGRAD, EP, {"overlap_moe_expert_parallel_comm": False}),
    ("delay-wgrad-grad-reduce", {**WGRAD, "overlap_grad_reduce": True}, {TE: "2.8.0"}, {TE: "2.7.0"}),
    ("delay-wgrad-fusion", WGRAD, {TE: "2.7.0"}, {TE: "2.6.0"}),
    ("delay-wgrad-cuda-graph", {**WGRAD, "cuda_graph_impl": "transformer_engine"}, {TE: "2.10.0"}, {TE: "2.9.0"}),
    ("delay-wgrad-graph-transformer-engine", ATTENTION, {TE: "2.12.0"}, {TE: "2.11.0"}),
    ("delay-wgrad-graph-transformer-engine", ROUTER, {TE: "2.12.0"}, {TE: "2.11.0"}),
    (
        "delay-wgrad-graph-fusion",
        ATTENTION,
        {"gradient_accumulation_fusion": True},
        {"gradient_accumulation_fusion": False},
    ),
    (
        "delay-wgrad-graph-bias",
        ATTENTION,
        {"add_bias_linear": False, "add_qkv_bias": False},
        {"add_bias_linear": False, "add_qkv_bias": True},
    ),
    ("delay-wgrad-implementation", WGRAD, {"transformer_impl": "transformer_engine"}, {"transformer_impl": "local"}),
    ("dispatch-wgrad-ep-overlap", EARLY, {"overlap_moe_expert_parallel_comm": False}, EP),
    ("dispatch-wgrad-transformer-engine", EARLY, {TE: "2.3.0"}, {TE: "2.2.0"}),
    ("dispatch-wgrad-delayed", EARLY, {"delay_wgrad_compute": False}, WGRAD),
    (
        "early-attention-release",
        {"ep_overlap_early_attn_memory_release": True},
        EP,
        {"overlap_moe_expert_parallel_comm": False},
    ),
    ("shared-experts-dispatcher", SHARED, {DISPATCHER: "alltoall"}, {DISPATCHER: "allgather"}),
    ("shared-experts-recompute", SHARED, {"recompute_modules": ("moe",)}, {"recompute_modules": ("shared_experts",)}),
    (
        "flex-deepep-gpu",
        {**FLEX, BACKEND: "deepep"},
        {"compute_capability": "9.0", "gpu_name": "NVIDIA H100 80GB HBM3"},
        {"compute_capability": "10.0", "gpu_name": "NVIDIA GB200"},
    ),
    (
        "flex-deepep-gpu",
        {**FLEX, BACKEND: "deepep"},
        {"compute_capability": "10.0", "gpu_name": "NVIDIA B200"},
        {"compute_capability": "7.0", "gpu_name": "Tesla V100"},
    ),
    (
        "flex-hybridep-gpu",
        {**FLEX, BACKEND: "hybridep"},
        {"compute_capability": "10.0"},
        {"compute_capability": "12.0"},
    ),
    (
        "flex-shared-experts",
        {**FLEX, BACKEND: "hybridep"},
        {"moe_shared_expert_overlap": False},
        {"moe_shared_expert_overlap": True},
    ),
    ("flex-backend", FLEX, {BACKEND: "deepep"}, {BACKEND: None}),
    ("flex-ncclep", FLEX, {BACKEND: "hybridep"}, {BACKEND: "ncclep"}),
    ("tp-overlap-sequence-parallel", TP, {"sequence_parallel": True}, {"sequence_parallel": False}),
    ("tp-overlap-ranks", TP, {"tensor_model_parallel_size": 2}, {"tensor_model_parallel_size": 1}),
    ("tp-overlap-transformer-engine", TP, {TE: "2.1.0"}, {TE: None}),
    ("p2p-overlap-interleaved", {**P2P, PP: 2}, {VPP: 2}, {VPP: None}),
    ("p2p-overlap-stages", {**P2P, "comm_overlap": True}, {PP: 2}, {PP: 1}),
    ("p2p-overlap-batch", {**P2P, PP: 2, VPP: 2}, {"batch_p2p_comm": False}, {"batch_p2p_comm": True}),
    ("align-param-gather-interleaved", {"align_param_gather": True, PP: 2}, {VPP: 2}, {VPP: None}),
    ("virtual-stages-overlap", {**P2P, VPP: 2}, {PP: 2}, {PP: 1}),
    ("virtual-stages-no-overlap", {"overlap_p2p_comm": False, VPP: 2}, {PP: 3}, {PP: 2}),
    (
        "param-gather-optimizer",
        GATHER,
        {"use_distributed_optimizer": False, "use_megatron_fsdp": False, "optimizer": "dist_muon"},
        {"use_distributed_optimizer": False, "use_megatron_fsdp": False, "optimizer": "adam"},
    ),
    ("param-gather-grad-reduce", GATHER, {"overlap_grad_reduce": True}, {"overlap_grad_reduce": False}),
    ("param-gather-save-params", GATHER, {"save_params_interval": None}, {"save_params_interval": 100}),
    ("step-gather-optimizer", STEP, {"use_distributed_optimizer": True}, {"use_distributed_optimizer": False}),
    ("step-gather-param-gather", STEP, GATHER, {"overlap_param_gather": False}),
    ("step-gather-virtual-stages", STEP, {VPP: 2}, {VPP: None}),
    ("step-gather-checkpoint", STEP, {"ckpt_format": "torch"}, {"ckpt_format": "torch_dist"}),
    (
        "data-parallel-optimizer",
        {"comm_overlap": True, "overlap_grad_reduce": True},
        {"use_distributed_optimizer": True},
        {"use_distributed_optimizer": False},
    ),
    (
        "data-parallel-overlap",
        BRIDGE_DP,
        {"overlap_grad_reduce": True, "overlap_param_gather": True},
        {"overlap_grad_reduce": True, "overlap_param_gather": False},
    ),
    ("data-parallel-bucket", BRIDGE_DP, {"bucket_size": 134_217_728}, {"bucket_size": None}),
    (
        "data-parallel-align",
        {**BRIDGE_DP, PP: 2, VPP: 2},
        {"align_param_gather": True},
        {"align_param_gather": False},
    ),
    (
        "param-gather-agreement",
        {"comm_overlap": True},
        {"overlap_param_gather": True, "optimizer_overlap_param_gather": True},
        {"overlap_param_gather": True, "optimizer_overlap_param_gather": False},
    ),
    ("fsdp2-torch", FSDP2, {"torch": "2.4.0"}, {"torch": "2.3.1"}),
    ("fsdp2-stages", FSDP2, {PP: 1}, {PP: 2}),
    ("fsdp2-expert-ranks", FSDP2, {"expert_model_parallel_size": 1}, {"expert_model_parallel_size": 2}),
    ("fsdp2-optimizer", FSDP2, {"use_distributed_optimizer": False}, {"use_distributed_optimizer": True}),
    ("fsdp2-fusion", FSDP2, {"gradient_accumulation_fusion": False}, {"gradient_accumulation_fusion": True}),
    ("fsdp2-checkpoint", FSDP2, {"ckpt_format": "torch_dcp"}, {"ckpt_format": "torch"}),
    (
        "fsdp2-embeddings",
        FSDP2,
        {"untie_embeddings_and_output_weights": True},
        {"untie_embeddings_and_output_weights": False},
    ),
    ("fsdp2-precision", FSDP2, {"fp16": False}, {"fp16": True}),
    ("fsdp2-connections", FSDP2, {"CUDA_DEVICE_MAX_CONNECTIONS": 8}, {"CUDA_DEVICE_MAX_CONNECTIONS": 1}),
]


def run_of(values: Values) -> Options:
    return {key: GivenOption(value, "test") for key, value in values.items()}


@for_each(CASES)
def test_each_rule_both_ways(name: str, applies: Values, good: Values, bad: Values) -> None:
    rule = RULES[name]
    assert set(applies) | set(good) | set(bad) <= set(KINDS)
    right, wrong = check_rule(rule, run_of({**applies, **good})), check_rule(rule, run_of({**applies, **bad}))
    assert (right.status, right.applies) == ("ok", True)
    assert (wrong.status, wrong.applies) == ("violated", True)
    assert set(wrong.rule.keys) >= set(bad)
    unsure = check_rule(rule, run_of(applies))
    assert unsure.status == "unknown"
    assert set(unsure.missing) & set(bad)
    # without its switch, no value of the others violates it
    switch = next(iter(applies))
    opposite: OptionValue = not applies[switch] if isinstance(applies[switch], bool) else None
    idle = check_rule(rule, run_of({**applies, **bad, switch: opposite}))
    assert idle.status == "ok" if idle.applies is False else idle.applies is True


def test_every_rule_has_a_case_a_source_and_a_remedy() -> None:
    assert {case[0] for case in CASES} == set(RULES)
    assert len(RULES) == len(ALL_RULES) == 67
    for rule in RULES.values():
        assert rule.sources
        assert rule.programs
        assert rule.effect in EFFECTS
        assert rule.change
    assert {key for rule in RULES.values() for key in rule.keys} == set(KINDS)
    assert DATE == "2026-08-22"


def test_a_run_is_checked_by_its_own_program() -> None:
    options = run_of({**WGRAD, "transformer_impl": "local"})
    (failing,) = (result for result in check_run(LM, options) if result.fails)
    assert failing.rule.id == "delay-wgrad-implementation"
    assert not [result for result in check_run(BRIDGE, options) if result.fails]


KLEENE = {True: {True: (True, True), False: (False, True), None: (None, True)},
          False: {True: (False, True), False: (False, False), None: (False, None)},
          None: {True: (None, True), False: (False, None), None: (None, None)}}  # fmt: skip
"""The conjunction and the disjunction of two conditions that are true, false or unknown."""


def test_conditions_follow_the_tables_of_kleene() -> None:
    for one, row in KLEENE.items():
        for other, expected in row.items():
            options = run_of({name: value for name, value in (("a", one), ("b", other)) if value is not None})
            found = [holds(ast.parse(text, mode="eval").body, options) for text in ("a and b", "a or b", "not a")]
            assert found == [*expected, None if one is None else not one]


def test_an_unknown_switch_leaves_a_violation_open_and_compliance_closed() -> None:
    rule = RULES["ep-overlap-dispatcher"]
    assert check_rule(rule, run_of({DISPATCHER: "allgather"})).status == "unknown"
    assert check_rule(rule, run_of({DISPATCHER: "flex"})).status == "ok"
    assert check_rule(rule, run_of({})).missing == ("overlap_moe_expert_parallel_comm", DISPATCHER)


def test_either_of_two_known_conditions_is_enough() -> None:
    rule = RULES["ep-overlap-precision"]
    assert check_rule(rule, run_of({**EP, "bf16": True})).status == "ok"
    assert check_rule(rule, run_of({**EP, "bf16": False})).status == "unknown"


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("2.6.0a0+nv25.01", "2.6.0"), ("2.6.0rc1", "2.6"), ("2.7.0.dev0", "2.7.0"), ("2.9.1", "2.10.0"),
        ("2.6.0", "2.6.1+cu124"), ("9.0", "10.0"),
    ],
)  # fmt: skip
def test_the_order_of_versions(lower: str, higher: str) -> None:
    assert version_key(lower) < version_key(higher)
    assert version_key("2.6.0+cu124") == version_key("2.6")
