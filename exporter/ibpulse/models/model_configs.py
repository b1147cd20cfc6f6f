"""Models in the configuration files of other programs: Hugging Face's config.json, Megatron-Bridge's run_config.yaml.

Only decoders of the Llama family are counted, because the parameters of others do not follow from these keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibpulse.base.values import YAML_TRUTH, whole
from ibpulse.base.yaml import YamlFile, is_mapping, is_scalar, is_sequence
from ibpulse.models.architecture import Architecture, LayerShape
from ibpulse.text import escape_controls, show

if TYPE_CHECKING:
    import yaml

SUPPORTED = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe")
"""`model_type` of the models of Hugging Face whose parameters are counted."""
OTHERWISE = "give parameters, layers and hidden in a file of ibpulse instead"
MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What a run_config.yaml says of a job: the model, and texts of inputs with line and name of their keys."""

    texts: Mapping[str, tuple[str, str]]
    model: Architecture | None


class ConfigFields:
    """The entries of a mapping with their lines; faults go to the file."""

    def __init__(self, file: YamlFile, node: yaml.Node | None, prefix: str = "") -> None:
        self.file, self.prefix = file, prefix
        self.line = node.start_mark.line + 1 if node else 1
        entries = file.entries(node, prefix) if is_mapping(node) else ()
        self.entries = {entry.name: entry for entry in entries}

    def name(self, key: str) -> str:
        """A key with its section."""
        return escape_controls(f"{self.prefix}{key}")

    def place(self, key: str) -> str:
        """Line and name of a key; the line of its section if it is missing."""
        line = self.entries[key].line if key in self.entries else self.line
        return f"{line}: {self.name(key)}"

    def section(self, key: str) -> ConfigFields:
        """The entries of a mapping in this one; none if it is missing."""
        entry = self.entries.get(key)
        return ConfigFields(self.file, entry.value if entry else None, f"{self.name(key)}.")

    def node(self, key: str) -> yaml.Node | None:
        """The value of a key; None if it is missing or null."""
        entry = self.entries.get(key)
        null = entry and is_scalar(entry.value) and entry.value.value in ("null", "~", "")
        return None if entry is None or null else entry.value

    def text(self, key: str, default: str = "") -> str:
        """A text; its default if it is missing or null, or is not a single value."""
        node = self.node(key)
        if node is not None and not is_scalar(node):
            self.refuse(key, "not a single value; give one")
        return str(node.value) if is_scalar(node) else default

    def whole(self, key: str, default: int | None = None, high: int = 10_000_000) -> int:
        """A whole number of at least 1; without a default it is required, and the result 1 if it is missing."""
        text = self.text(key)
        if text:
            try:
                return whole(1, high).parse(text)
            except ValueError as error:
                self.refuse(key, str(error))
        elif default is None:
            self.refuse(key, f"is missing; {OTHERWISE}")
        return default or 1

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

    def refuse(self, key: str, sentence: str) -> None:
        """Add a fault about a key."""
        self.file.faults.append(f"{self.file.path}:{self.place(key)}: {sentence}")


def read_hub_config(file: YamlFile, root: yaml.Node) -> Architecture | None:
    """The model of a config.json of Hugging Face; faults are added to the file, and the result is then None."""
    given = ConfigFields(file, root)
    kind = given.text("model_type")
    if kind not in SUPPORTED:
        given.refuse("model_type", f"{show(kind)} is not one of {', '.join(SUPPORTED)}; {OTHERWISE}")
        return None
    hidden, heads = given.whole("hidden_size"), given.whole("num_attention_heads")
    layers = given.whole("num_hidden_layers", high=MOST_LAYERS)
    routed = kind in ("mixtral", "qwen3_moe")
    if routed and given.node("decoder_sparse_step") is not None and given.whole("decoder_sparse_step") > 1:
        given.refuse("decoder_sparse_step", f"layers with and without experts are not counted; {OTHERWISE}")
    width = given.whole("intermediate_size")
    experts = given.whole("num_experts" if kind == "qwen3_moe" else "num_local_experts") if routed else 0
    shape = LayerShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=given.whole("num_key_value_heads", heads),
        head_width=given.whole("head_dim", max(1, hidden // heads)),
        mlp=width,
        vocabulary=given.whole("vocab_size"),
        tied=given.flag("tie_word_embeddings"),
        qkv_bias=kind == "qwen2",
        qk_norm=kind in ("qwen3", "qwen3_moe"),
        experts=experts,
        chosen_experts=given.whole("num_experts_per_tok") if routed else 0,
        expert_mlp=given.whole("moe_intermediate_size") if kind == "qwen3_moe" else width,
    )
    return _counted(given, shape, kind)


def _counted(given: ConfigFields, shape: LayerShape, name: str) -> Architecture | None:
    if shape.chosen_experts > shape.experts:
        given.file.faults.append(
            f"{given.file.path}: {shape.chosen_experts} experts per token are more than its {shape.experts} experts"
        )
    return None if given.file.faults else shape.count(name, str(given.file.path))


def read_run_config(file: YamlFile, root: yaml.Node) -> RunConfig:
    """The job and the model of a run_config.yaml of Megatron-Bridge; faults are added to the file."""
    top = ConfigFields(file, root)
    model, train, ddp = top.section("model"), top.section("train"), top.section("ddp")
    texts: dict[str, tuple[str, str]] = {}
    for name, section, key in (
        ("tp", model, "tensor_model_parallel_size"),
        ("cp", model, "context_parallel_size"),
        ("pp", model, "pipeline_model_parallel_size"),
        ("ep", model, "expert_model_parallel_size"),
        ("etp", model, "expert_tensor_parallel_size"),
        ("virtual-stages", model, "virtual_pipeline_model_parallel_size"),
        ("sequence", model, "seq_length"),
        ("micro-batch", train, "micro_batch_size"),
        ("global-batch", train, "global_batch_size"),
    ):
        if text := section.text(key):
            texts[name] = (text, section.place(key))
    # Megatron-LM divides experts like other layers by default
    if "tp" in texts and "etp" not in texts and model.node("num_moe_experts") is not None:
        texts["etp"] = texts["tp"]
    texts.update(_choices(model, ddp))
    return RunConfig(texts, _bridge_model(model))


def _choices(model: ConfigFields, ddp: ConfigFields) -> Mapping[str, tuple[str, str]]:
    """Inputs that follow from switches."""
    fully, optimizer = ddp.flag("use_megatron_fsdp"), ddp.flag("use_distributed_optimizer")
    texts = {
        "sharding": ("fsdp" if fully else "zero1" if optimizer else "ddp", ddp.place("use_distributed_optimizer")),
        "gradient-bytes": ("4" if ddp.flag("grad_reduce_in_fp32") else "2", ddp.place("grad_reduce_in_fp32")),
        "recompute": (
            "full" if model.text("recompute_granularity") == "full" else "none",
            model.place("recompute_granularity"),
        ),
    }
    dispatchers = {"alltoall": "alltoall", "flex": "deduplicated"}
    if dispatcher := dispatchers.get(model.text("moe_token_dispatcher_type")):
        texts["dispatch"] = (dispatcher, model.place("moe_token_dispatcher_type"))
    return texts


def _bridge_model(model: ConfigFields) -> Architecture | None:
    if model.flag("multi_latent_attention"):
        model.refuse("multi_latent_attention", f"latent attention is not counted; {OTHERWISE}")
    if not model.flag("gated_linear_unit", True):
        model.refuse("gated_linear_unit", f"MLPs without gates are not counted; {OTHERWISE}")
    hidden, heads = model.whole("hidden_size"), model.whole("num_attention_heads")
    layers = model.whole("num_layers", high=MOST_LAYERS)
    width = model.whole("ffn_hidden_size")
    experts = model.whole("num_moe_experts", 0) if model.node("num_moe_experts") is not None else 0
    shared = model.node("moe_shared_expert_intermediate_size") is not None
    shape = LayerShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=model.whole("num_query_groups", heads),
        head_width=model.whole("kv_channels", max(1, hidden // heads)),
        mlp=width,
        vocabulary=model.whole("vocab_size"),
        tied=model.flag("share_embeddings_and_output_weights"),
        qkv_bias=model.flag("add_qkv_bias"),
        qk_norm=model.flag("qk_layernorm"),
        experts=experts,
        chosen_experts=model.whole("moe_router_topk") if experts else 0,
        expert_mlp=model.whole("moe_ffn_hidden_size", width) if experts else 0,
        shared_mlp=model.whole("moe_shared_expert_intermediate_size") if shared else 0,
        dense_layers=_dense_layers(model, layers) if experts else 0,
    )
    return _counted(model, shape, "model")


def _dense_layers(model: ConfigFields, layers: int) -> int:
    """Layers without experts, from `moe_layer_freq`: every n-th layer has experts, or a list with 1 for each."""
    node = model.node("moe_layer_freq")
    if is_sequence(node):
        with_experts = [item for item in node.value if is_scalar(item) and item.value == "1"]
        if len(node.value) != layers or not with_experts:
            model.refuse("moe_layer_freq", f"has {len(node.value)} entries for {layers} layers; give 0 or 1 per layer")
        return layers - len(with_experts)
    return layers - math.ceil(layers / model.whole("moe_layer_freq", 1))
