"""Published models, nodes, jobs and clusters, each figure with its source, and the parameters of layers.

Parameters are counted from the shapes of layers in the published configuration, except where a total is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """Figures of a model that determine its traffic and operations.

    `kv_width` is the width of keys, and of values; 0 if unknown. `parameters` are all, `expert_parameters` those of
    routed experts, in `moe_layers` of the `layers`. `attention_width` is the number of heads times their width, 0 if
    that is the hidden size.
    """

    name: str
    parameters: float
    layers: int
    hidden: int
    source: str
    kv_width: int = 0
    vocabulary: int = 0
    tied: bool = False
    expert_parameters: float = 0.0
    moe_layers: int = 0
    experts: int = 0
    chosen_experts: int = 0
    most_nodes: int = 0
    attention_width: int = 0

    @property
    def dense_parameters(self) -> float:
        """Parameters that every token uses."""
        return self.parameters - self.expert_parameters

    @property
    def active_parameters(self) -> float:
        """Parameters that one token uses: all dense ones, and k of E experts."""
        used = self.chosen_experts / self.experts if self.experts else 0.0
        return self.dense_parameters + self.expert_parameters * used

    @property
    def multiplied_parameters(self) -> float:
        """Active parameters without the input embeddings, which are looked up and cost no operations."""
        return self.active_parameters - (0 if self.tied else self.vocabulary * self.hidden)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Ranks, and widths of a head, of multi-head latent attention; with `query_rank` 0, queries are not compressed."""

    query_rank: int
    kv_rank: int
    plain: int
    rotary: int
    value: int

    def count(self, hidden: int, heads: int) -> int:
        """The parameters of a layer: projections, and the norms of the compressed vectors."""
        queries = heads * (self.plain + self.rotary)
        rank = self.query_rank
        down = rank * (hidden + 1 + queries) if rank else hidden * queries
        keys = hidden * (self.kv_rank + self.rotary) + self.kv_rank * (1 + heads * (self.plain + self.value))
        return down + keys + heads * self.value * hidden


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Widths of a decoder with MLPs, RMS norms, grouped queries or latent attention, perhaps routed experts.

    `mlp` is the width of a dense layer, `expert_mlp` that of one expert, `shared_mlp` that of experts which every token
    uses, `dense_layers` the number of layers without experts. MLPs have three matrices, two if not `gated`. The `extra`
    parameters are biases, further norms and gates: of each layer, of each dense MLP, beside the experts of a layer, of
    each expert, and of the whole model.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_width: int
    mlp: int
    vocabulary: int
    tied: bool = False
    gated: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    experts: int = 0
    chosen_experts: int = 0
    expert_mlp: int = 0
    shared_mlp: int = 0
    dense_layers: int = 0
    latent: LatentAttention | None = None
    extra_per_layer: int = 0
    extra_per_mlp: int = 0
    extra_per_routing: int = 0
    extra_per_expert: int = 0
    extra: int = 0

    def count(self, name: str, source: str) -> Architecture:
        """The model with its parameters counted."""
        queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
        attention = self.hidden * (2 * queries + 2 * keys) + (queries + 2 * keys if self.qkv_bias else 0)
        attention += 2 * self.head_width if self.qk_norm else 0
        if self.latent:
            attention = self.latent.count(self.hidden, self.heads)
            # half of the sum of the widths of keys and values, as in scores and their use
            queries, keys = self.heads * (self.latent.plain + self.latent.rotary + self.latent.value) // 2, 0
        attention += 2 * self.hidden + self.extra_per_layer
        moe_layers = self.layers - self.dense_layers if self.experts else 0
        height = self.hidden * (3 if self.gated else 2)
        expert_parameters = moe_layers * self.experts * (height * self.expert_mlp + self.extra_per_expert)
        dense = self.layers * attention + (self.layers - moe_layers) * (height * self.mlp + self.extra_per_mlp)
        dense += moe_layers * (self.hidden * self.experts + height * self.shared_mlp + self.extra_per_routing)
        dense += self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden + self.extra
        return Architecture(
            name=name,
            parameters=dense + expert_parameters,
            layers=self.layers,
            hidden=self.hidden,
            source=source,
            kv_width=keys,
            vocabulary=self.vocabulary,
            tied=self.tied,
            expert_parameters=expert_parameters,
            moe_layers=moe_layers,
            experts=self.experts,
            chosen_experts=self.chosen_experts,
            attention_width=queries,
        )


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
    name: NodeKind(8, 8, nic * RAIL_EFFICIENCY, nvlink * NVLINK_EFFICIENCY, operations, source)
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
