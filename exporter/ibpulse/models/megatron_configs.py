"""Reads the job and the model of Megatron: `run_config.yaml` of Megatron-Bridge, or `MODEL_ARGS` of Megatron-LM.

Only decoders whose layers are all of the form of `LayerShape` are counted. Missing arguments of Megatron-LM have their
defaults (megatron/training/arguments.py at d98e8a64); its vocabulary is that of a tokenizer, which the file only names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibpulse.base.values import GivenText
from ibpulse.base.yaml import YamlFile, is_sequence
from ibpulse.models.architecture import Architecture, LatentAttention, LayerShape
from ibpulse.models.config_fields import FLAGS, MOST_LAYERS, OTHERWISE, ConfigFields
from ibpulse.models.megatron_flags import MODEL_ARGS, flag_entries

if TYPE_CHECKING:
    import yaml

BRIDGE_TARGET = "megatron.bridge."
"""Class names in a run_config.yaml begin like this."""
_REPEATED = re.compile(r"\[([01](?:,[01])*)\](?:\*(\d{1,5}))?")
# keys that change the layers, or replace them by others
_OTHER_LAYERS = (
    "mtp_num_layers", "hybrid_override_pattern", "hybrid_layer_pattern", "hybrid_attention_ratio",
    "experimental_attention_variant", "linear_attention_freq", "heterogeneous_layers_config_path",
    "heterogeneous_layers_config_encoded_json",
)  # fmt: skip
_LM_NAMES = {
    "num_experts": "num_moe_experts",
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
}


@dataclass(frozen=True, slots=True)
class MegatronJob:
    """What a file says of a job: texts of inputs with their places, and the model, or faults why it is not known."""

    texts: Mapping[str, GivenText]
    model: Architecture | None
    lack: tuple[str, ...] = ()


def other_program(file: YamlFile, root: yaml.Node) -> str:
    """The program whose file this is, if it is like one of Megatron but of another; empty if not."""
    top = ConfigFields(file, root)
    model = top.section("model")
    targets = [one.text("_target_") for one in (top, model)]
    if any(BRIDGE_TARGET in target for target in targets):
        return ""
    of_nemo_1 = "trainer" in top.entries and any("model_parallel_size" in name for name in model.entries)
    if of_nemo_1 or any(target.startswith("nemo") for target in targets):
        return "NeMo"
    return "another program" if model.entries else ""


def read_run_config(file: YamlFile, root: yaml.Node) -> MegatronJob:
    """The job and the model of a run_config.yaml of Megatron-Bridge; faults are added to the file."""
    top = ConfigFields(file, root)
    model = top.section("model")
    return MegatronJob(_texts(model, top.section("train"), top.section("ddp")), _model(model))


def read_model_args(file: YamlFile, root: yaml.Node) -> MegatronJob:
    """The job and the model of `MODEL_ARGS`; the model is not known if one of its figures is missing."""
    args = ConfigFields(file, root).entries[MODEL_ARGS]
    flags = ConfigFields(file, None, FLAGS)
    flags.line, flags.entries = args.line, flag_entries(file, args.value)
    flags.rename(_LM_NAMES)
    texts = _texts(flags, flags, flags)
    apart = YamlFile(file.path)
    model = ConfigFields(apart, None, FLAGS)
    model.line, model.entries = args.line, dict(flags.entries)
    _put_defaults(model)
    found = _model(model)
    return MegatronJob(texts, found, tuple(fault.replace(OTHERWISE, "give it, or --model") for fault in apart.faults))


def _put_defaults(model: ConfigFields) -> None:
    """Put in the defaults of Megatron-LM."""
    if not model.flag("group_query_attention"):
        model.entries.pop("num_query_groups", None)
    if "vocab_size" not in model.entries and "padded_vocab_size" in model.entries:
        model.rename({"padded_vocab_size": "vocab_size"})


def _texts(model: ConfigFields, train: ConfigFields, ddp: ConfigFields) -> dict[str, GivenText]:
    texts: dict[str, GivenText] = {}
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
            texts[name] = _given(section, text, key)
    # Megatron-LM divides experts like other layers by default
    if "tp" in texts and "etp" not in texts and model.node("num_moe_experts") is not None:
        texts["etp"] = texts["tp"]
    texts.update(_choices(model, ddp))
    return texts


def _given(section: ConfigFields, text: str, key: str) -> GivenText:
    return GivenText(text, f"{section.file.path}:{section.place(key)}")


def _choices(model: ConfigFields, ddp: ConfigFields) -> Mapping[str, GivenText]:
    """Inputs that follow from switches."""
    fully = any(map(ddp.flag, ("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2")))
    optimizer = ddp.flag("use_distributed_optimizer")
    # names of Megatron-Bridge and of Megatron-LM
    in_fp32 = ddp.one_of(("grad_reduce_in_fp32", "accumulate_allreduce_grads_in_fp32"))
    texts = {
        "sharding": _given(ddp, "fsdp" if fully else "zero1" if optimizer else "ddp", "use_distributed_optimizer"),
        "gradient-bytes": _given(ddp, "4" if ddp.flag(in_fp32) else "2", in_fp32),
    }
    recompute = model.text("recompute_granularity")
    # a variable of the shell has no known value
    if "$" not in recompute:
        texts["recompute"] = _given(model, "full" if recompute == "full" else "none", "recompute_granularity")
    dispatchers = {"alltoall": "alltoall", "flex": "deduplicated"}
    if dispatcher := dispatchers.get(model.text("moe_token_dispatcher_type")):
        texts["dispatch"] = _given(model, dispatcher, "moe_token_dispatcher_type")
    return texts


def _model(model: ConfigFields) -> Architecture | None:
    for key in _OTHER_LAYERS:
        if model.has(key):
            model.refuse(key, f"layers of this kind are not counted; {OTHERWISE}")
    lm = model.prefix == FLAGS
    gated = model.flag("swiglu") if lm else model.flag("gated_linear_unit", True)
    biased = not model.flag("disable_bias_linear") if lm else model.flag("add_bias_linear")
    centered = model.text("normalization", "LayerNorm" if lm else "RMSNorm") == "LayerNorm"
    hidden, heads = model.whole("hidden_size"), model.whole("num_attention_heads")
    layers = model.whole("num_layers", high=MOST_LAYERS)
    experts = model.whole("num_moe_experts") if model.has("num_moe_experts") else 0
    dense = _dense_layers(model, layers) if experts else 0
    # of experts as well, where their own is missing
    width = model.whole("ffn_hidden_size", _default_width(hidden, gated) if lm else None)
    expert_mlp = model.whole("moe_ffn_hidden_size", width) if experts else 0
    latent = _latent(model) if model.flag("multi_latent_attention") else None
    shape = LayerShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=model.whole("num_query_groups", heads),
        head_width=model.whole("kv_channels", max(1, hidden // heads)),
        mlp=width,
        vocabulary=model.whole("vocab_size"),
        tied=_tied(model),
        gated=gated,
        qkv_bias=biased or model.flag("add_qkv_bias"),
        qk_norm=model.flag("qk_layernorm"),
        experts=experts,
        chosen_experts=model.whole("moe_router_topk", 2 if lm else None) if experts else 0,
        expert_mlp=expert_mlp,
        shared_mlp=model.whole("moe_shared_expert_intermediate_size", 0, low=0) if experts else 0,
        dense_layers=dense,
        latent=latent,
        extra_per_layer=(hidden if biased else 0) + (2 * hidden if centered else 0),
        extra_per_mlp=_mlp_bias(width, hidden, gated) if biased else 0,
        extra_per_routing=hidden if model.flag("moe_shared_expert_gate") else 0,
        extra_per_expert=_mlp_bias(expert_mlp, hidden, gated) if biased else 0,
        extra=_positions(model) * hidden + (hidden if centered else 0),
    )
    return model.count(shape, "model")


def _mlp_bias(width: int, hidden: int, gated: bool) -> int:
    return (2 if gated else 1) * width + hidden


def _default_width(hidden: int, gated: bool) -> int:
    """The width of MLPs in Megatron-LM: four times the hidden size, with gates two thirds of it in steps of 64."""
    return max(1, int(4 * hidden * 2 / 3) // 64 * 64) if gated else 4 * hidden


def _positions(model: ConfigFields) -> int:
    """The number of positions whose embeddings are learned, as by default in Megatron-LM."""
    lm = model.prefix == FLAGS
    kind = model.text("position_embedding_type", "learned_absolute" if lm else "rope")
    if kind != "learned_absolute" or any(map(model.flag, ("use_rotary_position_embeddings", "no_position_embedding"))):
        return 0
    return model.whole("max_position_embeddings" if lm else "seq_length")


def _latent(model: ConfigFields) -> LatentAttention:
    return LatentAttention(
        model.whole("q_lora_rank", 0),
        model.whole("kv_lora_rank"),
        model.whole("qk_head_dim"),
        model.whole("qk_pos_emb_head_dim"),
        model.whole("v_head_dim"),
    )


def _tied(model: ConfigFields) -> bool:
    """Whether embeddings are shared; Megatron-LM shares them unless told otherwise."""
    if model.prefix == FLAGS:
        return not model.flag("untie_embeddings_and_output_weights")
    return model.flag("share_embeddings_and_output_weights")


def _dense_layers(model: ConfigFields, layers: int) -> int:
    """Layers without experts, from `moe_layer_freq`: every n-th layer has experts, or a list with 1 for each.

    Megatron-LM writes lists like `([0]*3+[1]*58)`.
    """
    node = model.node("moe_layer_freq")
    pattern = [str(item.value) for item in node.value] if is_sequence(node) else _pattern(model.text("moe_layer_freq"))
    if pattern is None:
        return layers - math.ceil(layers / model.whole("moe_layer_freq", 1))
    with_experts = pattern.count("1")
    if len(pattern) != layers or not with_experts:
        model.refuse("moe_layer_freq", f"has {len(pattern)} entries for {layers} layers; give 0 or 1 per layer")
    return layers - with_experts


def _pattern(text: str) -> list[str] | None:
    """The entries of a list in Python's words; None if it is not one."""
    plain = re.sub(r"[\s()'\"]", "", text)
    parts = plain.split("+")
    found = [_REPEATED.fullmatch(part) for part in parts]
    if not all(found):
        return None
    return [entry for part in found if part for entry in part[1].split(",") * min(MOST_LAYERS, int(part[2] or 1))]
