"""Jobs and models in MODEL_ARGS of Megatron-LM."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.base.values import GivenText
from ibpulse.errors import ConfigError
from ibpulse.models.job_file import JobFile, read_job_file
from ibpulse.models.job_inputs import read_inputs

# of DeepSeek-V3, as Megatron-MoE-ModelZoo gives them
DEEPSEEK = """\
ENV_VARS: {NCCL_DEBUG: VERSION}
MODEL_ARGS:
  --tensor-model-parallel-size: ${TP}
  --pipeline-model-parallel-size: 8
  --expert-model-parallel-size: 32
  --expert-tensor-parallel-size: 1
  --use-distributed-optimizer: true
  --accumulate-allreduce-grads-in-fp32: true
  --micro-batch-size: 1
  --global-batch-size: 8192
  --seq-length: 4096
  --num-layers: 61
  --hidden-size: 7168
  --ffn-hidden-size: 18432
  --num-attention-heads: 128
  --kv-channels: 128
  --swiglu: true
  --untie-embeddings-and-output-weights: true
  --multi-latent-attention: true
  --num-experts: 256
  --moe-layer-freq: ([0]*3+[1]*58)
  --moe-ffn-hidden-size: 2048
  --moe-shared-expert-intermediate-size: 2048
  --moe-router-topk: 8
  --moe-token-dispatcher-type: flex
  --recompute-granularity: selective
  --q-lora-rank: 1536
  --kv-lora-rank: 512
  --qk-head-dim: 128
  --qk-pos-emb-head-dim: 64
  --v-head-dim: 128
  --vocab-size: 129280
  --disable-bias-linear: true
  --normalization: RMSNorm
  --position-embedding-type: rope
"""
# of Qwen3-30B-A3B, on one line
QWEN3 = (
    "MODEL_ARGS: --disable-bias-linear --qk-layernorm --group-query-attention --num-attention-heads 32 "
    "--num-query-groups 4 --kv-channels 128 --num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --swiglu "
    "--untie-embeddings-and-output-weights --vocab-size 151936 --moe-ffn-hidden-size 768 --moe-router-topk 8 "
    "--moe-layer-freq \"'([1]*48)'\" --num-experts 128 --tensor-model-parallel-size=4 --normalization RMSNorm "
    "--position-embedding-type rope\n"
)


def job(directory: Path, text: str) -> JobFile:
    path = directory / "model_config.yaml"
    path.write_text(text)
    return read_job_file(path)


def test_arguments_give_the_job_and_its_model(tmp_path: Path) -> None:
    file = job(tmp_path, DEEPSEEK)
    assert file.model is not None
    # the router's bias of 256 experts in 58 layers is no weight for Megatron
    assert file.model.parameters == 671_026_419_200 - 58 * 256
    assert (file.model.moe_layers, file.model.chosen_experts) == (58, 8)
    assert {name: one.text for name, one in file.texts.items()} == {
        "tp": "${TP}", "pp": "8", "ep": "32", "etp": "1", "sequence": "4096", "micro-batch": "1",
        "global-batch": "8192", "sharding": "zero1", "gradient-bytes": "4",
        "recompute": "none", "dispatch": "deduplicated",
    }  # fmt: skip
    assert file.texts["ep"].place == f"{tmp_path}/model_config.yaml:5: --expert-model-parallel-size"


def test_a_command_line_gives_the_job_and_its_model(tmp_path: Path) -> None:
    file = job(tmp_path, QWEN3)
    assert file.model is not None
    assert file.model.parameters == 30_532_122_624
    assert (file.texts["tp"].text, file.texts["etp"].text, file.texts["sharding"].text) == ("4", "4", "ddp")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("  --vocab-size: 129280\n", "", "2: --vocab-size: is missing; give it, or --model"),
        ("  --position-embedding-type: rope\n", "", "2: --max-position-embeddings: is missing; give it, or --model"),
        ("[1]*58", "[1]*57", "21: --moe-layer-freq: has 60 entries for 61 layers"),
        ("--swiglu: true", "--swiglu: true\n  --mtp-num-layers: 1", "18: --mtp-num-layers: layers of this kind"),
    ],
)
def test_an_unknown_model_can_be_named(tmp_path: Path, old: str, new: str, fault: str) -> None:
    file = job(tmp_path, DEEPSEEK.replace(old, new))
    nodes = {"nodes": GivenText("32", "flag --nodes"), "tp": GivenText("1", "flag --tp")}
    with pytest.raises(ConfigError) as refusal:
        read_inputs(nodes, file)
    assert f"model_config.yaml:{fault}" in refusal.value.faults[0]
    named = read_inputs({**nodes, "model": GivenText("deepseek-v3", "flag --model")}, file)
    assert (named.job.pp, named.job.ep, named.job.model.name) == (8, 32, "deepseek-v3")


def test_a_gpt_of_defaults_has_the_parameters_of_the_closed_form(tmp_path: Path) -> None:
    layers, hidden, vocabulary, positions = 96, 12_288, 51_200, 2048
    text = (
        f"MODEL_ARGS: --num-layers {layers} --hidden-size {hidden} --num-attention-heads 96 "
        f"--vocab-size {vocabulary} --max-position-embeddings {positions}"
    )
    model = job(tmp_path, text).model
    assert model is not None
    # arXiv 2104.04473, equation 2, which leaves out the last norm; its table 1 has 174.6 billion
    terms = 12 * layers * hidden**2 + 13 * layers * hidden + (vocabulary + positions) * hidden
    assert model.parameters == terms + 2 * hidden
    assert model.parameters == pytest.approx(174.6e9, rel=5e-4)
    # with gates, MLPs have three matrices of two thirds of the width, and rotary positions have no parameters
    gated = job(tmp_path, f"{text} --swiglu --position-embedding-type rope").model
    assert gated is not None
    assert model.parameters - gated.parameters == positions * hidden - layers * (2 * 32_768 - 4 * hidden)


def test_a_variable_of_the_shell_needs_a_value(tmp_path: Path) -> None:
    file = job(tmp_path, DEEPSEEK)
    with pytest.raises(ConfigError) as refusal:
        read_inputs({"nodes": GivenText("32", "flag --nodes")}, file)
    assert refusal.value.faults == (
        f"{tmp_path}/model_config.yaml:3: --tensor-model-parallel-size: '${{TP}}' is not a whole number; "
        "choose 1 to 10000000",
    )
    unknown = job(tmp_path, DEEPSEEK.replace("granularity: selective", "granularity: $RECOMPUTE"))
    assert "recompute" not in unknown.texts
