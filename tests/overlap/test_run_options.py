"""Options from run_config.yaml and from command lines: known, unknown, misspelt, hostile."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.errors import ConfigError
from ibpulse.overlap.megatron_options import OPTIONS, NoDefault
from ibpulse.overlap.rule_conditions import OptionValue
from ibpulse.overlap.run_options import RunOptions, read_run_options

LAUNCH = "torchrun pretrain_gpt.py"


def read(tmp_path: Path, text: str, name: str = "run.sh", settings: list[str] | None = None) -> RunOptions:
    path = tmp_path / name
    path.write_text(text)
    return read_run_options(path, settings or [])


def value(run: RunOptions, name: str) -> OptionValue:
    return run.options[name].value


def refusal(tmp_path: Path, text: str, name: str = "run.sh", settings: list[str] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as found:
        read(tmp_path, text, name, settings)
    return tuple(fault.replace(f"{tmp_path}/", "") for fault in found.value.faults)


def test_every_flag_of_the_table_sets_its_option(tmp_path: Path) -> None:
    samples: dict[str, tuple[str, OptionValue]] = {
        "count": ("3", 3), "text": ("some", "some"), "list": ("a b", ("a", "b")), "version": ("2.6.0", "2.6.0"),
    }  # fmt: skip
    for option in OPTIONS.values():
        for flag in option.flags:
            words, expected = samples.get(option.kind, ("", True))
            assert value(read(tmp_path, f"{LAUNCH} {flag} {words}"), option.name) == expected
        for flag in option.off_flags:
            assert value(read(tmp_path, f"{LAUNCH} {flag}"), option.name) is False


def test_every_key_of_the_table_sets_its_option(tmp_path: Path) -> None:
    samples: dict[str, tuple[str, OptionValue]] = {
        "count": ("3", 3), "text": ("some", "some"), "list": ("[a, Scope.b]", ("a", "b")), "flag": ("true", True),
    }  # fmt: skip
    for option in OPTIONS.values():
        for key in option.keys:
            section, _, name = key.lstrip("!").rpartition(".")
            text, expected = samples[option.kind]
            body = f"{section}:\n  {name}: {text}\n" if section else f"{name}: {text}\n"
            run = read(tmp_path, body if section == "model" else f"model: {{}}\n{body}", "run_config.yaml")
            assert value(run, option.name) == (not expected if key.startswith("!") else expected)
            # Bridge writes every key, so one that is missing is not known
            assert "recompute_method" in run.options or option.name != "recompute_method"
            assert "mtp_num_layers" not in run.options or option.name == "mtp_num_layers"


def test_a_config_has_unset_options_enumerations_and_places(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        "model:\n  recompute_method: null\n  cuda_graph_scope:\n  - {_target_: Scope, _args_: [attn], _call_: true}\n"
        "  cuda_graph_impl: {_target_: Impl, _args_: [local]}\n  tp_comm_overlap: false\n"
        "comm_overlap:\n  tp_comm_overlap: true\n  overlap_grad_reduce: null\nddp: {overlap_grad_reduce: true}\n"
        "dataset: {_target_: megatron.bridge.data.MockGPTDatasetProvider}\n",
        "run_config.yaml",
    )
    assert run.program == "Megatron-Bridge"
    assert value(run, "recompute_method") is None
    assert value(run, "cuda_graph_modules") == ("attn",)
    assert value(run, "cuda_graph_impl") == "local"
    assert value(run, "native_energon_packing") is False
    assert value(run, "overlap_grad_reduce") is True
    assert value(run, "comm_overlap") is True
    assert run.options["tp_comm_overlap"].place.endswith("run_config.yaml:8")
    assert run.remarks == (
        f"tp_comm_overlap is true ({tmp_path}/run_config.yaml:8) and false ({tmp_path}/run_config.yaml:6); "
        "the first counts",
    )
    energon = read(tmp_path, "model: {}\ndataset: {_target_: x.EnergonProvider}\n", "run_config.yaml")
    assert "native_energon_packing" not in energon.options


def test_misspelt_and_unknown_keys_are_named_not_guessed(tmp_path: Path) -> None:
    run = read(tmp_path, "model: {bf16: true, overlap_p2p_com: true}\ncomm_overlap:\n  new_key: 1\n", "run_config.yaml")
    assert "overlap_p2p_comm" not in run.options
    assert [remark.partition("run_config.yaml:")[2] for remark in run.remarks] == [
        "3: comm_overlap.new_key: no rule knows this key",
        "1: model.overlap_p2p_com: no rule knows this key; did you mean overlap_p2p_comm?",
    ]
    script = read(tmp_path, f"{LAUNCH} --bf16 --overlap-grad-reduces --lr 1e-4")
    assert value(script, "overlap_grad_reduce") is False
    assert [remark.partition("run.sh:")[2] for remark in script.remarks] == [
        "1: --overlap-grad-reduces: no rule knows this flag; did you mean --overlap-grad-reduce?"
    ]


SCRIPT = """#!/bin/bash
# --fp16 in a comment
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=4; PP="2"
echo "use --fp16 for old GPUs"
EXTRA="--overlap-grad-reduce \\
       --overlap-param-gather"
MODEL_ARGS=(
    --num-experts 8   # --fp16
    --recompute-modules moe attn
    --disable-bias-linear --bf16)
if [ -n "$SHARED" ]; then
    MODEL_ARGS+=(--moe-shared-expert-overlap)
fi
torchrun --nnodes $NNODES pretrain_gpt.py --tensor-model-parallel-size $TP --save $CHECKPOINT \\
    --pipeline-model-parallel-size ${PP} --expert-model-parallel-size=4 --num-virtual-stages-per-pipeline-rank 1 \\
    "${MODEL_ARGS[@]}" $EXTRA
"""


def test_a_script_is_read_as_words(tmp_path: Path) -> None:
    run = read(tmp_path, SCRIPT)
    assert run.program == "Megatron-LM"
    expected: dict[str, OptionValue] = {
        "CUDA_DEVICE_MAX_CONNECTIONS": 1, "tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 2,
        "expert_model_parallel_size": 4, "num_moe_experts": 8, "recompute_modules": ("moe", "attn"), "bf16": True,
        "fp16": False, "add_bias_linear": False, "overlap_grad_reduce": True, "overlap_param_gather": True,
        "virtual_pipeline_model_parallel_size": None, "overlap_p2p_comm": True, "batch_p2p_comm": False,
        "moe_token_dispatcher_type": "allgather",
    }  # fmt: skip
    assert {name: value(run, name) for name in expected} == expected
    assert run.options["recompute_modules"].place.endswith("run.sh:10")
    assert run.options["moe_token_dispatcher_type"].place == "default of 2026-08-22"
    # set in a branch, and by the environment
    assert "moe_shared_expert_overlap" not in run.options
    assert "nodes" not in run.options
    assert [remark.partition("run.sh:")[2] for remark in run.remarks] == [
        "13: moe_shared_expert_overlap: a branch or a loop sets it; its value is unknown",
        "15: nodes: '$NNODES' has no known value",
    ]


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        (f"{LAUNCH} --bf16 $MORE", "1: $MORE: this file does not set it; defaults of missing flags are not assumed"),
        (f"{LAUNCH} --bf16 $@", "1: $@: this file does not set it; defaults of missing flags are not assumed"),
        ("ARGS=(--bf16)", " starts no Python program, so defaults of missing flags are not assumed"),
        (
            f"{LAUNCH} --bf16 --yaml-cfg x.yaml",
            "1: --yaml-cfg: its file may set other options; defaults are not assumed",
        ),
    ],
)
def test_defaults_are_not_assumed_if_flags_may_be_elsewhere(tmp_path: Path, text: str, remark: str) -> None:
    run = read(tmp_path, text)
    assert value(run, "bf16") is True
    assert "recompute_method" not in run.options
    assert [each.partition("run.sh:")[2] for each in run.remarks] == [remark]


def test_an_option_without_one_value_is_unknown(tmp_path: Path) -> None:
    run = read(tmp_path, f"{LAUNCH} --optimizer adam\n{LAUNCH} --optimizer sgd --recompute-activations")
    assert "optimizer" not in run.options
    assert value(run, "recompute_granularity") == "selective"
    assert "optimizer is given as adam and sgd; its value is unknown" in run.remarks[0]
    layers = read(tmp_path, f"{LAUNCH} --num-layers-per-virtual-pipeline-stage 2")
    unset = {name for name, option in OPTIONS.items() if option.default is NoDefault}
    assert set(OPTIONS) - set(layers.options) == unset - {"batch_p2p_comm"} | {"virtual_pipeline_model_parallel_size"}


def test_settings_override_the_file(tmp_path: Path) -> None:
    run = read(tmp_path, f"{LAUNCH} --bf16", settings=["torch=2.6.0", "bf16=false", "recompute_modules=moe,attn"])
    assert (value(run, "torch"), value(run, "bf16")) == ("2.6.0", False)
    assert value(run, "recompute_modules") == ("moe", "attn")
    assert refusal(tmp_path, f"{LAUNCH} --bf16", settings=["tourch=2", "torch", "torch=new", "nodes=-1"]) == (
        "flag --set: tourch: no rule reads such an option; did you mean torch?",
        "flag --set: 'torch' is not KEY=VALUE; write it like torch=2.6.0",
        "flag --set: torch: 'new' is not a version; write it like 2.6.0",
        "flag --set: nodes: '-1' is not a whole number from 0 to 1000000000",
    )


BOMB = "a: &a [x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        ("", "run_config.yaml", "run_config.yaml: is not a mapping of sections; give "),
        ("[1, 2]", "run_config.yaml", "run_config.yaml: is not a mapping of sections; give "),
        ("train: {}", "run_config.yaml", "run_config.yaml: has no section model; give "),
        ("model: 3", "run_config.yaml", "run_config.yaml: has no section model; give "),
        ("model: {bf16: [", "run_config.yaml", "run_config.yaml:1: not YAML: "),
        ("model: {bf16: 3}", "run_config.yaml", "run_config.yaml:1: bf16: '3' is not true or false; correct it"),
        ("model: {bf16: {a: b}}", "run_config.yaml", "run_config.yaml:1: bf16: is not a single value; correct it"),
        ("model:\n  num_moe_experts: .nan", "run_config.yaml", "run_config.yaml:2: num_moe_experts: '.nan' is not "),
        ("model: {num_moe_experts: -8}", "run_config.yaml", "run_config.yaml:1: num_moe_experts: '-8' is not a whole "),
        ("model: {bf16: true, bf16: true}", "run_config.yaml", "run_config.yaml:1: bf16 is given twice"),
        (BOMB + "model: {bf16: *i, recompute_modules: *i}", "run_config.yaml", "run_config.yaml:10: bf16: is not"),
        ("model: " + "[" * 50, "run_config.yaml", "run_config.yaml:1: more than 20 levels deep"),
        ("x" * 1_000_001, "run.sh", "run.sh: is longer than 1000000 bytes; give the command line of one run"),
        ("--bf16 \0", "run.sh", "run.sh: is not a text; give run_config.yaml or a command line"),
        ("curl --silent x.py", "run.sh", "run.sh: has no flag of Megatron-LM that a rule reads; give "),
        (f"{LAUNCH} --num-experts", "run.sh", "run.sh:1: --num-experts: has no value; give one"),
        (f"{LAUNCH} --num-experts many", "run.sh", "run.sh:1: num_moe_experts: 'many' is not a whole "),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_gets_a_clear_error(tmp_path: Path, text: str, name: str, sentence: str) -> None:
    faults = refusal(tmp_path, text, name)
    assert faults[0].startswith(sentence)
    assert all("\n" not in fault for fault in faults)


def test_many_faults_and_many_unknown_flags_are_bounded(tmp_path: Path) -> None:
    faults = refusal(tmp_path, LAUNCH + " --bf16" + "\n--num-experts" * 1000)
    assert len(faults) == 21
    assert faults[-1] == "run.sh: 980 more faults; correct these first"
    run = read(tmp_path, LAUNCH + " --bf16 " + " ".join(f"--overlap-grad-reduc{at}" for at in range(2000)))
    assert len(run.remarks) == 20


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        read_run_options(tmp_path / "none.yaml")
