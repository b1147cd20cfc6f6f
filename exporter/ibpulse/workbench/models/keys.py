"""Every input of a prediction in one row: its name in flags and files, its values, its default, and its sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ibpulse.base.units import SECOND_NS, parse_duration, parse_rate, parse_size
from ibpulse.base.values import YAML_TRUTH, Kind, above_zero, choice, either, number, one, whole
from ibpulse.workbench.models.catalogue import CLUSTERS, DEFAULT_NODE, JOBS, MODELS, NODES
from ibpulse.workbench.models.collectives import NETWORK_FIGURES
from ibpulse.workbench.models.job import DISPATCHERS, NCCL_ALGORITHMS, SHARDINGS, UNKNOWN

MAX_COUNT = 10_000_000
MAX_LOADS = 100_000
_LOAD = number(0, None, "N", "120")


def _numbers(text: str) -> tuple[float, ...]:
    parts = text.replace(" ", "").split(",")
    if len(parts) > MAX_LOADS:
        raise ValueError(f"has {len(parts)} numbers; give at most {MAX_LOADS}")
    return tuple(map(_LOAD.parse, parts))


COUNT = whole(1, MAX_COUNT, "N")
AMOUNT = number(0, 1e30, "N", "7.6e9", some=True)
SHARE = number(0, 1, "RATIO", "0.4", some=True)
ELEMENT_BYTES = number(0.5, 8, "N", "1.03")
SECONDS = one("DURATION", above_zero(lambda text: parse_duration(text) / SECOND_NS))
RATE = one("RATE", above_zero(lambda text: float(parse_rate(text))))
SIZE = one("SIZE", above_zero(lambda text: float(parse_size(text))))
NUMBERS = one("N,N,...", _numbers)


def _name(*names: str) -> Kind[Any]:
    return choice(*names, metavar="NAME")


@dataclass(frozen=True, slots=True)
class InputKey:
    """An input; `flag` says whether it is an argument of the command too, or only a key of the file."""

    name: str
    kind: Kind[Any]
    sentence: str
    default: str = ""
    flag: bool = False


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


def _choice(name: str, what: str, *known: str, flag: bool = True) -> InputKey:
    """An input whose value is one of the known ones, or `unknown` by default."""
    names = (*known, UNKNOWN)
    return InputKey(name, _name(*names), f"{what}: {either(names)}", UNKNOWN, flag)


KEYS: Mapping[str, InputKey] = {
    key.name: key
    for key in (
        InputKey("model", _name(*MODELS), f"Published model: {_names(MODELS)}.", flag=True),
        InputKey("job", _name(*JOBS), f"Published job: {_names(JOBS)}.", flag=True),
        InputKey("cluster", _name(*CLUSTERS), f"Published cluster: {_names(CLUSTERS)}"),
        InputKey("node", _name(*NODES), f"Kind of node: {_names(NODES)}", DEFAULT_NODE, flag=True),
        InputKey("nodes", COUNT, "Number of nodes.", flag=True),
        InputKey("gpus-per-node", whole(1, 1024, "N"), "GPUs of a node", "of the kind of node"),
        InputKey("rails", whole(1, 1024, "N"), "Rails in use per node", "all", flag=True),
        InputKey("rail-rate", RATE, "Usable rate of a rail, one direction", "0.94 x line rate", flag=True),
        InputKey("nvlink-rate", RATE, "Usable rate of NVLink per GPU, one direction", "of the kind of node"),
        InputKey("tp", COUNT, "Tensor-parallel degree", "1", flag=True),
        InputKey("cp", COUNT, "Context-parallel degree", "1"),
        InputKey("pp", whole(1, 10_000, "N"), "Pipeline-parallel degree", "1", flag=True),
        InputKey("ep", COUNT, "Expert-parallel degree", "1", flag=True),
        InputKey("etp", COUNT, "Tensor-parallel degree of experts", "1"),
        InputKey("virtual-stages", whole(1, 10_000, "N"), "Model chunks per pipeline stage", "1"),
        InputKey("sharding", _name(*SHARDINGS), f"Sharding: {_names(SHARDINGS)}", "fsdp", flag=True),
        InputKey("shard-ranks", COUNT, "Ranks that share the parameters under hsdp"),
        InputKey("micro-batch", COUNT, "Sequences of a micro-batch", "1"),
        InputKey("global-batch", COUNT, "Sequences of a step", "one micro-batch per rank", flag=True),
        InputKey("sequence", COUNT, "Tokens of a sequence", "4096", flag=True),
        _choice("algorithm", "Algorithm", *NCCL_ALGORITHMS),
        _choice("dispatch", "Dispatch of tokens", *DISPATCHERS),
        _choice("recompute", "Recomputed activations", "none", "full"),
        _choice(
            "reduction", "Gradients are reduced after each micro-batch or once per step", "each", "once", flag=False
        ),
        InputKey(
            "dispatch-bytes",
            ELEMENT_BYTES,
            "Bytes of an element sent to experts: 2 for BF16, 1.03 for FP8 with its scales",
            "1.03 to 2",
            flag=True,
        ),
        InputKey("combine-bytes", ELEMENT_BYTES, "Bytes of an element sent back from experts", "2"),
        InputKey("gradient-bytes", whole(1, 8, "N"), "Bytes of a gradient on the wire", "2, or 2 to 4"),
        InputKey("step", SECONDS, "Measured time of a step, such as 315ms.", flag=True),
        InputKey("measured", SIZE, "Measured bytes that a node sends per step, to compare.", flag=True),
        InputKey("mfu", SHARE, "Model FLOPs utilisation of a whole step, which gives its time.", flag=True),
        InputKey("hfu", SHARE, "The same if recomputed operations are counted.", flag=True),
        InputKey("peak-share", SHARE, "Share of peak FLOP/s while computing, without communication.", flag=True),
        _choice("attention", "Attention scores that these count", "none", "causal", "full"),
        InputKey("prefetch", whole(1, 64, "N"), "Units that FSDP gathers ahead of the compute", "1 to 3"),
        InputKey("units", whole(1, 1000, "N"), "Units that FSDP gathers one by one", "the layers"),
        InputKey("expert-loads", NUMBERS, "Measured tokens per expert, for the cost of uneven routing"),
        InputKey("network", _name(*NETWORK_FIGURES), f"Kind of network: {_names(NETWORK_FIGURES)}"),
        InputKey("oversubscription", AMOUNT, "Oversubscription of a fat tree, 7 for 1:7", "1"),
        InputKey("dimensions", NUMBERS, "Dimensions of a torus"),
        InputKey("groups", COUNT, "Groups of a dragonfly"),
        InputKey("global-links", COUNT, "Cables from a group of a dragonfly to others"),
        InputKey("parameters", AMOUNT, "Parameters of a model that is not published"),
        InputKey("layers", whole(1, 10_000, "N"), "Its layers"),
        InputKey("hidden", COUNT, "Its hidden size"),
        InputKey("kv-width", COUNT, "Its width of keys: heads of keys times their width"),
        InputKey("attention-width", COUNT, "Its width of queries: heads times their width", "hidden"),
        InputKey("vocabulary", COUNT, "Its vocabulary"),
        InputKey("tied", YAML_TRUTH, "Whether its embeddings are tied", "false"),
        InputKey("expert-parameters", AMOUNT, "Parameters of all its routed experts"),
        InputKey("moe-layers", whole(1, 10_000, "N"), "Its layers with experts"),
        InputKey("experts", whole(1, 100_000, "N"), "Its experts per layer"),
        InputKey("experts-per-token", whole(1, 1000, "N"), "Experts that a token is sent to"),
    )
}
