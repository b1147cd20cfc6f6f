"""The skew of expert loads as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ibpulse.base import document
from ibpulse.base.document import Section
from ibpulse.base.text import NOT_KNOWN, count_text, statistic_text
from ibpulse.workbench.models.expert_skew import MARGIN, Unevenness
from ibpulse.workbench.models.rail_skew import hottest
from ibpulse.workbench.models.skew_report import LayerSkew, SkewReport

MOST_LAYERS = 100


def render_json(report: SkewReport) -> str:
    """The skew as one JSON object; unknown values are null."""
    inputs = report.inputs
    members = {
        "verdict": verdict(report),
        "experts": report.experts,
        "ranks": inputs.ranks,
        "nodes": inputs.nodes,
        "loads_are_token_copies": report.counted,
        "mean_penalty": report.mean_penalty,
        "added_seconds": None if report.added is None else {"low": 0.0, "high": report.added},
        "layers": [_layer(layer) for layer in report.layers],
        "rails": report.rails,
        "assumptions": list(assumptions(report)),
    }
    return document.render_json("ibpulse_model_experts_version", members)


def _layer(layer: LayerSkew) -> dict[str, Any]:
    return {
        "layer": layer.layer,
        "windows": layer.windows,
        "ranks": _unevenness(layer.ranks),
        "nodes": _unevenness(layer.nodes) if layer.nodes else None,
        "persistence": layer.persistence,
    }


def _unevenness(found: Unevenness) -> dict[str, Any]:
    return {**asdict(found), "skewed": found.skewed}


def render_text(report: SkewReport) -> str:
    """The verdict first, then layers, rails, cost and assumptions."""
    sections = [Section(lines=[verdict(report)]), _layers(report), *_rails(report), Section(lines=list(_cost(report)))]
    return document.render_text([*sections, Section("assumptions", lines=list(assumptions(report)))])


def verdict(report: SkewReport) -> str:
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


def _layers(report: SkewReport) -> Section:
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
    return Section(title, heads, rows, limit=MOST_LAYERS)


def _rails(report: SkewReport) -> Iterator[Section]:
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


def assumptions(report: SkewReport) -> Iterator[str]:
    """What the numbers rest on."""
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
