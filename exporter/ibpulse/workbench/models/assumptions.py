"""What a prediction assumes where nobody said, as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ibpulse.base.text import link_rate_text
from ibpulse.workbench.models.expert_traffic import FP8_BYTES
from ibpulse.workbench.models.job_inputs import JobInputs
from ibpulse.workbench.models.prediction import attention_per_token
from ibpulse.workbench.models.step_time import ATTENTION_SHARES, HFU, MFU, PEAK_SHARE, Utilisation
from ibpulse.workbench.models.training_job import FULLY_SHARDED, UNKNOWN


def assumptions(inputs: JobInputs) -> list[str]:
    """Every assumption behind the numbers of a job."""
    return [*_placement(inputs), *_volumes(inputs), *_times(inputs)]


def _placement(inputs: JobInputs) -> Iterator[str]:
    yield "ranks fill nodes in blocks, in the order tp, cp, ep, dp, pp, innermost first (Megatron-LM's default)"
    if inputs.job.model.source:
        yield f"model: {inputs.job.model.source}"
    yield f"node: {inputs.node.source}"
    for preset in inputs.presets:
        yield f"{preset.source}; not published and assumed: {', '.join(preset.chosen)}"


def _volumes(inputs: JobInputs) -> Iterator[str]:
    job = inputs.job
    if job.algorithm == UNKNOWN:
        yield "algorithm unknown: the range covers rings and hierarchical collectives; no SHARP"
    if job.ep > 1 and job.dispatch == UNKNOWN:
        yield "dispatch unknown: the range covers one copy of a token per expert and one per node"
    used = inputs.step.utilisation
    if job.recompute == UNKNOWN and (job.tp > 1 or job.ep > 1 or (used and used.kind != MFU)):
        yield "recomputation unknown: the range covers none and full"
    if job.reduction == UNKNOWN and job.micro_batches > 1:
        yield "reduction unknown: the range covers gradients reduced after every micro-batch and once per step"
    if job.gradient_bytes is None:
        fully = job.sharding in FULLY_SHARDED
        yield "gradients have 2 bytes" if fully else "bytes of a gradient unknown: the range covers 2 and 4"
    yield "parameters and activations have 2 bytes"
    if job.sharding in FULLY_SHARDED:
        yield "parameters are gathered for forward and again for backward, in one collective per layer"
    else:
        yield "gradient buckets hold max(40e6, 1e6 x data ranks) parameters (Megatron-LM's default)"
    if job.ep > 1:
        if job.dispatch_bytes is None:
            yield f"bytes of dispatched elements unknown: the range is FP8 with scales ({FP8_BYTES:.4g}) to BF16 (2)"
        else:
            yield f"dispatched elements have {job.dispatch_bytes:.4g} bytes"
        yield f"elements that experts send back have {job.combine_bytes:.4g} bytes"
        yield "tokens are routed uniformly, and tensor ranks share the tokens (sequence parallelism)"
    if job.cp > 1:
        yield "context parallelism passes keys and values around a ring (p2p)"
    yield "bytes are payload: NCCL's protocol LL doubles them, LL128 adds 1/15, and packet headers come on top"


def _times(inputs: JobInputs) -> Iterator[str]:
    hardware = inputs.hardware
    yield (
        f"a rail carries {link_rate_text(hardware.rail_bytes_per_second)} in one direction, "
        f"NVLink {link_rate_text(hardware.nvlink_bytes_per_second)} per GPU; no other job uses them"
    )
    yield "latencies are the constants of NCCL's tuner for rings and the Simple protocol; measured times differ by 10 %"
    if inputs.step.utilisation is not None:
        yield from _operations(inputs, inputs.step.utilisation)
    if inputs.step.step_seconds is None:
        return
    if inputs.job.sharding in FULLY_SHARDED:
        yield (
            "samples follow from equal units on two streams; their CV is good to about 0.1, duty and peak are only "
            "indicative"
        )
    else:
        yield "samples follow from a single burst per step at the full rate; overlap with compute spreads it"


COUNTED: Mapping[str, str] = {
    MFU: "MFU counts 6 operations per active parameter and token over step time x peak, and no recomputation (PaLM, "
    "arXiv 2204.02311, appendix B); published FLOP/s that count recomputation, over the peak, are hfu",
    HFU: "HFU counts 6 operations per active parameter and token, 8 with full recomputation, over step time x peak "
    "(arXiv 2205.05198)",
    PEAK_SHARE: "compute is 6 operations per active parameter and token, 8 with full recomputation",
}


def _operations(inputs: JobInputs, used: Utilisation) -> Iterator[str]:
    yield COUNTED[used.kind]
    more = 100 * attention_per_token(inputs.job) / (6 * inputs.job.model.multiplied_parameters)
    if used.attention == UNKNOWN:
        yield f"attention unknown: the range covers scores that are not counted and all of them, {more:.3g} % more"
    elif used.attention != "none":
        yield f"attention scores add {ATTENTION_SHARES[used.attention][0] * more:.3g} % to these operations"
    yield f"the peak of a GPU is {used.peak / 1e12:.4g} TFLOP/s; input embeddings are looked up and count nothing"
    if used.kind == MFU and inputs.job.recompute == "full":
        yield f"with full recomputation, an MFU of {100 * used.share:.4g} % is an HFU of {400 * used.share / 3:.4g} %"
