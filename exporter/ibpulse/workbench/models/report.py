"""Shows a prediction, with its assumptions as sentences, and the skew of expert loads, as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from ibpulse.base import document
from ibpulse.base.document import Section, members_of
from ibpulse.base.text import NOT_KNOWN, count_text, link_rate_text, significant, statistic_text
from ibpulse.workbench.models.experts import MARGIN, SkewReport, hottest
from ibpulse.workbench.models.inputs import JobInputs
from ibpulse.workbench.models.job import FP8_BYTES, FULLY_SHARDED, UNKNOWN
from ibpulse.workbench.models.prediction import (
    ATTENTION_SHARES,
    HFU,
    MFU,
    PEAK_SHARE,
    LoadSensitivity,
    Prediction,
    StepPrediction,
    Utilisation,
    ValueRange,
    attention_per_token,
)

RECEIVED = "one direction; a node receives as many bytes as it sends"
SHOWN_LAYERS = 100


def assumptions(inputs: JobInputs) -> list[str]:
    """Every assumption behind the numbers of a job."""
    return [*_placement(inputs), *_volumes(inputs), *_timing(inputs)]


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


def _timing(inputs: JobInputs) -> Iterator[str]:
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


def render_json(
    inputs: JobInputs, found: Prediction, loads: LoadSensitivity | None, compared: Mapping[str, Any] | None = None
) -> str:
    """The prediction as one JSON object; a range has `low` and `high`, and unknown values are null.

    `compared` is the comparison with a recording.
    """
    job = asdict(found.job)
    members = {
        "given": {name: {"text": one.text, "place": one.place} for name, one in inputs.given.items()},
        "model": job.pop("model"),
        "job": {**job, **members_of(found.job, "dp", "gpus", "step_tokens")},
        **members_of(found, "hardware", "readings", "sources", "node_bytes", "wire_seconds"),
        **members_of(found, "communication_seconds", "step"),
        "samples": found.sampled,
        "network": inputs.network,
        "expert_load": loads,
        "compared": compared,
        "assumptions": assumptions(inputs),
        "warnings": _warnings(inputs, found),
    }
    return document.render_json("ibpulse_model_version", members)


def _warnings(inputs: JobInputs, found: Prediction) -> list[str]:
    return [*found.warnings, *(inputs.network.warnings if inputs.network else ())]


def prediction_sections(inputs: JobInputs, found: Prediction, loads: LoadSensitivity | None) -> list[Section]:
    """The sections that say something, without what the results rest on."""
    parts = [_head(found), _traffic(found), _formulas(found), _times(found), _samples(found)]
    parts += [Section(lines=lines) for lines in (_network(inputs, found), _experts(loads))]
    return [part for part in parts if part.rows or part.lines]


def assumption_sections(inputs: JobInputs, found: Prediction) -> list[Section]:
    """The assumptions, and warnings if there are any."""
    parts = Section("assumptions", lines=assumptions(inputs)), Section("warnings", lines=_warnings(inputs, found))
    return [part for part in parts if part.lines]


def _head(found: Prediction) -> Section:
    job, model = found.job, found.job.model
    degrees = {"TP": job.tp, "CP": job.cp, "PP": job.pp, "DP": job.dp, "EP": job.ep}
    size = f"{significant(model.parameters / 1e9)}e9 parameters"
    active = f", {significant(model.active_parameters / 1e9)}e9 per token" if model.experts else ""
    steps = (
        f"{job.micro_batches} micro-batch{'' if job.micro_batches == 1 else 'es'} of {job.micro_batch} x {job.sequence}"
    )
    return Section(
        lines=(
            f"{model.name}: {size}{active}",
            f"{job.nodes} nodes x {job.node_gpus} GPUs, {found.hardware.rails} rails; "
            f"{' '.join(f'{name} {degree}' for name, degree in degrees.items())}; {job.sharding}; {steps} tokens",
        )
    )


def _traffic(found: Prediction) -> Section:
    heads = ("source", "operation", "ranks", "nodes", "node", "GPU", "rail", "messages per rail", "NVLink per GPU")
    rows = tuple(
        (
            row.source,
            row.operation,
            str(row.group_size),
            str(row.group_nodes),
            _bytes(row.node_bytes),
            _bytes(row.gpu_bytes),
            _bytes(row.rail_bytes),
            range_text(row.rail_messages, lambda value: f"{value:,.0f}"),
            _bytes(row.nvlink_gpu_bytes),
        )
        for row in found.sources
    )
    total = ("total", "", "", "", _bytes(found.node_bytes), *[""] * 4)
    return Section(f"bytes sent per step ({RECEIVED})", heads, (*rows, total))


def _formulas(found: Prediction) -> Section:
    lines = tuple(f"{row.source}: {formula}" for row in found.sources for formula in row.formulas)
    symbols = "g ranks of a group, N its nodes, m its ranks on a node, G GPUs of a node, P parameters of a rank"
    return Section(f"formulas ({symbols})", lines=lines)


def _times(found: Prediction) -> Section:
    rows = tuple(
        (row.source, _seconds(row.wire_seconds), _seconds(row.nvlink_seconds), _seconds(row.latency_seconds))
        for row in found.sources
    )
    lines = (
        f"wire at the full rate of all rails: {_seconds(found.wire_seconds)}",
        f"all communication one after another: {_seconds(found.communication_seconds)}",
        *(_step(found.step) if found.step else ()),
    )
    return Section("", ("seconds per step", "wire", "NVLink", "latency"), rows, lines)


def _step(step: StepPrediction) -> Iterator[str]:
    if step.compute:
        yield f"compute: {_seconds(step.compute)}"
    if step.bubble:
        yield f"pipeline bubble: {significant(100 * step.bubble)} % of the compute"
    yield f"step: {_seconds(step.seconds)} ({_reason(step)})"
    both = step.transmit_rate.times(2)
    yield f"mean of a node: {_rate(step.transmit_rate)} sent, {_rate(both)} sent and received"


def _reason(step: StepPrediction) -> str:
    """The origin of the length of a step."""
    used = step.utilisation
    if used is None:
        return "given"
    if used.kind == PEAK_SHARE:
        return "from perfect overlap to none"
    inside = "exposed communication and the bubble" if step.bubble else "exposed communication"
    scores = "; from no attention scores to all of them" if used.attention == UNKNOWN else ""
    return f"{used.kind.upper()} of {significant(100 * used.share)} %, contains {inside}{scores}"


def _samples(found: Prediction) -> Section:
    heads = ("samples of", "peak (sent and received)", "duty cycle", "CV of active samples")
    rows = tuple(
        (
            statistic_text(row.sample_seconds, "seconds"),
            _rate(row.peak),
            range_text(row.duty, lambda value: f"{value:.3f}"),
            range_text(row.cv, lambda value: f"{value:.3f}"),
        )
        for row in found.sampled
    )
    return Section("", heads if rows else (), rows)


def _network(inputs: JobInputs, found: Prediction) -> tuple[str, ...]:
    network = inputs.network
    if network is None:
        return ()
    job = found.job
    half = job.nodes * found.hardware.rails * found.hardware.rail_bytes_per_second / 2
    share = significant(100 * network.bytes_per_second / half)
    return (
        f"bisection of the network, one direction: {statistic_text(network.bytes_per_second, 'rate')} "
        f"({share} % of half of the rails); {network.formula}",
    )


def _experts(loads: LoadSensitivity | None) -> tuple[str, ...]:
    if loads is None:
        return ()
    return (
        f"most loaded of {loads.ranks} expert ranks in relation to the mean: by chance {significant(loads.chance)}; "
        "`ibpulse model experts` has measured ones",
        f"uneven loads add {_seconds(loads.seconds)} per step",
    )


def range_text(value: ValueRange, show: Callable[[float], str]) -> str:
    """Both ends of a range, or one number if they look the same."""
    low, high = show(value.low), show(value.high)
    return low if low == high else f"{low} to {high}"


def _shown(value: ValueRange, unit: str) -> str:
    return range_text(value, lambda one: statistic_text(one, unit))


_bytes, _rate, _seconds = (partial(_shown, unit=unit) for unit in ("bytes", "rate", "seconds"))


def skew_json(report: SkewReport) -> str:
    """The skew as one JSON object; unknown values are null."""
    inputs = report.inputs
    members = {
        "verdict": skew_verdict(report),
        "experts": report.experts,
        "ranks": inputs.ranks,
        "nodes": inputs.nodes,
        "loads_are_token_copies": report.counted,
        "mean_penalty": report.mean_penalty,
        "added_seconds": None if report.added is None else {"low": 0.0, "high": report.added},
        **members_of(report, "layers", "rails"),
        "assumptions": list(skew_assumptions(report)),
    }
    return document.render_json("ibpulse_model_experts_version", members)


def skew_text(report: SkewReport) -> str:
    """The verdict first, then layers, rails, cost and assumptions."""
    sections = [
        Section(lines=[skew_verdict(report)]),
        _layer_table(report),
        *_rail_table(report),
        Section(lines=list(_cost(report))),
    ]
    return document.render_text([*sections, Section("assumptions", lines=list(skew_assumptions(report)))])


def skew_verdict(report: SkewReport) -> str:
    """One sentence: whether the loads are skewed, and where most."""
    worst = report.worst
    most = f"layer {worst.layer}: rank {worst.ranks.hottest} has {worst.ranks.penalty:.4g} x the mean"
    skewed = [layer for layer in report.layers if layer.ranks.skewed]
    if worst.ranks.chance is None:
        return f"uneven, but chance is unknown without the number of tokens; {most}"
    if not skewed:
        return f"even: no layer is more uneven than by chance; {most}, by chance {worst.ranks.chance:.4g}"
    layers = f"{len(skewed)} of {count_text(len(report.layers), 'layer')}"
    return f"skewed: {layers}; {most}, by chance {worst.ranks.chance:.4g}"


def _layer_table(report: SkewReport) -> Section:
    heads = ("layer", "max / mean", "by chance", "CV", "Jain", "hottest rank", "max / mean of nodes", "persistence")
    rows = [
        (
            layer.layer[:40],
            f"{layer.ranks.penalty:.4f}",
            NOT_KNOWN if layer.ranks.chance is None else f"{layer.ranks.chance:.4f}",
            f"{layer.ranks.cv:.4f}",
            f"{layer.ranks.jain:.4f}",
            str(layer.ranks.hottest),
            f"{layer.nodes.penalty:.4f}" if layer.nodes else NOT_KNOWN,
            NOT_KNOWN if math.isnan(layer.persistence) else f"{layer.persistence:.2f}",
        )
        for layer in report.layers
    ]
    inputs = report.inputs
    where = f" on {count_text(inputs.nodes, 'node')}" if inputs.nodes else ""
    layers = count_text(len(report.layers), "layer")
    title = f"{report.experts} experts, {count_text(inputs.ranks, 'rank')}{where}, {layers}"
    return Section(title, heads, rows, limit=SHOWN_LAYERS)


def _rail_table(report: SkewReport) -> Iterator[Section]:
    if not report.rails:
        return
    heads = ("rails, all layers", "transmit, max / mean", "receive, max / mean", "a hot expert shows as")
    rows = []
    for rails in report.rails:
        (node, rail, most), (to_node, to_rail, received) = hottest(rails.transmit), hottest(rails.receive)
        rows.append(
            (
                rails.path,
                f"{most:.4f} (node {node}, rail {rail})",
                f"{received:.4f} (node {to_node}, rail {to_rail})",
                rails.shows,
            )
        )
    yield Section("", heads, rows, left=(0, 3))


def _cost(report: SkewReport) -> Iterator[str]:
    yield f"an exchange takes {report.mean_penalty:.4f} x as long as with even loads (mean of all layers)"
    if report.added is None:
        return
    added = f"uneven loads add 0 to {statistic_text(report.added, 'seconds')} per step"
    step = report.inputs.step_seconds
    yield f"{added}, up to {statistic_text(report.added / step, 'ratio')} of it" if step else added


def skew_assumptions(report: SkewReport) -> Iterator[str]:
    """Sentences about the assumptions behind the numbers."""
    inputs = report.inputs
    if inputs.placements:
        yield "the replicas of an expert share its load equally"
    elif inputs.ranks == report.experts:
        yield "each rank holds one expert"
    else:
        yield f"each rank holds {report.experts // inputs.ranks} consecutive experts"
    if inputs.tokens:
        yield f"a row is {inputs.tokens:.6g} token copies"
    elif report.counted:
        yield "loads are whole numbers, so they are taken for token copies; --tokens overrides it"
    else:
        yield "loads are not whole numbers, so tokens and the unevenness by chance are unknown: give --tokens"
    yield (
        f"skewed is more than {MARGIN:g} above the maximum over mean of uniform routing, 1 + z_n sqrt((1 - 1/n) / "
        "(tokens/n)) for n ranks"
    )
    if report.rails:
        yield "ranks fill nodes in blocks, each GPU has a rail of its own, and every rank sends equally many tokens"
    if report.added is not None:
        yield "added: (max / mean - 1) x the time of exchanges, 0 if compute hides them; without the experts' compute"
