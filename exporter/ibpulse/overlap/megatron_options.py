"""The options of Megatron that the rules are about: their places in run_config.yaml, their flags, their defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ibpulse.overlap.rule_conditions import GivenOption, OptionValue, version_key

Kind = Literal["flag", "count", "text", "list", "version"]
MOST_COUNT = 10**9
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_NOTHING = ("", "~", "null", "none")


class NoDefault:
    """The value of an option that nothing sets is not known."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its kind, its keys in run_config.yaml (the first that is there counts), and its flags.

    A key that begins with `!` has the opposite meaning. `off_flags` switch the option off. `default` is the value that
    Megatron-LM's command line gives it.
    """

    name: str
    kind: Kind
    keys: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    off_flags: tuple[str, ...] = ()
    default: OptionValue | type[NoDefault] = NoDefault

    def parse(self, text: str) -> OptionValue:
        """The value that a text means; None if it says that the option is unset.

        Raises:
            ValueError: it is not a value of this kind.
        """
        if text.lower() in _NOTHING:
            return None
        if self.kind == "flag":
            return _parse_flag(text)
        if self.kind == "count":
            if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > MOST_COUNT:
                raise ValueError(f"{text[:40]!r} is not a whole number from 0 to {MOST_COUNT}")
            return int(text)
        if self.kind == "list":
            return tuple(part.rpartition(".")[2] for part in text.replace(",", " ").split())
        if self.kind == "version":
            version_key(text)
        return text


@dataclass(slots=True)
class FoundOptions:
    """What a reader found: options by name, faults that make the file unusable, and remarks on what no rule can use."""

    options: dict[str, GivenOption] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def _parse_flag(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"{text[:40]!r} is not true or false")


def _switch(name: str, *keys: str, flag: str = "") -> Option:
    """An option that a flag switches on."""
    flags = (flag or f"--{name.replace('_', '-')}",)
    return Option(name, "flag", keys or (f"model.{name}",), flags, default=False)


def _model(name: str, kind: Kind, *flags: str, default: OptionValue | type[NoDefault] = None) -> Option:
    """An option with a value in the section of the model."""
    return Option(name, kind, (f"model.{name}",), flags or (f"--{name.replace('_', '-')}",), default=default)


OPTIONS = {
    option.name: option
    for option in (
        # experts
        _switch(
            "overlap_moe_expert_parallel_comm",
            *(f"{where}.overlap_moe_expert_parallel_comm" for where in ("comm_overlap", "model")),
        ),
        _switch("delay_wgrad_compute", "comm_overlap.delay_wgrad_compute", "model.delay_wgrad_compute"),
        _switch("overlap_dispatch_backward_with_experts_wgrad"),
        _switch("ep_overlap_early_attn_memory_release"),
        _switch("moe_shared_expert_overlap"),
        _model("expert_model_parallel_size", "count", default=1),
        _model("num_moe_experts", "count", "--num-experts"),
        _model("moe_token_dispatcher_type", "text", default="allgather"),
        _model("moe_flex_dispatcher_backend", "text", default="deepep"),
        _model("moe_shared_expert_intermediate_size", "count"),
        _model("mtp_num_layers", "count"),
        # sizes
        _model("tensor_model_parallel_size", "count", default=1),
        _model("context_parallel_size", "count", default=1),
        _model("pipeline_model_parallel_size", "count", default=1),
        Option(
            "virtual_pipeline_model_parallel_size",
            "count",
            ("model.virtual_pipeline_model_parallel_size",),
            ("--num-virtual-stages-per-pipeline-rank",),
            default=None,
        ),
        Option("data_parallel_size", "count", ("data_parallel_size", "comm_overlap.data_parallel_size")),
        # layers
        _model("recompute_granularity", "text"),
        _model("recompute_method", "text"),
        _model("recompute_num_layers", "count"),
        _model("recompute_modules", "list"),
        _switch("bf16"),
        _switch("fp16"),
        _switch("fine_grained_activation_offloading"),
        _model("offload_modules", "list"),
        _model("cuda_graph_impl", "text", default="none"),
        Option(
            "cuda_graph_modules",
            "list",
            ("model.cuda_graph_modules", "model.cuda_graph_scope"),
            ("--cuda-graph-modules", "--cuda-graph-scope"),
            default=None,
        ),
        _model("transformer_impl", "text", default="transformer_engine"),
        Option(
            "gradient_accumulation_fusion",
            "flag",
            ("model.gradient_accumulation_fusion",),
            off_flags=("--no-gradient-accumulation-fusion",),
            default=True,
        ),
        Option(
            "add_bias_linear", "flag", ("model.add_bias_linear",), off_flags=("--disable-bias-linear",), default=True
        ),
        _switch("add_qkv_bias"),
        Option(
            "untie_embeddings_and_output_weights",
            "flag",
            ("!model.share_embeddings_and_output_weights",),
            ("--untie-embeddings-and-output-weights",),
            default=False,
        ),
        # tensor and pipeline parallelism
        _switch("tp_comm_overlap", "comm_overlap.tp_comm_overlap", "model.tp_comm_overlap"),
        _switch("sequence_parallel"),
        Option(
            "overlap_p2p_comm",
            "flag",
            ("comm_overlap.overlap_p2p_comm", "model.overlap_p2p_comm"),
            off_flags=("--no-overlap-p2p-communication",),
            default=True,
        ),
        Option("batch_p2p_comm", "flag", ("comm_overlap.batch_p2p_comm", "model.batch_p2p_comm")),
        # data parallelism
        Option("comm_overlap", "flag", default=False),
        _switch("use_distributed_optimizer", "ddp.use_distributed_optimizer"),
        _switch("use_megatron_fsdp", "ddp.use_megatron_fsdp"),
        _switch("use_torch_fsdp2", "dist.use_torch_fsdp2"),
        _switch("overlap_grad_reduce", "comm_overlap.overlap_grad_reduce", "ddp.overlap_grad_reduce"),
        _switch("overlap_param_gather", "comm_overlap.overlap_param_gather", "ddp.overlap_param_gather"),
        Option("optimizer_overlap_param_gather", "flag", ("optimizer.overlap_param_gather",)),
        _switch(
            "overlap_param_gather_with_optimizer_step",
            "comm_overlap.overlap_param_gather_with_optimizer_step",
            "optimizer.overlap_param_gather_with_optimizer_step",
        ),
        Option(
            "align_param_gather",
            "flag",
            ("comm_overlap.align_param_gather", "ddp.align_param_gather"),
            off_flags=("--no-align-param-gather",),
            default=True,
        ),
        Option(
            "bucket_size",
            "count",
            ("comm_overlap.bucket_size", "ddp.bucket_size"),
            ("--ddp-bucket-size",),
            default=None,
        ),
        Option("optimizer", "text", ("optimizer.optimizer",), ("--optimizer",), default="adam"),
        Option("ckpt_format", "text", ("checkpoint.ckpt_format",), ("--ckpt-format",), default="torch_dist"),
        Option(
            "save_params_interval",
            "count",
            ("checkpoint.save_params_interval",),
            ("--save-params-interval",),
            default=None,
        ),
        # the machine
        Option("native_energon_packing", "flag"),
        Option("torch", "version"),
        Option("transformer_engine", "version"),
        Option("compute_capability", "version"),
        Option("gpu_name", "text"),
        Option("nodes", "count", flags=("--nnodes",)),
        Option("CUDA_DEVICE_MAX_CONNECTIONS", "count"),
    )
}
"""Every option by its name, which is that of Megatron-Core where it has one."""

CONSTANT_FLAGS = {
    "--recompute-activations": ("recompute_granularity", "selective"),
    "--enable-cuda-graph": ("cuda_graph_impl", "local"),
    "--external-cuda-graph": ("cuda_graph_impl", "transformer_engine"),
}
"""Flags without a value that give an option one."""

_OVERLAP = "comm_overlap."
OVERLAP_KEYS = frozenset(
    (
        "_target_",
        "tp_comm_overlap_cfg",
        "tp_comm_bootstrap_backend",
        "defer_embedding_wgrad_compute",
        "wgrad_deferral_limit",
        *(key.removeprefix(_OVERLAP) for option in OPTIONS.values() for key in option.keys if key.startswith(_OVERLAP)),
    )
)
"""Every key of the section `comm_overlap` of run_config.yaml."""
