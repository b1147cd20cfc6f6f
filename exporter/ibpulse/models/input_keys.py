"""Every input of a prediction in one row: its name in flags and files, its values, its default, and its sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from ibpulse.models.bisection_inputs import NETWORKS
from ibpulse.models.expert_traffic import DISPATCHERS
from ibpulse.models.presets import DEFAULT_NODE, MODELS, NODES
from ibpulse.models.published_jobs import CLUSTERS, JOBS
from ibpulse.models.step_time import ATTENTION_SHARES
from ibpulse.models.training_job import NCCL_ALGORITHMS, SHARDINGS, UNKNOWN
from ibpulse.text import show
from ibpulse.units import SECOND_NS, parse_duration, parse_rate, parse_size

MOST = 10_000_000
MOST_LOADS = 100_000
_WHOLE = re.compile("[0-9]{1,8}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?([eE]\+?[0-9]{1,2})?", re.ASCII)

Value = int | float | str | bool | tuple[float, ...] | None


def whole_number(low: int = 1, high: int = MOST) -> Callable[[str], Value]:
    """A parser of whole numbers within bounds."""

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            raise ValueError(f"{show(text)} is not a whole number of {low} to {high}")
        return int(text)

    return parse


def positive_number(text: str) -> Value:
    """A number above 0, such as 7.6e9.

    Raises:
        ValueError: it is not a number, or not above 0 and at most 1e30.
    """
    if not _NUMBER.fullmatch(text) or not 0 < float(text) <= 1e30:
        raise ValueError(f"{show(text)} is not a number above 0; write it like 7.6e9")
    return float(text)


def share(text: str) -> Value:
    """A share above 0 and up to 1.

    Raises:
        ValueError: it is not.
    """
    if not _NUMBER.fullmatch(text) or not 0 < float(text) <= 1:
        raise ValueError(f"{show(text)} is not a share above 0 and up to 1; write it like 0.4")
    return float(text)


def element_bytes(text: str) -> Value:
    """Bytes of an element of an array, 0.5 to 8.

    Raises:
        ValueError: they are not.
    """
    if not _NUMBER.fullmatch(text) or not 0.5 <= float(text) <= 8:
        raise ValueError(f"{show(text)} is not a number of 0.5 to 8; write it like 1.03")
    return float(text)


def choice(*names: str) -> Callable[[str], Value]:
    """A parser of one of some names."""

    def parse(text: str) -> str:
        if text not in names:
            nearest = get_close_matches(text, names, n=1)
            way_out = f"did you mean {nearest[0]}?" if nearest else f"choose {', '.join(names)}"
            raise ValueError(f"{show(text)} is not known; {way_out}")
        return text

    return parse


def seconds(text: str) -> Value:
    """Seconds of a duration such as 315ms, more than 0.

    Raises:
        ValueError: it is not a duration, or is zero.
    """
    found = parse_duration(text)
    if not found:
        raise ValueError(f"{show(text)} is zero; give more than 0")
    return found / SECOND_NS


def rate(text: str) -> Value:
    """Bytes per second of a rate such as 47GB/s, more than 0.

    Raises:
        ValueError: it is not a rate, or is zero.
    """
    found = parse_rate(text)
    if not found:
        raise ValueError(f"{show(text)} is zero; give more than 0")
    return float(found)


def amount(text: str) -> Value:
    """Bytes of a size such as 42.8GB, more than 0.

    Raises:
        ValueError: it is not a size, or is zero.
    """
    found = parse_size(text)
    if not found:
        raise ValueError(f"{show(text)} is zero; give more than 0")
    return float(found)


def truth(text: str) -> Value:
    """Whether a text is true.

    Raises:
        ValueError: neither true nor false.
    """
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{show(text)} is not known; choose true or false")
    return text.lower() == "true"


def numbers(text: str) -> Value:
    """Numbers of 0 or more with commas between them.

    Raises:
        ValueError: one of them is not a number, or there are too many.
    """
    parts = text.replace(" ", "").split(",")
    if len(parts) > MOST_LOADS:
        raise ValueError(f"has {len(parts)} numbers; give at most {MOST_LOADS}")
    for part in parts:
        if not _NUMBER.fullmatch(part) or not math.isfinite(float(part)):
            raise ValueError(f"{show(part)} is not a number of 0 or more; write them like 120,80,95")
    return tuple(map(float, parts))


@dataclass(frozen=True, slots=True)
class InputKey:
    """An input; `flag` says whether it is an argument of the command too, or only a key of the file."""

    name: str
    parse: Callable[[str], Value]
    sentence: str
    metavar: str = "N"
    default: str = ""
    flag: bool = False


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)


KEYS: Mapping[str, InputKey] = {
    key.name: key
    for key in (
        InputKey("model", choice(*MODELS), f"Published model: {_names(tuple(MODELS))}.", "NAME", "", flag=True),
        InputKey("job", choice(*JOBS), f"Published job: {_names(tuple(JOBS))}.", "NAME", "", flag=True),
        InputKey("cluster", choice(*CLUSTERS), f"Published cluster: {_names(tuple(CLUSTERS))}", "NAME", ""),
        InputKey("node", choice(*NODES), f"Kind of node: {_names(tuple(NODES))}", "NAME", DEFAULT_NODE, flag=True),
        InputKey("nodes", whole_number(), "Number of nodes.", flag=True),
        InputKey("gpus-per-node", whole_number(1, 1024), "GPUs of a node", "N", "of the kind of node"),
        InputKey("rails", whole_number(1, 1024), "Rails in use per node", "N", "all", flag=True),
        InputKey("rail-rate", rate, "Usable rate of a rail, one direction", "RATE", "0.94 x line rate", flag=True),
        InputKey("nvlink-rate", rate, "Usable rate of NVLink per GPU, one direction", "RATE", "of the kind of node"),
        InputKey("tp", whole_number(), "Tensor-parallel degree", "N", "1", flag=True),
        InputKey("cp", whole_number(), "Context-parallel degree", "N", "1"),
        InputKey("pp", whole_number(1, 10_000), "Pipeline-parallel degree", "N", "1", flag=True),
        InputKey("ep", whole_number(), "Expert-parallel degree", "N", "1", flag=True),
        InputKey("etp", whole_number(), "Tensor-parallel degree of experts", "N", "1"),
        InputKey("virtual-stages", whole_number(1, 10_000), "Model chunks per pipeline stage", "N", "1"),
        InputKey("sharding", choice(*SHARDINGS), f"Sharding: {_names(SHARDINGS)}", "NAME", "fsdp", flag=True),
        InputKey("shard-ranks", whole_number(), "Ranks that share the parameters under hsdp", "N", ""),
        InputKey("micro-batch", whole_number(), "Sequences of a micro-batch", "N", "1"),
        InputKey("global-batch", whole_number(), "Sequences of a step", "N", "one micro-batch per rank", flag=True),
        InputKey("sequence", whole_number(), "Tokens of a sequence", "N", "4096", flag=True),
        InputKey(
            "algorithm",
            choice(*NCCL_ALGORITHMS, UNKNOWN),
            f"Algorithm: {_names(NCCL_ALGORITHMS)} or {UNKNOWN}",
            "NAME",
            UNKNOWN,
            flag=True,
        ),
        InputKey(
            "dispatch",
            choice(*DISPATCHERS, UNKNOWN),
            f"Dispatch of tokens: {_names(DISPATCHERS)} or {UNKNOWN}",
            "NAME",
            UNKNOWN,
            flag=True,
        ),
        InputKey(
            "recompute",
            choice("none", "full", UNKNOWN),
            f"Recomputed activations: none, full or {UNKNOWN}",
            "NAME",
            UNKNOWN,
            flag=True,
        ),
        InputKey(
            "reduction",
            choice("each", "once", UNKNOWN),
            f"Gradients are reduced after each micro-batch or once per step: each, once or {UNKNOWN}",
            "NAME",
            UNKNOWN,
        ),
        InputKey(
            "dispatch-bytes",
            element_bytes,
            "Bytes of an element sent to experts: 2 for BF16, 1.03 for FP8 with its scales",
            "N",
            "1.03 to 2",
            flag=True,
        ),
        InputKey("combine-bytes", element_bytes, "Bytes of an element sent back from experts", "N", "2"),
        InputKey("gradient-bytes", whole_number(1, 8), "Bytes of a gradient on the wire", "N", "2, or 2 to 4"),
        InputKey("step", seconds, "Measured time of a step, such as 315ms.", "DURATION", "", flag=True),
        InputKey("measured", amount, "Measured bytes that a node sends per step, to compare.", "SIZE", "", flag=True),
        InputKey(
            "mfu", share, "Model FLOPs utilisation of a whole step, which gives its time.", "RATIO", "", flag=True
        ),
        InputKey("hfu", share, "The same if recomputed operations are counted.", "RATIO", "", flag=True),
        InputKey(
            "peak-share", share, "Share of peak FLOP/s while computing, without communication.", "RATIO", "", flag=True
        ),
        InputKey(
            "attention",
            choice(*ATTENTION_SHARES),
            "Attention scores that these count: none, causal, full or unknown",
            "NAME",
            UNKNOWN,
            flag=True,
        ),
        InputKey("prefetch", whole_number(1, 64), "Units that FSDP gathers ahead of the compute", "N", "1 to 3"),
        InputKey("units", whole_number(1, 1000), "Units that FSDP gathers one by one", "N", "the layers"),
        InputKey("expert-loads", numbers, "Measured tokens per expert, for the cost of uneven routing", "N,N,...", ""),
        InputKey("network", choice(*NETWORKS), f"Kind of network: {_names(NETWORKS)}", "NAME", ""),
        InputKey("oversubscription", positive_number, "Oversubscription of a fat tree, 7 for 1:7", "N", "1"),
        InputKey("dimensions", numbers, "Dimensions of a torus", "N,N,...", ""),
        InputKey("groups", whole_number(), "Groups of a dragonfly", "N", ""),
        InputKey("global-links", whole_number(), "Cables from a group of a dragonfly to others", "N", ""),
        InputKey("parameters", positive_number, "Parameters of a model that is not published", "N", ""),
        InputKey("layers", whole_number(1, 10_000), "Its layers", "N", ""),
        InputKey("hidden", whole_number(), "Its hidden size", "N", ""),
        InputKey("kv-width", whole_number(), "Its width of keys: heads of keys times their width", "N", ""),
        InputKey("attention-width", whole_number(), "Its width of queries: heads times their width", "N", "hidden"),
        InputKey("vocabulary", whole_number(), "Its vocabulary", "N", ""),
        InputKey("tied", truth, "Whether its embeddings are tied", "true|false", "false"),
        InputKey("expert-parameters", positive_number, "Parameters of all its routed experts", "N", ""),
        InputKey("moe-layers", whole_number(1, 10_000), "Its layers with experts", "N", ""),
        InputKey("experts", whole_number(1, 100_000), "Its experts per layer", "N", ""),
        InputKey("experts-per-token", whole_number(1, 1000), "Experts that a token is sent to", "N", ""),
    )
}
