"""Published models and nodes; each figure has its source.

Parameters are counted from the shapes of layers in the published configuration, except where a total is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ibpulse.workbench.models.architecture import Architecture, LayerShape

_HUB = "https://huggingface.co"

MODELS: Mapping[str, Architecture] = {
    model.name: model
    for model in (
        LayerShape(32, 4096, 32, 8, 128, 14_336, 128_256).count(
            "llama-3.1-8b", f"{_HUB}/meta-llama/Llama-3.1-8B/blob/main/config.json"
        ),
        LayerShape(80, 8192, 64, 8, 128, 28_672, 128_256).count(
            "llama-3.1-70b", f"{_HUB}/meta-llama/Llama-3.1-70B/blob/main/config.json"
        ),
        LayerShape(126, 16_384, 128, 8, 128, 53_248, 128_256).count(
            "llama-3.1-405b", f"{_HUB}/meta-llama/Llama-3.1-405B/blob/main/config.json"
        ),
        LayerShape(28, 3584, 28, 4, 128, 18_944, 152_064, qkv_bias=True).count(
            "qwen2.5-7b", f"{_HUB}/Qwen/Qwen2.5-7B/blob/main/config.json"
        ),
        LayerShape(32, 4096, 32, 8, 128, 0, 32_000, experts=8, chosen_experts=2, expert_mlp=14_336).count(
            "mixtral-8x7b", f"{_HUB}/mistralai/Mixtral-8x7B-v0.1/blob/main/config.json"
        ),
        LayerShape(48, 2048, 32, 4, 128, 0, 151_936, qk_norm=True, experts=128, chosen_experts=8, expert_mlp=768).count(
            "qwen3-30b-a3b", f"{_HUB}/Qwen/Qwen3-30B-A3B/blob/main/config.json"
        ),
        Architecture(
            name="gpt-3-175b",
            parameters=175e9,
            layers=96,
            hidden=12_288,
            kv_width=12_288,
            vocabulary=50_257,
            tied=True,
            source="T. Brown et al., arXiv 2005.14165, table 2.1",
        ),
        Architecture(
            name="deepseek-v3",
            parameters=671e9,
            layers=61,
            hidden=7168,
            vocabulary=129_280,
            # 58 layers of 256 experts with 3 matrices of 7168 x 2048
            expert_parameters=58 * 256 * 3 * 7168 * 2048,
            moe_layers=58,
            experts=256,
            chosen_experts=8,
            most_nodes=4,
            # 128 heads with keys of 192 and values of 128
            attention_width=128 * (192 + 128) // 2,
            source="DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv 2412.19437, section 4.2",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class NodeKind:
    """A node: GPUs, rails, usable rates in bytes per second and one direction, and dense BF16 operations per second."""

    name: str
    gpus: int
    rails: int
    rail_bytes_per_second: float
    nvlink_bytes_per_second: float
    operations_per_second: float
    source: str


RAIL_EFFICIENCY = 0.94
"""NCCL maintainers give 46 to 48 GB/s as good for a NIC of 400 Gb/s, which is 50 GB/s (NVIDIA/nccl-tests issues)."""
NVLINK_EFFICIENCY = 370 / 450
"""About 20 % of NVLink is protocol overhead (NVIDIA/nccl-tests issue 212): 370 of 450 GB/s."""

NODES: Mapping[str, NodeKind] = {
    name: NodeKind(name, 8, 8, nic * RAIL_EFFICIENCY, nvlink * NVLINK_EFFICIENCY, operations, source)
    for name, nic, nvlink, operations, source in (
        ("dgx-a100", 25e9, 300e9, 312e12, "NVIDIA DGX A100 and A100 data sheets: 8 HDR NICs, NVLink 3, 312 TFLOP/s"),
        ("dgx-h100", 50e9, 450e9, 989e12, "NVIDIA DGX H100 and H100 data sheets: 8 NDR NICs, NVLink 4, 989 TFLOP/s"),
        (
            "h800",
            50e9,
            160e9 / NVLINK_EFFICIENCY,
            989e12,
            "DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.2.2: 160 GB/s of NVLink and 50 GB/s of "
            "InfiniBand per GPU; operations of the H100",
        ),
        ("dgx-b200", 50e9, 900e9, 2250e12, "NVIDIA DGX B200 data sheet: 8 NDR NICs, NVLink 5, 2.25 PFLOP/s"),
    )
}
DEFAULT_NODE = "dgx-h100"
