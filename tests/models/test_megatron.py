"""Jobs and models in `run_config.yaml` of Megatron-Bridge and `MODEL_ARGS` of Megatron-LM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ibpulse.base.errors import ConfigError
from ibpulse.base.values import GivenText
from ibpulse.workbench.models.catalogue import MODELS, Architecture
from ibpulse.workbench.models.inputs import JobFile, read_inputs, read_job_file

RUN: dict[str, Any] = {
    "_target_": "megatron.bridge.training.config.ConfigContainer",
    "model": {
        "_target_": "megatron.bridge.models.qwen.Qwen3MoEModelProvider", "num_layers": 48, "hidden_size": 2048,
        "num_attention_heads": 32, "num_query_groups": 4, "kv_channels": 128, "ffn_hidden_size": 6144,
        "moe_ffn_hidden_size": 768, "num_moe_experts": 128, "moe_router_topk": 8, "moe_layer_freq": 1,
        "vocab_size": 151936, "share_embeddings_and_output_weights": False, "gated_linear_unit": True,
        "qk_layernorm": True, "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1,
        "context_parallel_size": 1, "expert_model_parallel_size": 16, "expert_tensor_parallel_size": 1,
        "virtual_pipeline_model_parallel_size": None, "moe_token_dispatcher_type": "alltoall",
        "recompute_granularity": None, "seq_length": 4096,
    },
    "train": {"global_batch_size": 1024, "micro_batch_size": 1},
    "ddp": {"use_distributed_optimizer": True, "grad_reduce_in_fp32": True},
}  # fmt: skip


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


def changed(**model: Any) -> dict[str, Any]:
    return {**RUN, "model": {**RUN["model"], **model}}


def job_file(directory: Path, content: object) -> JobFile:
    return job(directory, yaml.safe_dump(content))


def job(directory: Path, text: str) -> JobFile:
    path = directory / "model_config.yaml"
    path.write_text(text)
    return read_job_file(path)


def test_arguments_give_the_job_and_its_model(tmp_path: Path) -> None:
    file = job(tmp_path, DEEPSEEK)
    # the router's bias of 256 experts in 58 layers is no weight for Megatron
    assert file.model.parameters == 671_026_419_200 - 58 * 256
    assert (file.model.moe_layers, file.model.chosen_experts) == (58, 8)
    assert {name: one.text for name, one in file.texts.items()} == {
        "tp": "${TP}", "pp": "8", "ep": "32", "etp": "1", "sequence": "4096", "micro-batch": "1",
        "global-batch": "8192", "sharding": "zero1", "gradient-bytes": "4",
        "recompute": "none", "dispatch": "deduplicated",
    }  # fmt: skip
    assert file.texts["ep"].place == f"{tmp_path}/model_config.yaml:5: --expert-model-parallel-size"
    file = job(tmp_path, QWEN3)
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


def test_parameters_of_a_default_gpt(tmp_path: Path) -> None:
    layers, hidden, vocabulary, positions = 96, 12_288, 51_200, 2048
    text = (
        f"MODEL_ARGS: --num-layers {layers} --hidden-size {hidden} --num-attention-heads 96 "
        f"--vocab-size {vocabulary} --max-position-embeddings {positions}"
    )
    model = job(tmp_path, text).model
    # arXiv 2104.04473, equation 2, which leaves out the last norm; its table 1 has 174.6 billion
    terms = 12 * layers * hidden**2 + 13 * layers * hidden + (vocabulary + positions) * hidden
    assert model.parameters == terms + 2 * hidden
    assert model.parameters == pytest.approx(174.6e9, rel=5e-4)
    # with gates, MLPs have three matrices of two thirds of the width, and rotary positions have no parameters
    gated = job(tmp_path, f"{text} --swiglu --position-embedding-type rope").model
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


@pytest.mark.parametrize("kind", ["nemo.collections.llm.gpt.model.llama.LlamaModel", "my.net.Net", ""])
def test_a_model_of_another_program_is_refused(tmp_path: Path, kind: str) -> None:
    content = {"model": {**({"_target_": kind} if kind else {}), "num_layers": 32, "hidden_size": 4096}}
    with pytest.raises(ConfigError, match=r"is a configuration of (NeMo|another program), which is not read; give "):
        job_file(tmp_path, content if kind else {"trainer": {"devices": 8}, "model": {"tensor_model_parallel_size": 4}})


def test_a_run_config_gives_job_and_model(tmp_path: Path) -> None:
    file = job_file(tmp_path, RUN)
    assert file.model.parameters == MODELS["qwen3-30b-a3b"].parameters
    assert {name: one.text for name, one in file.texts.items()} == {
        "tp": "1", "cp": "1", "pp": "1", "ep": "16", "etp": "1", "sequence": "4096", "micro-batch": "1",
        "global-batch": "1024", "sharding": "zero1", "gradient-bytes": "4", "recompute": "none",
        "dispatch": "alltoall",
    }  # fmt: skip
    lines = (tmp_path / "model_config.yaml").read_text().splitlines()
    line = 1 + [line.split(":")[0].strip() for line in lines].index("expert_model_parallel_size")
    assert file.texts["ep"].place == f"{tmp_path}/model_config.yaml:{line}: model.expert_model_parallel_size"


@pytest.mark.parametrize(
    ("content", "name", "text"),
    [
        ({**RUN, "ddp": {"use_megatron_fsdp": True}}, "sharding", "fsdp"),
        ({**RUN, "ddp": None}, "sharding", "ddp"),
        ({**RUN, "ddp": {}}, "gradient-bytes", "2"),
        (changed(recompute_granularity="full"), "recompute", "full"),
        (changed(recompute_granularity="selective"), "recompute", "none"),
        (changed(moe_token_dispatcher_type="flex"), "dispatch", "deduplicated"),
        (changed(tensor_model_parallel_size=2, expert_tensor_parallel_size=None), "etp", "2"),
    ],
)
def test_switches_of_a_run_config(tmp_path: Path, content: dict[str, Any], name: str, text: str) -> None:
    assert job_file(tmp_path, content).texts[name].text == text


def test_dense_layers_and_shared_experts_are_counted(tmp_path: Path) -> None:
    def model(**changes: Any) -> Architecture:
        return job_file(tmp_path, changed(**changes)).model

    whole, dense, every_other = (
        MODELS["qwen3-30b-a3b"],
        model(moe_layer_freq=[0] * 3 + [1] * 45),
        model(moe_layer_freq=2),
    )
    shared = model(moe_shared_expert_intermediate_size=768)
    assert (dense.moe_layers, every_other.moe_layers) == (45, 24)
    assert dense.parameters - whole.parameters == 3 * (3 * 2048 * 6144 - 128 * 3 * 2048 * 768 - 128 * 2048)
    assert shared.parameters - whole.parameters == 48 * 3 * 2048 * 768


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"multi_latent_attention": True}, "model.kv_lora_rank: is missing"),
        ({"mtp_num_layers": 1}, "model.mtp_num_layers: layers of this kind are not counted"),
        ({"hybrid_override_pattern": "M*M*"}, "model.hybrid_override_pattern: layers of this kind are not counted"),
        ({"moe_layer_freq": [1, 1]}, "model.moe_layer_freq: has 2 entries for 48 layers; give 0 or 1 per layer"),
        ({"num_layers": "many"}, "model.num_layers: 'many' is not a whole number; choose 1 to 10000"),
        ({"vocab_size": None}, "model.vocab_size: is missing"),
    ],
)
def test_uncountable_layers_are_refused(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        job_file(tmp_path, changed(**changes))
    assert any(fault in one for one in refusal.value.faults)
