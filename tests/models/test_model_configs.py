"""Models and jobs in the configuration files of Hugging Face and Megatron-Bridge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ibpulse.errors import ConfigError
from ibpulse.models.job_file import JobFile, read_job_file
from ibpulse.models.job_inputs import read_inputs
from ibpulse.models.presets import MODELS

# the keys that count, as published at huggingface.co
HUB: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": {
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": False,
        "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}, "eos_token_id": [128001, 128008],
    },
    "qwen2.5-7b": {
        "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1,
    },
}  # fmt: skip

RUN: dict[str, Any] = {
    "_target_": "megatron.bridge.training.config.ConfigContainer",
    "model": {
        "_target_": "megatron.bridge.models.qwen.Qwen3MoEModelProvider",
        "num_layers": 48,
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_query_groups": 4,
        "kv_channels": 128,
        "ffn_hidden_size": 6144,
        "moe_ffn_hidden_size": 768,
        "num_moe_experts": 128,
        "moe_router_topk": 8,
        "moe_layer_freq": 1,
        "vocab_size": 151936,
        "share_embeddings_and_output_weights": False,
        "gated_linear_unit": True,
        "qk_layernorm": True,
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "context_parallel_size": 1,
        "expert_model_parallel_size": 16,
        "expert_tensor_parallel_size": 1,
        "virtual_pipeline_model_parallel_size": None,
        "moe_token_dispatcher_type": "alltoall",
        "recompute_granularity": None,
        "seq_length": 4096,
    },
    "train": {"global_batch_size": 1024, "micro_batch_size": 1},
    "ddp": {"use_distributed_optimizer": True, "grad_reduce_in_fp32": True},
}


def saved(directory: Path, content: object, name: str = "config.json") -> Path:
    path = directory / name
    path.write_text(json.dumps(content) if name.endswith("json") else yaml.safe_dump(content))
    return path


def changed(**model: Any) -> dict[str, Any]:
    return {**RUN, "model": {**RUN["model"], **model}}


@pytest.mark.parametrize("name", HUB)
def test_a_config_json_gives_the_published_model(tmp_path: Path, name: str) -> None:
    found = read_job_file(saved(tmp_path, HUB[name])).model
    known = MODELS[name]
    assert found is not None
    for field in ("parameters", "expert_parameters", "layers", "hidden", "kv_width", "experts", "chosen_experts"):
        assert getattr(found, field) == getattr(known, field), field


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"model_type": "jamba"}, "model_type: 'jamba' is not one of llama, mistral,"),
        ({"model_type": None}, "model_type: '' is not one of llama, mistral,"),
        ({"hidden_size": 0}, "hidden_size: 0 is out of bounds; choose 1 to 10000000"),
        ({"hidden_size": None}, "hidden_size: is missing; give parameters, layers and hidden"),
        ({"hidden_size": [1]}, "hidden_size: not a single value; give one"),
        ({"num_hidden_layers": 10_001}, "num_hidden_layers: 10001 is out of bounds; choose 1 to 10000"),
        ({"tie_word_embeddings": "x"}, "tie_word_embeddings: unknown value 'x'; choose true or false"),
        ({"num_experts_per_tok": 9}, "9 experts per token are more than its 8 experts"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step: layers with it are not counted for mixtral"),
        ({"layer_types": ["linear_attention"]}, "layer_types: layers of the kind 'linear_attention' are not counted"),
        ({"attention_bias": True}, "attention_bias: layers with it are not counted for mixtral"),
        ({"n_shared_experts": 1}, "n_shared_experts: layers with it are not counted for mixtral"),
        ({"num_experts": 16}, "num_local_experts: is not what num_experts is; correct one"),
    ],
)
def test_a_config_json_that_cannot_be_counted_is_refused(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    path = saved(tmp_path, {**HUB["mixtral-8x7b"], **changes})
    with pytest.raises(ConfigError) as refusal:
        read_job_file(path)
    assert str(refusal.value).startswith(str(path))
    assert fault in refusal.value.faults[0]


def test_a_missing_value_causes_no_other_fault(tmp_path: Path) -> None:
    path = saved(tmp_path, {key: value for key, value in HUB["mixtral-8x7b"].items() if key != "num_local_experts"})
    with pytest.raises(ConfigError) as refusal:
        read_job_file(path)
    assert [fault.partition(";")[0] for fault in refusal.value.faults] == [f"{path}:1: num_experts: is missing"]


@pytest.mark.parametrize("kind", ["nemo.collections.llm.gpt.model.llama.LlamaModel", "my.net.Net", ""])
def test_a_model_of_another_program_is_refused(tmp_path: Path, kind: str) -> None:
    content = {"model": {**({"_target_": kind} if kind else {}), "num_layers": 32, "hidden_size": 4096}}
    with pytest.raises(ConfigError, match=r"is a configuration of (NeMo|another program), which is not read; give "):
        job_file(tmp_path, content if kind else {"trainer": {"devices": 8}, "model": {"tensor_model_parallel_size": 4}})


def job_file(directory: Path, content: object) -> JobFile:
    return read_job_file(saved(directory, content, "run_config.yaml"))


def test_a_run_config_gives_the_job_and_its_model(tmp_path: Path) -> None:
    file = job_file(tmp_path, RUN)
    assert file.model is not None
    assert file.model.parameters == MODELS["qwen3-30b-a3b"].parameters
    assert {name: one.text for name, one in file.texts.items()} == {
        "tp": "1",
        "cp": "1",
        "pp": "1",
        "ep": "16",
        "etp": "1",
        "sequence": "4096",
        "micro-batch": "1",
        "global-batch": "1024",
        "sharding": "zero1",
        "gradient-bytes": "4",
        "recompute": "none",
        "dispatch": "alltoall",
    }
    lines = (tmp_path / "run_config.yaml").read_text().splitlines()
    line = 1 + [line.split(":")[0].strip() for line in lines].index("expert_model_parallel_size")
    assert file.texts["ep"].place == f"{tmp_path}/run_config.yaml:{line}: model.expert_model_parallel_size"


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


def test_layers_without_experts_and_shared_experts_are_counted(tmp_path: Path) -> None:
    dense = job_file(tmp_path, changed(moe_layer_freq=[0] * 3 + [1] * 45)).model
    every_other = job_file(tmp_path, changed(moe_layer_freq=2)).model
    shared = job_file(tmp_path, changed(moe_shared_expert_intermediate_size=768)).model
    whole = MODELS["qwen3-30b-a3b"]
    assert dense is not None
    assert every_other is not None
    assert shared is not None
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
def test_a_run_config_that_cannot_be_counted_is_refused(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        job_file(tmp_path, changed(**changes))
    assert any(fault in one for one in refusal.value.faults)


def test_a_value_of_a_run_config_that_makes_no_sense_is_refused_with_its_key(tmp_path: Path) -> None:
    file = job_file(tmp_path, changed(tensor_model_parallel_size="x"))
    with pytest.raises(ConfigError) as refusal:
        read_inputs({}, file)
    assert refusal.value.faults[0].endswith(
        ": model.tensor_model_parallel_size: 'x' is not a whole number; choose 1 to 10000000"
    )
