"""Published models and nodes, and models in config.json of Hugging Face: parameters as published, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.workbench.models.catalogue import MODELS, Architecture
from ibpulse.workbench.models.inputs import read_job_file
from tests.models.published_configs import PUBLISHED, QWEN3
from tests.tables import for_each

TOTALS = {
    "llama-3.1-8b": (8.030e9, 8.030e9),
    "llama-3.1-70b": (70.55e9, 70.55e9),
    "llama-3.1-405b": (405.85e9, 405.85e9),
    "qwen2.5-7b": (7.6156e9, 7.6156e9),
    "mixtral-8x7b": (46.703e9, 12.88e9),
    "qwen3-30b-a3b": (30.53e9, 3.35e9),
    "gpt-3-175b": (175e9, 175e9),
    "deepseek-v3": (671e9, 37e9),
}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_the_published_ones(name: str) -> None:
    total, active = TOTALS[name]
    assert MODELS[name].parameters == pytest.approx(total, rel=1e-3)
    assert MODELS[name].active_parameters == pytest.approx(active, rel=0.02)


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
    "qwen3-30b-a3b": QWEN3,
}  # fmt: skip


def counted(directory: Path, config: dict[str, Any]) -> Architecture:
    path = directory / "config.json"
    path.write_text(json.dumps(config))
    return read_job_file(path).model


@for_each(PUBLISHED)
def test_parameters_of_mixtures_are_as_published(config: dict[str, Any], parameters: int, tmp_path: Path) -> None:
    model = counted(tmp_path, config)
    assert model.parameters == parameters
    assert model.expert_parameters < model.parameters


def test_layers_without_experts_have_a_dense_mlp(tmp_path: Path) -> None:
    whole = counted(tmp_path, QWEN3)
    experts, dense = 128 * 3 * 2048 * 768 + 128 * 2048, 3 * 2048 * 6144
    for changes, count in (
        ({"mlp_only_layers": list(range(12))}, 12),
        ({"decoder_sparse_step": 2}, 24),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [1, 3]}, 26),
    ):
        found = counted(tmp_path, QWEN3 | changes)
        assert whole.parameters - found.parameters == count * (experts - dense)
        assert found.moe_layers == 48 - count
    assert counted(tmp_path, QWEN3 | {"mlp_only_layers": list(range(12))}).parameters == 23_734_204_416


def test_json_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN3), encoding="utf-8-sig")
    assert read_job_file(path).model.parameters == 30_532_122_624


@pytest.mark.parametrize("name", HUB)
def test_a_config_json_gives_the_published_model(tmp_path: Path, name: str) -> None:
    found, known = counted(tmp_path, HUB[name]), MODELS[name]
    for field in ("parameters", "expert_parameters", "layers", "hidden", "kv_width", "experts", "chosen_experts"):
        assert getattr(found, field) == getattr(known, field), field


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"model_type": "jamba"}, "model_type: 'jamba' is not one of llama, mistral,"),
        ({"hidden_size": 0}, "hidden_size: 0 is out of bounds; choose 1 to 10000000"),
        ({"hidden_size": None}, "hidden_size: is missing; give parameters, layers and hidden"),
        ({"hidden_size": [1]}, "hidden_size: not a single value; give one"),
        ({"tie_word_embeddings": "x"}, "tie_word_embeddings: unknown value 'x'; choose true or false"),
        ({"num_experts_per_tok": 9}, "9 experts per token are more than its 8 experts"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step: layers with it are not counted for mixtral"),
        ({"layer_types": ["linear_attention"]}, "layer_types: layers of the kind 'linear_attention' are not counted"),
        ({"attention_bias": True}, "attention_bias: layers with it are not counted for mixtral"),
        ({"num_experts": 16}, "num_local_experts: is not what num_experts is; correct one"),
    ],
)
def test_uncountable_layers_are_refused(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        counted(tmp_path, {**HUB["mixtral-8x7b"], **changes})
    assert str(refusal.value).startswith(f"{tmp_path}/config.json")
    assert fault in refusal.value.faults[0]


def test_a_missing_value_causes_no_other_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        counted(tmp_path, {key: value for key, value in HUB["mixtral-8x7b"].items() if key != "num_local_experts"})
    (fault,) = refusal.value.faults
    assert fault.startswith(f"{tmp_path}/config.json:1: num_experts: is missing;")
