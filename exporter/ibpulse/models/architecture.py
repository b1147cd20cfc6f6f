"""The size of a language model: published figures, or counted from the shapes of its layers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """What traffic and operations depend on. `kv_width` is the width of keys, and of values; 0 if unknown.

    `parameters` are all, `expert_parameters` those of routed experts, in `moe_layers` of the `layers`.
    `attention_width` is the number of heads times their width, 0 if that is the hidden size.
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
