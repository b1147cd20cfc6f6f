"""Options from run_config.yaml and from MODEL_ARGS: known, unknown, hostile."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.workbench.models.megatron_rules import DATA, OptionValue
from ibpulse.workbench.models.run_options import BRIDGE, DEFAULTS, KINDS, LM, RunOptions, read_run_options

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
def test_a_file_that_cannot_be_used_gets_a_clear_error(tmp_path: Path, text: str, sentence: str) -> None:
    faults = refusal(tmp_path, text)
    assert faults[0].startswith(sentence)
    assert all("\n" not in fault for fault in faults)


def test_many_faults_are_bounded(tmp_path: Path) -> None:
    assert len(refusal(tmp_path, f"_target_: {TARGET}\nmodel:\n" + "  bf16: true\n" * 1000)) == 20
