"""Parameters of published models of mixtures of experts follow from their configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ibpulse.models.architecture import Architecture
from ibpulse.models.job_file import read_job_file
from tests.models.published_configs import PUBLISHED, QWEN3
from tests.tables import for_each


def counted(directory: Path, config: dict[str, Any], indent: str | int | None = None) -> Architecture:
    path = directory / "config.json"
    path.write_text(json.dumps(config, indent=indent))
    model = read_job_file(path).model
    assert model is not None
    return model


@for_each(PUBLISHED)
def test_parameters_are_the_published_ones(config: dict[str, Any], parameters: int, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("indent", ["\t", " ", 4])
def test_json_may_have_tabs_surrogates_and_a_mark(tmp_path: Path, indent: str | int) -> None:
    template = "\U0001f600 " + "long " * 300
    assert counted(tmp_path, {template: [1, {}], **QWEN3, "chat": template}, indent).parameters == 30_532_122_624
    path = tmp_path / "config.json"
    path.write_text(path.read_text(), encoding="utf-8-sig")
    marked = read_job_file(path).model
    assert marked is not None
    assert marked.parameters == 30_532_122_624
