"""Operations of a step, how long they take at a published utilisation, and the bounds that overlap sets.

Formulas of parameters, operations and days are equations 2 to 4 of D. Narayanan et al., Efficient Large-Scale
Language Model Training on GPU Clusters Using Megatron-LM, arXiv 2104.04473. MFU is defined in A. Chowdhery et al.,
PaLM, arXiv 2204.02311, appendix B, and HFU in V. Korthikanti et al., arXiv 2205.05198.
"""

from __future__ import annotations

from dataclasses import dataclass

SECONDS_PER_DAY = 86_400
MFU, HFU, PEAK_SHARE = "mfu", "hfu", "peak-share"
UTILISATIONS = (MFU, HFU, PEAK_SHARE)
ATTENTION_SHARES = {"none": (0.0, 0.0), "causal": (0.5, 0.5), "full": (1.0, 1.0), "unknown": (0.0, 1.0)}
"""The least and the greatest share of the attention scores that a utilisation counts."""


@dataclass(frozen=True, slots=True)
class Utilisation:
    """A share of the operations per second that a GPU can do, `peak`.

    `mfu` counts what the model needs, `hfu` recomputation too, both over the whole step, which contains exposed
    communication and idle time. `peak-share` is that of `hfu` over the time in which the GPU computes.
    """

    kind: str
    share: float
    peak: float
    attention: str = "unknown"


def gpt_parameters(layers: int, hidden: int, vocabulary: int, sequence: int) -> float:
    """Parameters of a GPT: 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h))."""
    return 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (vocabulary + sequence) / (12 * layers * hidden))


def gpt_step_operations(layers: int, hidden: int, vocabulary: int, sequence: int, batch: int) -> float:
    """Floating-point operations of a step with full recomputation: 96 B s l h^2 (1 + s/(6 h) + V/(16 l h))."""
    inside = 1 + sequence / (6 * hidden) + vocabulary / (16 * layers * hidden)
    return 96 * batch * sequence * layers * hidden**2 * inside


def training_days(parameters: float, tokens: float, gpus: int, operations_per_second: float) -> float:
    """Days of a whole training with full recomputation: 8 T P / (n X)."""
    return 8 * tokens * parameters / (gpus * operations_per_second) / SECONDS_PER_DAY


def attention_operations(layers: int, width: int, sequence: int) -> float:
    """Operations per token for the scores of all pairs of tokens, forward and backward: 12 l w s.

    w is the width of all heads together. With a causal mask, half of the pairs are needed.
    """
    return 12 * layers * width * sequence


def step_operations(parameters: float, tokens: float, attention: float = 0.0, *, recompute: bool) -> float:
    """Floating-point operations of a step: (6 P + attention) tokens; a third more with full recomputation.

    `attention` are the operations per token for attention scores.
    """
    return (4 / 3 if recompute else 1) * (6 * parameters + attention) * tokens


def bubble_share(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Idle time of a pipeline in relation to its ideal time: (p - 1) / (v m)."""
    return (stages - 1) / (chunks * micro_batches)


def step_bounds(compute: float, wire: float, other: float = 0.0) -> tuple[float, float]:
    """Seconds of a step with perfect and without any overlap: max(C, W) + O and C + W + O."""
    return max(compute, wire) + other, compute + wire + other


def overlap_efficiency(compute: float, wire: float, step: float, other: float = 0.0) -> float | None:
    """The share of the possible overlap that a step of this length has; None if wire or compute is 0.

    eta = (C + W + O - T) / min(C, W): 1 if everything overlaps, 0 if nothing does.
    """
    least = min(compute, wire)
    return (compute + wire + other - step) / least if least else None
