"""Reads models from the config.json of Hugging Face, as transformers 4 and 5 and the models' own code write it.

Only models whose layers are all of the form of `LayerShape` are counted. A key that changes the layers and that the
family does not have is a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibpulse.base.text import show
from ibpulse.base.values import YAML_TRUTH, whole
from ibpulse.base.yaml import YamlEntry, YamlFile, is_mapping, is_scalar, is_sequence, text_of
from ibpulse.workbench.models.catalogue import Architecture, LatentAttention, LayerShape

if TYPE_CHECKING:
    import yaml

OTHERWISE = "give parameters, layers and hidden in a file of ibpulse instead"
MAX_LAYERS = 10_000
FLAGS = "--"
"""Prefix of keys that are flags of a command."""
_NOTHING = ("null", "~", "", "None")
_NEUTRAL = ("0", "false", "False")


class ConfigFields:
    """The entries of a mapping; faults go to the file."""

    def __init__(self, file: YamlFile, node: yaml.Node | None, prefix: str = "") -> None:
        self.file, self.prefix = file, prefix
        self.line = node.start_mark.line + 1 if node else 1
        entries = file.entries(node, prefix) if is_mapping(node) else ()
        self.entries = {entry.name: entry for entry in entries}

    def name(self, key: str) -> str:
        """A key with its section."""
        return self.prefix + (key.replace("_", "-") if self.prefix == FLAGS else key)

    def place(self, key: str) -> str:
        """Line and name of a key; the line of its section if it is missing."""
        line = self.entries[key].line if key in self.entries else self.line
        return f"{line}: {self.name(key)}"

    def section(self, key: str) -> ConfigFields:
        """The entries of a mapping in this one; none if it is missing."""
        entry = self.entries.get(key)
        return ConfigFields(self.file, entry.value if entry else None, f"{self.name(key)}.")

    def rename(self, names: dict[str, str]) -> None:
        """Give entries other names, where nothing has them."""
        for old, new in names.items():
            if old in self.entries and new not in self.entries:
                entry = self.entries.pop(old)
                self.entries[new] = YamlEntry(new, entry.line, entry.value)

    def node(self, key: str) -> yaml.Node | None:
        """The value of a key; None if it is missing or null."""
        entry = self.entries.get(key)
        null = entry and is_scalar(entry.value) and entry.value.value in _NOTHING
        return None if entry is None or null else entry.value

    def text(self, key: str, default: str = "") -> str:
        """A text; its default if it is missing or null, or is not a single value."""
        node = self.node(key)
        if node is not None and not is_scalar(node):
            self.refuse(key, "not a single value; give one")
        return str(node.value) if is_scalar(node) else default

    def whole(self, key: str, default: int | None = None, high: int = 10_000_000, low: int = 1) -> int:
        """A whole number of at least `low`; without a default it is required, and the result 1 if it is missing.

        A list of one number for each layer is that number, if all are the same.
        """
        node = self.node(key)
        items = node.value if is_sequence(node) else []
        if len(items) > 1 and len({getattr(item, "value", None) for item in items}) == 1:
            node = items[0]
        text = str(node.value) if is_scalar(node) else self.text(key)
        if text:
            try:
                return whole(low, high).parse(text)
            except ValueError as error:
                self.refuse(key, str(error))
        elif default is None and node is None:
            self.refuse(key, f"is missing; {OTHERWISE}")
        return 1 if default is None else default

    def flag(self, key: str, default: bool = False) -> bool:
        """Whether a key is true."""
        text = self.text(key)
        if not text:
            return default
        try:
            return YAML_TRUTH.parse(text)
        except ValueError as error:
            self.refuse(key, str(error))
            return default

    def one_of(self, keys: Sequence[str]) -> str:
        """The key that is given, of several with the same meaning; the first if none is, a fault if two disagree."""
        given = [key for key in keys if self.node(key) is not None]
        if len({frozenset(self.texts(key)) for key in given}) > 1:
            self.refuse(given[1], f"is not what {given[0]} is; correct one")
        return given[0] if given else keys[0]

    def has(self, key: str) -> bool:
        """Whether a key has a value other than null, 0, false and an empty list."""
        node = self.node(key)
        return node is not None and bool(node.value) and node.value not in _NEUTRAL

    def texts(self, key: str) -> list[str]:
        """The texts of a list or of a single value; none if it is missing."""
        node = self.node(key)
        items = node.value if is_sequence(node) else [] if node is None else [node]
        return [text_of(item) for item in items]

    def indices(self, key: str) -> frozenset[int]:
        """The numbers of layers in a list; none if it is missing."""
        try:
            return frozenset(map(whole(0, MAX_LAYERS).parse, self.texts(key)))
        except ValueError as error:
            self.refuse(key, str(error))
            return frozenset()

    def latent_attention(self, *keys: str) -> LatentAttention:
        """Latent attention, from the keys of the rank of keys and values, and of its three widths."""
        return LatentAttention(self.whole("q_lora_rank", 0), *map(self.whole, keys))

    def refuse(self, key: str, sentence: str) -> None:
        """Add a fault about a key."""
        self.file.faults.append(f"{self.file.path}:{self.place(key)}: {sentence}")

    def count(self, shape: LayerShape, name: str) -> Architecture | None:
        """The model of these layers; None if the file has a fault."""
        # what is missing has the value 1, and would seem to contradict the rest
        if not self.file.faults and shape.chosen_experts > shape.experts:
            self.file.faults.append(
                f"{self.file.path}: {shape.chosen_experts} experts per token are more than its {shape.experts} experts"
            )
        return None if self.file.faults else shape.count(name, str(self.file.path))


# the same number in transformers 4, in transformers 5 and in the models' own code
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")
CHOSEN = ("num_experts_per_tok", "moe_k", "moe_topk", "moe_top_k", "num_experts_per_token")
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
SHARED_WIDTH = ("shared_expert_intermediate_size", "shared_intermediate_size")


@dataclass(frozen=True, slots=True)
class Family:
    """The layers of a `model_type`, where they differ from those of Llama; `shared` of its experts are always used.

    `bias` and `qk_norm` say which projections and norms there are, and name the key that switches them on. `parts` are
    biases of the router, of experts, of norms and of the head, shared experts and their gate, and sinks. `routing` are
    the keys that say which layers have experts; all of them have if there is none.
    """

    routed: bool = False
    latent: bool = False
    bias: str = ""
    qk_norm: str = ""
    expert_width: str = "moe_intermediate_size"
    dense_width: str = "intermediate_size"
    shared: int = 0
    tied: bool = False
    parts: frozenset[str] = frozenset()
    routing: tuple[str, ...] = ()


def _routed(*parts: str, bias: str = "", qk_norm: str = "", **more: object) -> Family:
    return Family(routed=True, bias=bias, qk_norm=qk_norm, parts=frozenset(parts), **more)  # type: ignore[arg-type]


_SPARSE_STEP = ("decoder_sparse_step", "mlp_only_layers")
_FIRST_DENSE = ("first_k_dense_replace", "moe_layer_freq", "mlp_layer_types")
_INTERLEAVED = ("interleave_moe_layer_step", "moe_layers")
_FROM_TO = ("moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval")
_DEEPSEEK_V3 = _routed("router bias", "shared", latent=True, routing=_FIRST_DENSE)
_QWEN3_MOE = _routed(bias="qkvo if attention_bias", qk_norm="head", routing=_SPARSE_STEP)
_GLM4_MOE = _routed(
    "router bias", "shared", bias="qkv if attention_bias", qk_norm="head if use_qk_norm", routing=_FIRST_DENSE
)
FAMILIES: Mapping[str, Family] = {
    "llama": Family(bias="qkvo if attention_bias"),
    "mistral": Family(),
    "qwen2": Family(bias="qkv"),
    "qwen3": Family(bias="qkvo if attention_bias", qk_norm="head"),
    "mixtral": _routed(expert_width="intermediate_size"),
    "qwen2_moe": _routed("shared", "shared gate", bias="qkv", routing=_SPARSE_STEP),
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "deepseek": _routed("shared", routing=_FIRST_DENSE),
    "deepseek_v2": _routed("shared", latent=True, routing=_FIRST_DENSE),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "glm4_moe": _GLM4_MOE,
    "glm4v_moe_text": _GLM4_MOE,
    "gpt_oss": _routed("router bias", "expert bias", "sinks", bias="qkvo", expert_width="intermediate_size"),
    "llama4_text": _routed(
        bias="qkvo if attention_bias", expert_width="intermediate_size", dense_width="intermediate_size_mlp", shared=1,
        routing=_INTERLEAVED,
    ),
    "minimax_m2": _routed("router bias", qk_norm="all if use_qk_norm", expert_width="intermediate_size"),
    "granitemoe": _routed(bias="qkvo if attention_bias", expert_width="intermediate_size"),
    "granitemoeshared": _routed("shared", bias="qkvo if attention_bias", expert_width="intermediate_size"),
    "olmoe": _routed(bias="qkvo if attention_bias", qk_norm="all", expert_width="intermediate_size"),
    "phimoe": _routed(
        "norm bias", "head bias", bias="qkvo if attention_bias", expert_width="intermediate_size"
    ),
    "dbrx": _routed(expert_width="ffn_hidden_size", dense_width="ffn_hidden_size"),
    "ernie4_5_moe": _routed("router bias", "shared", tied=True, routing=_FROM_TO),
    "hunyuan_v1_moe": _routed(
        "shared", bias="qkvo if attention_bias", qk_norm="head", expert_width="intermediate_size"
    ),
}  # fmt: skip
SUPPORTED = tuple(FAMILIES)
"""`model_type` of the models of Hugging Face whose parameters are counted."""
_DBRX = {
    "d_model": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers",
    "kv_n_heads": "num_key_value_heads",
}  # fmt: skip
# keys that change the layers: with experts or not, and of other kinds, which are not counted
_ROUTING = (*_SPARSE_STEP, *_FIRST_DENSE, *_INTERLEAVED, *_FROM_TO)
_OTHER_LAYERS = (
    "use_cla", "attn_layer_period", "expert_layer_period", "layers_block_type", "hybrid_override_pattern",
    "full_attention_interval", "linear_num_key_heads", "mamba_d_state", "num_kv_shared_layers", "zero_expert_num",
    "block_configs", "use_bias",
)  # fmt: skip
_KINDS = {"layer_types": ("full_attention", "sliding_attention", "chunked_attention"), "attn_type_list": ("1",)}
"""Lists of the kinds of layers, with the kinds that have the same parameters."""
_LATENT = ("kv_lora_rank", "q_lora_rank")


def read_hub_config(file: YamlFile, root: yaml.Node) -> Architecture | None:
    """The model of a config.json; faults are added to the file, and the result is then None.

    Of a model of texts and images, the part for text.
    """
    given = ConfigFields(file, root)
    name = kind = given.text("model_type")
    if kind not in FAMILIES and is_mapping(given.node("text_config")):
        given = given.section("text_config")
        kind = given.text("model_type") or f"{kind}_text"
        name = f"{name} (text)"
    family = FAMILIES.get(kind)
    if family is None:
        given.refuse("model_type", f"{show(kind)} is not one of {', '.join(SUPPORTED)}; {OTHERWISE}")
        return None
    if kind == "dbrx":
        for part in ("attn_config", "ffn_config"):
            given.entries |= given.section(part).entries
        given.rename(_DBRX)
    _refuse_other_layers(given, kind, family)
    return given.count(_shape(given, family), name)


def _refuse_other_layers(given: ConfigFields, kind: str, family: Family) -> None:
    unknown = (*_OTHER_LAYERS, *(key for key in _ROUTING if key not in family.routing))
    unknown += () if family.latent else _LATENT
    unknown += () if family.routed else EXPERTS
    unknown += () if "shared" in family.parts else (*SHARED, *SHARED_WIDTH)
    unknown += () if family.bias else ("attention_bias",)
    for key in unknown:
        # every layer, if it is one in every n-th
        if given.has(key) and not (key in _ROUTING and given.texts(key) == ["1"]):
            given.refuse(key, f"layers with it are not counted for {kind}; {OTHERWISE}")
    for key, kinds in _KINDS.items():
        others = [text for text in given.texts(key) if text not in kinds]
        if others:
            given.refuse(key, f"layers of the kind {show(others[0])} are not counted; {OTHERWISE}")


def _shape(given: ConfigFields, family: Family) -> LayerShape:
    hidden, heads = given.whole("hidden_size"), given.whole("num_attention_heads")
    layers = given.whole("num_hidden_layers", high=MAX_LAYERS)
    kv_heads = given.whole("num_key_value_heads", heads)
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    latent = given.latent_attention(*names) if family.latent else None
    width = 1 if latent else given.whole(given.one_of(("head_dim", "attention_head_dim")), max(1, hidden // heads))
    experts = given.whole(given.one_of(EXPERTS)) if family.routed else 0
    dense = _dense_layers(given, layers) if experts else 0
    expert_mlp = given.whole(family.expert_width) if experts else 0
    shared = _shared_width(given, family, expert_mlp) if experts else 0
    mlp_bias = not experts and given.flag("mlp_bias")
    mlp = given.whole(family.dense_width) if dense or not experts else 0
    queries, keys = heads * width, kv_heads * width
    parts = family.parts
    bias, norm = _switch(given, family.bias), _switch(given, family.qk_norm)
    routing = (experts if "router bias" in parts else 0) + (hidden if "shared gate" in parts else 0)
    return LayerShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_width=width,
        mlp=mlp,
        vocabulary=given.whole("vocab_size"),
        tied=given.flag("tie_word_embeddings", family.tied),
        experts=experts,
        chosen_experts=given.whole(given.one_of(CHOSEN)) if experts else 0,
        expert_mlp=expert_mlp,
        shared_mlp=shared,
        dense_layers=dense,
        latent=latent,
        qkv_bias=bias.startswith("qkv"),
        qk_norm=norm == "head",
        extra_per_layer=(hidden if bias == "qkvo" else 0)
        + (queries + keys if norm == "all" else 0)
        + (heads if "sinks" in parts else 0)
        + (2 * hidden if "norm bias" in parts else 0),
        extra_per_mlp=2 * mlp + hidden if mlp_bias else 0,
        extra_per_routing=routing,
        extra_per_expert=2 * expert_mlp + hidden if "expert bias" in parts else 0,
        extra=(hidden if "norm bias" in parts else 0)
        + (given.whole("vocab_size", 0) if "head bias" in parts and given.flag("lm_head_bias") else 0),
    )


def _switch(given: ConfigFields, said: str) -> str:
    """The words before `if`, such as `qkv`; empty if the key behind it is not true."""
    what, _, key = said.partition(" if ")
    return what if not key or given.flag(key) else ""


def _shared_width(given: ConfigFields, family: Family, expert_mlp: int) -> int:
    width = given.one_of(SHARED_WIDTH)
    if given.node(width) is not None:
        return given.whole(width, low=0)
    return given.whole(given.one_of(SHARED), family.shared, low=0) * expert_mlp


def _dense_layers(given: ConfigFields, layers: int) -> int:
    """The layers without experts; each family has some of these keys."""
    if given.file.faults:
        return 0
    named = given.texts("mlp_layer_types")
    if named:
        if len(named) != layers or set(named) - {"dense", "sparse"}:
            given.refuse("mlp_layer_types", f"is not a list of dense or sparse for {layers} layers; correct it")
        return named.count("dense")
    routed = set(range(layers)) - given.indices("mlp_only_layers")
    for key in ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"):
        every = given.whole(key, 1)
        routed = {layer for layer in routed if (layer + 1) % every == 0}
    if given.node("moe_layers") is not None:
        routed = set(range(layers)) & given.indices("moe_layers")
    first = max(given.whole(key, 0, low=0) for key in ("first_k_dense_replace", "moe_layer_start_index"))
    last = layers - 1 if given.text("moe_layer_end_index", "-1") == "-1" else given.whole("moe_layer_end_index", low=0)
    every = given.whole("moe_layer_freq", 1)
    return layers - sum(first <= layer <= last and layer % every == 0 for layer in routed)
