"""Published jobs and clusters as texts of inputs; a file and flags override them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """Texts of inputs by name, and where the figures come from. `chosen` are inputs that are not published."""

    texts: Mapping[str, str]
    source: str
    chosen: tuple[str, ...] = ()


# the published text says FSDP, two nodes of eight GPUs and the length of a step; seven rails carry traffic
_CAPTURED = {"nodes": "2", "rails": "7", "sharding": "fsdp", "algorithm": "ring", "prefetch": "2"}
_CAPTURE = "published capture of 10 ms samples of two nodes of 8 GPUs, one of eight rails idle (docs/traffic.md)"
_CHOSEN = ("algorithm", "prefetch")

JOBS: Mapping[str, Preset] = {
    "qwen2.5-7b-fsdp": Preset(
        {"model": "qwen2.5-7b", **_CAPTURED, "recompute": "none", "step": "315ms"}, _CAPTURE, _CHOSEN
    ),
    "mixtral-8x7b-fsdp": Preset(
        {"model": "mixtral-8x7b", **_CAPTURED, "recompute": "full", "step": "1444ms"}, _CAPTURE, _CHOSEN
    ),
    "qwen3-30b-a3b-ep16": Preset(
        {
            "model": "qwen3-30b-a3b", "nodes": "2", "ep": "16", "sharding": "zero1", "global-batch": "1024",
            "sequence": "4096", "dispatch": "alltoall", "dispatch-bytes": "2", "recompute": "none", "step": "41.25s",
        },
        "NVIDIA-NeMo/Megatron-Bridge at 067f987d, card.yaml of Qwen3-30B-A3B: 41.25 s in BF16 without overlap",
        ("sharding", "recompute"),
    ),
}  # fmt: skip
SAMPLED_JOBS = ("qwen2.5-7b-fsdp", "mixtral-8x7b-fsdp")
"""Jobs whose traffic within a step is predicted."""

CLUSTERS: Mapping[str, Preset] = {
    "selene": Preset(
        {"node": "dgx-a100", "nodes": "384", "network": "fat-tree"},
        "D. Narayanan et al., arXiv 2104.04473, section 5: 3072 GPUs in DGX A100 nodes, fat tree of HDR InfiniBand",
        ("nodes",),
    ),
    "llama-3": Preset(
        {"node": "dgx-h100", "nodes": "3072", "network": "fat-tree", "oversubscription": "7"},
        "Llama Team, The Llama 3 Herd of Models, arXiv 2407.21783, section 3.3: 24,576 GPUs in pods of 3,072, 1:7 "
        "between pods",
        ("node",),
    ),
    "deepseek-v3": Preset(
        {"node": "h800", "nodes": "256", "network": "rail-optimised"},
        "DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3: 2048 H800, 400 Gb/s InfiniBand",
        ("network",),
    ),
}
