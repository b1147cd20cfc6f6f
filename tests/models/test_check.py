"""Rules of Megatron both ways and unknown, options from its files, and `ibpulse model check`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.cli import main
from ibpulse.workbench.models.check import (
    BRIDGE,
    DATA,
    DATE,
    DEFAULTS,
    EFFECTS,
    KINDS,
    LM,
    GivenOption,
    Options,
    OptionValue,
    RunOptions,
    check_rule,
    check_run,
    holds,
    read_run_options,
    version_key,
)
from ibpulse.workbench.models.check import RULES as ALL_RULES
from tests.docs.pages import ROOT, blocks
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


def test_every_rule_has_a_case_and_source() -> None:
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


def test_an_unknown_switch_makes_violations_unknown() -> None:
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


TARGET = "megatron.bridge.training.config.ConfigContainer"
SAMPLES: dict[str, tuple[str, OptionValue]] = {
    "switch": ("true", True), "count": ("3", 3), "text": ("some", "some"), "list": ("[a, Scope.b]", ("a", "b")),
    "version": ("2.6.0", "2.6.0"),
}  # fmt: skip


def read(tmp_path: Path, text: str, settings: list[str] | None = None) -> RunOptions:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return read_run_options(path, settings or [])


def value(run: RunOptions, name: str) -> OptionValue:
    return run.options[name].value


def refusal(tmp_path: Path, text: str, settings: list[str] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as found:
        read(tmp_path, text, settings)
    return tuple(fault.replace(f"{tmp_path}/", "") for fault in found.value.faults)


def test_every_option_is_read_from_both_files(tmp_path: Path) -> None:
    for name, kind in KINDS.items():
        text, expected = SAMPLES[kind]
        args = read(tmp_path, f"MODEL_ARGS: {{--{name.replace('_', '-')}: {text}}}")
        config = read(tmp_path, f"_target_: {TARGET}\nmodel: {{{name}: {text}}}\n")
        assert (args.program, config.program) == (LM, BRIDGE)
        assert (value(args, name), args.options[name].place) == (expected, f"{tmp_path}/run.yaml:1")
        if name != "comm_overlap":
            assert (value(config, name), config.options[name].place) == (expected, f"{tmp_path}/run.yaml:2")
            assert set(config.options) == {name, "comm_overlap"}
    for flag, option in DATA["spellings"].items():
        name = option.removeprefix("!")
        text, expected = SAMPLES[KINDS[name]]
        run = read(tmp_path, f"MODEL_ARGS: {{--{flag.replace('_', '-')}: {text}}}")
        assert value(run, name) == (not expected if option.startswith("!") else expected)


def test_missing_arguments_have_their_defaults(tmp_path: Path) -> None:
    run = read(tmp_path, "ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 1}\nMODEL_ARGS:\n  --bf16: true\n")
    given: dict[str, OptionValue] = {"bf16": True, "batch_p2p_comm": False, "CUDA_DEVICE_MAX_CONNECTIONS": 1}
    assert {name: one.value for name, one in run.options.items()} == {**DEFAULTS, **given}
    assert run.options["moe_token_dispatcher_type"].place == "default of 2026-08-22"
    elsewhere = read(tmp_path, "MODEL_ARGS: {--bf16: true, --yaml-cfg: other.yaml}")
    assert set(elsewhere.options) == {"bf16"}


def test_arguments_without_a_known_value_are_unknown(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        "MODEL_ARGS:\n  --tensor-model-parallel-size: ${TP}\n  --optimizer: $OPTIMIZER\n"
        "  --pipeline-model-parallel-layout: Et|(tt|)*6mL\n  --recompute-activations: true\n",
    )
    unknown = {
        *("tensor_model_parallel_size", "optimizer", "virtual_pipeline_model_parallel_size", "recompute_granularity")
    }
    assert set(DEFAULTS) - set(run.options) == unknown


def test_lists_and_single_stages_of_arguments(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        'MODEL_ARGS: {--cuda-graph-modules: "[attn moe_router]", --num-virtual-stages-per-pipeline-rank: 1,\n'
        "  --recompute-modules: moe mlp, --no-overlap-p2p-communication: true}\n",
    )
    assert value(run, "cuda_graph_modules") == ("attn", "moe_router")
    assert value(run, "recompute_modules") == ("moe", "mlp")
    assert value(run, "virtual_pipeline_model_parallel_size") is None
    assert (value(run, "overlap_p2p_comm"), value(run, "batch_p2p_comm")) == (False, True)


@pytest.mark.parametrize(
    "text",
    [
        "MODEL_ARGS:\n  --bf16: true\n  --expert-model-parallel-size: 4\n  --recompute-modules: moe mlp\n",
        "MODEL_ARGS:\n  bf16: true\n  expert_model_parallel_size: '4'\n  recompute_modules: [moe, mlp]\n",
        "MODEL_ARGS:\n- --bf16\n- --expert-model-parallel-size 4\n- --recompute-modules\n- moe\n- mlp\n",
        "MODEL_ARGS:\n- --bf16: true\n- --expert-model-parallel-size: 4\n- --recompute-modules: moe mlp\n",
        "MODEL_ARGS: --bf16 --expert-model-parallel-size=4 --recompute-modules moe mlp\n",
        "MODEL_ARGS: |\n  --bf16 \\\n  --expert-model-parallel-size 4 \\\n  --recompute-modules moe mlp\n",
        '{"MODEL_ARGS": {\n\t"--bf16": true, "--expert-model-parallel-size": 4,\n\t"--recompute-modules": "moe mlp"}}',
    ],
)
def test_arguments_of_every_form_are_read(tmp_path: Path, text: str) -> None:
    run = read(tmp_path, text)
    expected: dict[str, OptionValue] = {
        "bf16": True, "expert_model_parallel_size": 4, "recompute_modules": ("moe", "mlp"),
    }  # fmt: skip
    assert {name: value(run, name) for name in expected} == expected


def test_a_config_has_unset_options_enumerations_and_places(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        "model:\n  _target_: megatron.bridge.models.GPTModelProvider\n  recompute_method: null\n"
        "  cuda_graph_scope:\n  - {_target_: Scope, _args_: [attn], _call_: true}\n"
        "  cuda_graph_impl: {_target_: Impl, _args_: [local]}\n  tp_comm_overlap: false\n"
        "comm_overlap:\n  tp_comm_overlap: true\n  overlap_grad_reduce: null\n"
        "ddp: {overlap_grad_reduce: true, overlap_param_gather: true}\n"
        "optimizer: {optimizer: adam, overlap_param_gather: false}\ndata_parallel_size: 8\n"
        "dataset: {_target_: megatron.bridge.data.MockGPTDatasetProvider}\n",
    )
    expected: dict[str, OptionValue] = {
        "recompute_method": None, "cuda_graph_modules": ("attn",), "cuda_graph_impl": "local",
        "tp_comm_overlap": True, "overlap_grad_reduce": True, "overlap_param_gather": True, "optimizer": "adam",
        "optimizer_overlap_param_gather": False, "data_parallel_size": 8, "comm_overlap": True,
        "native_energon_packing": False,
    }  # fmt: skip
    assert {name: one.value for name, one in run.options.items()} == expected
    assert run.options["tp_comm_overlap"].place == f"{tmp_path}/run.yaml:9"
    energon = read(tmp_path, f"_target_: {TARGET}\ndataset: {{_target_: x.EnergonProvider}}\n")
    assert "native_energon_packing" not in energon.options


def test_settings_override_the_file(tmp_path: Path) -> None:
    file = "MODEL_ARGS: {--bf16: true}"
    run = read(tmp_path, file, ["torch=2.6.0", "bf16=false", "recompute_modules=moe,attn"])
    assert (value(run, "torch"), value(run, "bf16")) == ("2.6.0", False)
    assert value(run, "recompute_modules") == ("moe", "attn")
    assert refusal(tmp_path, file, ["tourch=2", "torch", "torch=new", "nodes=-1"]) == (
        "flag --set: tourch: no rule reads such an option; did you mean torch?",
        "flag --set: 'torch' is not KEY=VALUE; write it like torch=2.6.0",
        "flag --set: torch: 'new' is not a version; write it like 2.6.0",
        "flag --set: nodes: '-1' is not a whole number; choose 0 to 1000000000",
    )


BOMB = "a: &a [x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
NEMO = "trainer: {num_nodes: 4}\nmodel:\n  tensor_model_parallel_size: 4\n  ub_tp_comm_overlap: true\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "run.yaml: is no configuration of Megatron; give "),
        ("[1, 2]", "run.yaml: is no configuration of Megatron; give "),
        (NEMO, "run.yaml: is of NeMo; give "),
        (
            "_target_: nemo.lightning.Trainer\nmodel: {_target_: nemo.collections.llm.GPTModel}",
            "run.yaml: is of NeMo; ",
        ),
        ("model: {_target_: my.net.Net, bf16: true}", "run.yaml: is of another program; give "),
        ("model: 3", "run.yaml: is no configuration of Megatron; give "),
        ("MODEL_ARGS: {--lr: 3}", "run.yaml: MODEL_ARGS has no flag that a rule reads; write them like --bf16: true"),
        ("MODEL_ARGS: [bf16]", "run.yaml: MODEL_ARGS has no flag that a rule reads; write them like --bf16: true"),
        (f"model: {{_target_: {TARGET}, bf16: [", "run.yaml:1: not YAML: "),
        (f"model: {{_target_: {TARGET}, bf16: 3}}", "run.yaml:1: bf16: unknown value '3'; choose true or false"),
        (f"model: {{_target_: {TARGET}, bf16: {{a: b}}}}", "run.yaml:1: bf16: is not a single value; give one"),
        (
            f"model:\n  _target_: {TARGET}\n  num_moe_experts: .nan",
            "run.yaml:3: num_moe_experts: '.nan' is not a whole ",
        ),
        ("MODEL_ARGS: {--num-experts: -8}", "run.yaml:1: num_experts: '-8' is not a whole number"),
        (f"model: {{_target_: {TARGET}, bf16: true, bf16: true}}", "run.yaml:1: bf16: is given twice"),
        (
            BOMB + f"model: {{_target_: {TARGET}, bf16: *i, recompute_modules: *i}}",
            "run.yaml:7: with its aliases, more than 500000 values; write fewer aliases",
        ),
        ("model: " + "[" * 50, "run.yaml:1: more than 20 levels deep"),
    ],
)
def test_invalid_files_get_a_clear_error(tmp_path: Path, text: str, sentence: str) -> None:
    faults = refusal(tmp_path, text)
    assert faults[0].startswith(sentence)
    assert all("\n" not in fault for fault in faults)


def test_many_faults_are_bounded(tmp_path: Path) -> None:
    assert len(refusal(tmp_path, f"_target_: {TARGET}\nmodel:\n" + "  bf16: true\n" * 1000)) == 20


JOB = """\
MODEL_ARGS:
  --overlap-moe-expert-parallel-comm: true
  --num-experts: 8
  --expert-model-parallel-size: 8
  --bf16: true
  --no-gradient-accumulation-fusion: true
  --moe-token-dispatcher-type: {dispatcher}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(dispatcher="alltoall"))
    return path


def test_violated_rules_fail_with_a_remedy(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.format(dispatcher="allgather"))
    assert main(["model", "check", str(job)], {}) == 1
    output = capsys.readouterr().out
    assert output.startswith(
        "FAILED: 1 rule violated, with which the run stops or an overlap is switched off\n"
        f"{job}: checked by the rules of 2026-08-22; other versions of Megatron may have other rules\n"
        "51 rules of Megatron-LM: 1 violated, 1 unknown, "
    )
    assert (
        "  ep-overlap-dispatcher: overlap_moe_expert_parallel_comm\n"
        '    needs: moe_token_dispatcher_type in ("alltoall", "flex")\n'
        "    found: overlap_moe_expert_parallel_comm true (line 2); moe_token_dispatcher_type allgather (line 7)\n"
        "    change: set moe_token_dispatcher_type to alltoall or flex\n"
        "    effect: the run stops at its start\n"
        "    source: https://github.com/NVIDIA/Megatron-LM/blob/d98e8a64/megatron/core/transformer/transformer_config.py\n"
    ) in output
    assert "\n  torch: ep-overlap-torch\n" in output


def test_unknown_rules_fail_only_a_strict_check(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "check", str(job)], {}) == 0
    assert capsys.readouterr().out.startswith("passed: no rule is known to be violated that matters, but 1 unknown\n")
    assert main(["model", "check", str(job), "--strict"], {}) == 1
    words = ["model", "check", str(job), "--strict", "--set=torch=2.7.0"]
    capsys.readouterr()
    assert main(words, {}) == 0
    assert capsys.readouterr().out.startswith("passed: no rule is violated")


def test_the_example_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = blocks(ROOT / "docs/overlap.md")
    at = next(at for at, block in enumerate(page) if "MODEL_ARGS" in block)
    job, _, result = page[at : at + 3]
    Path("moe.yaml").write_text(job)
    assert main(["model", "check", "moe.yaml", "--set", "torch=2.7.0"], {}) == 1
    assert capsys.readouterr().out == result
