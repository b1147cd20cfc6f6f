"""Published models have the parameters that their authors publish, and nodes the rates of their data sheets."""

from __future__ import annotations

import pytest

from ibpulse.workbench.models.catalogue import MODELS, NODES
from ibpulse.workbench.models.inputs import KEYS
from tests.docs.pages import ROOT

PUBLISHED = {
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
    total, active = PUBLISHED[name]
    assert MODELS[name].parameters == pytest.approx(total, rel=1e-3)
    assert MODELS[name].active_parameters == pytest.approx(active, rel=0.02)


def test_every_figure_has_a_source() -> None:
    assert all(one.source for one in (*MODELS.values(), *NODES.values()))


def test_usable_rates_of_nodes() -> None:
    assert NODES["dgx-h100"].rail_bytes_per_second == pytest.approx(47e9)
    assert NODES["dgx-h100"].nvlink_bytes_per_second == pytest.approx(370e9)
    assert NODES["dgx-a100"].rail_bytes_per_second == pytest.approx(23.5e9)


def test_peak_operations_of_nodes() -> None:
    peaks = {name: node.operations_per_second / 1e12 for name, node in NODES.items()}
    assert peaks == {"dgx-a100": 312, "dgx-h100": 989, "h800": 989, "dgx-b200": 2250}


def test_the_page_lists_every_input() -> None:
    page = (ROOT / "docs/models.md").read_text()
    for key in KEYS.values():
        assert f"| `{key.name}` | {key.default or '-'} | {key.sentence.rstrip('.')} |" in page, key.name
