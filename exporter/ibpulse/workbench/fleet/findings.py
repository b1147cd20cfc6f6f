"""Findings of a report as plain sentences, each with its evidence and its limit, the most severe first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ibpulse.base.text import count_text, first_names, names_text, statistic_text
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.defaults import MIN_PEERS
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.statistics.lateness import COINCIDE_MS, MIN_LATE_MS, Lateness
from ibpulse.core.statistics.nodes import HOT_FACTOR, FleetStall, RailSplit
from ibpulse.core.statistics.verdict import Verdict
from ibpulse.workbench.fleet.report import LEVEL, MAX_JUDGED, FleetReport, PlaceRow, StepRow

Kind = Literal[
    "stall", "late", "fewer-steps", "failover", "idle-port", "different-port", "hot-rail", "different-node", "place",
    "change", "ends-apart", "rhythm", "shared-leaf", "missing", "not-collected", "coarse", "unknown-late",
    "nobody-late", "clocks",
]  # fmt: skip
"""The kinds of findings, the most severe first; negative results and the limits of a report come last."""
MAX_STALLS, MAX_NAMED = MAX_JUDGED, 8
RING_LIMIT = (
    "Inside one ring nobody can run ahead of a late node by more than its buffers, so all bursts look late together; "
    "take the name as a hint at who computes longer, and not as proof"
)
# a failover keeps the bytes of a node within these factors
KEPT = (0.8, 1.25)
# a place differs if its nodes carry more or less than the others by this share, and all of them do
MIN_DIFFERENCE = 0.1
MIN_MISSING = 0.01


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence, the evidence for it, and its limit. `subjects` are the nodes, ports or places that it names."""

    kind: Kind
    sentence: str
    evidence: str = ""
    limit: str = ""
    subjects: tuple[str, ...] = ()


Findings = Iterator[Finding]


def find_sentences(report: FleetReport) -> list[Finding]:
    """All findings of a report, in the order of their kinds."""
    parts = (
        _stalls, _late, _rhythms, _failovers, _idle_ports, _hot_rails, _different_nodes, _different_ports, _ends,
        _counts, _places, _changes, _missing, _coarse, _clocks,
    )  # fmt: skip
    severity = get_args(Kind)
    return sorted((found for part in parts for found in part(report)), key=lambda found: severity.index(found.kind))


def milliseconds_text(ms: float) -> str:
    """A time in ms with at most two decimals: `100 ms`, `20.1 ms`, `0.25 ms`."""
    return f"{ms:.0f} ms" if abs(ms) >= 100 else f"{ms:.1f} ms" if abs(ms) >= 1 else f"{ms:.2f} ms"


def _clock_text(report: FleetReport, node: str) -> str:
    bound_ns = report.nodes[node].bound_ns
    known = "not known" if bound_ns is None else f"known to ± {milliseconds_text(bound_ns / MILLISECOND_NS)}"
    return f"Its clock is {known}"


def _factor_text(factor: float) -> str:
    """A factor as more or less than usual: `30 % more`, `half as much` is `50 % less`."""
    return f"{100 * abs(factor - 1):.0f} % {'more' if factor > 1 else 'less'}"


def _shorten(found: Sequence[Finding]) -> Findings:
    """The first findings, and the names of the others in one sentence."""
    yield from found[:MAX_NAMED]
    if more := tuple(one for each in found[MAX_NAMED:] for one in each.subjects):
        yield Finding(found[0].kind, f"The same holds for {names_text(more)}.", subjects=more)


def _stalls(report: FleetReport) -> Findings:
    """Nodes that fell silent, with the verdicts."""
    for place, stall in enumerate(report.stalls[:MAX_STALLS]):
        yield _describe_stall(report, stall, report.verdicts[place])
    more = len(report.stalls) - MAX_STALLS
    if more > 0:
        yield Finding("stall", f"There are {more} more and shorter silences that are longer than those of steps.")


def _describe_stall(report: FleetReport, stall: FleetStall, verdict: Verdict | None) -> Finding:
    count = len(stall.silent)
    lasts = math.isinf(stall.until)
    end = report.seconds if lasts else stall.until
    everyone = "The only node" if count == 1 else f"All {count} nodes"
    who = f"{count} of {count + len(stall.moving)} nodes" if stall.moving else everyone
    bounds = [report.nodes[name].bound_ns for name in stall.silent]
    known = [bound for bound in bounds if bound is not None]
    clocks = f"clocks are known to ± {milliseconds_text(max(known) / MILLISECOND_NS)}" if known else ""
    if len(known) < count:
        clocks = "the clocks of some of these nodes are not known, so no order is certain"
    moving = f"; {names_text(stall.moving)} kept moving bytes and did not stop first" if stall.moving else ""
    limit = "A job that ended looks the same" if lasts else "A checkpoint or an evaluation looks the same"
    told = f" It is {stall.silent[0]}." if count == 1 else ""
    if verdict is not None and count > 1:
        # as it would have been told during the silence, but without counters of lost packets
        told = f" Verdict at its end: {verdict.kind}, {verdict.sentence}."
    return Finding(
        "stall",
        f"{who} {'is' if count == 1 else 'are'} silent from +{stall.since:.2f} s for {end - stall.since:.2f} s, "
        f"{'up to the end' if lasts else 'and then continue'}.{told}",
        f"No traffic for longer than in any step{moving}; {clocks}.",
        f"{limit}. Moments are known to one sample and the clock bound.",
        stall.silent if count == 1 else verdict.nodes if verdict else (),
    )


def _late(report: FleetReport) -> Findings:
    """Nodes that begin steps late, or that none does."""
    compared = [(row, row.lateness) for row in report.steps if row.lateness is not None and row.lateness.enough_peers]
    if not compared:
        yield _unknown_late(report)
        return
    late = [(row, each) for row, _ in compared if (each := row.late) is not None]
    late.sort(key=lambda one: -one[1].lateness_ms)
    for row, each in late[:MAX_NAMED]:
        yield _describe_late(report, row, each)
    if more := [row.node for row, _ in late[MAX_NAMED:]]:
        yield Finding("late", f"{len(more)} more nodes are late: {names_text(more)}.", limit=f"{RING_LIMIT}.")
    doubtful = [(row, each) for row, each in compared if each.start.stands_out and row.late is None]
    if not late and len(compared) > len(doubtful):
        yield _nobody_late([one for one in compared if one not in doubtful])
    for row, each in doubtful:
        yield _describe_doubtful(row, each)


def _describe_late(report: FleetReport, row: StepRow, late: Lateness) -> Finding:
    which = f" ({row.peers})" if row.peers else ""
    sentence = (
        f"{row.node}{which} begins each step {milliseconds_text(late.lateness_ms)} "
        f"later than its peers (± {milliseconds_text(late.uncertainty_ms)})"
    )
    evidence = f"Median of {late.steps} steps against {late.peers} peers, {late.start.z:.0f} robust deviations"
    if late.waits and late.own is not None:
        evidence += f"; by its own edges it receives {milliseconds_text(late.own.ms)} before it transmits"
    elif late.own is not None:
        evidence += "; its own receive edges do not show a wait"
    halves = row.halves
    if halves is not None and halves.late is late:
        when, other = (
            ("first half, up to", halves.second) if late is halves.first else ("second half, from", halves.first)
        )
        sentence += f" in the {when} +{halves.at:.1f} s; in the other half {_late_text(other)}"
    elif halves is not None and halves.changed:
        evidence += f"; {_late_text(halves.first)} up to +{halves.at:.1f} s, then {_late_text(halves.second)}"
    limit = f"{_clock_text(report, row.node)}; the ends of the steps correct it in band. {RING_LIMIT}."
    return Finding("late", f"{sentence}.", f"{evidence}.", limit, (row.node,))


def _late_text(late: Lateness) -> str:
    return f"{milliseconds_text(late.lateness_ms)} ± {milliseconds_text(late.uncertainty_ms)}"


def _describe_doubtful(row: StepRow, late: Lateness) -> Finding:
    text = f"Whether {row.node} is late is not known: it begins {milliseconds_text(late.lateness_ms)} "
    limit = "A stage of a pipeline has a rhythm of its own; label the nodes with their stage to compare within it."
    if late.ends_apart:
        text += "later than its peers after its own traffic ended, but its traffic does not end with theirs."
    else:
        text += f"later than its {late.peers} peers, but its own edges do not show that."
        limit = "What it waits for, and what its peers do differently, is not in the counters."
    return Finding("unknown-late", text, f"Median of {late.steps} steps.", limit, (row.node,))


def _nobody_late(compared: Sequence[tuple[StepRow, Lateness]]) -> Finding:
    row, most = max(compared, key=lambda one: one[1].lateness_ms)
    largest = max(late.uncertainty_ms for _, late in compared)
    return Finding(
        "nobody-late",
        f"No node begins its steps late, of {len(compared)} that were compared.",
        f"The largest lateness is {_late_text(most)}, {row.node}.",
        f"A lateness below {milliseconds_text(max(MIN_LATE_MS, largest))} would not be named, and inside one ring one "
        "below a sample does not show.",
    )


def _unknown_late(report: FleetReport) -> Finding:
    steps = sum(row.steps for row in report.steps)
    reason = f"no node has {MIN_PEERS} peers with ports of one job and stage and at least three common steps"
    return Finding(
        "unknown-late",
        f"Who is late is not known: {reason if steps else 'no node has steps with silences between them'}.",
        f"{count_text(steps, 'step')} on {count_text(len(report.nodes), 'node')}.",
        f"Lateness needs silences of at least three samples between steps, on {MIN_PEERS + 1} nodes or more.",
    )


def _rhythms(report: FleetReport) -> Findings:
    """Nodes whose steps have another length than those of others with the same job and ports."""
    rhythms: dict[float, list[str]] = {}
    for row in report.steps:
        if row.rhythm_ms is not None and not report.nodes[row.node].coarse:
            rhythms.setdefault(row.rhythm_ms, []).append(row.node)
    if len(rhythms) < 2:
        return
    order = sorted(rhythms.items(), key=lambda one: -len(one[1]))
    parts = [f"{milliseconds_text(rhythm)} on {names_text(nodes)}" for rhythm, nodes in order[:MAX_NAMED]]
    yield Finding(
        "rhythm",
        f"Nodes have different rhythms, and only equal ones are compared: {'; '.join(parts)}.",
        "Usual time from one long silence to the next.",
        "Stages of a pipeline, and other jobs, have rhythms of their own. A silence is computing or waiting; the "
        "counters cannot tell, so they do not say which stage is too long. Label the nodes with their stage.",
        tuple(node for _, nodes in order for node in nodes),
    )


def _ends(report: FleetReport) -> Findings:
    """Nodes whose traffic does not end with that of their peers."""
    compared = [(row, row.lateness) for row in report.steps if row.lateness is not None and row.lateness.enough_peers]
    apart = [(row.node, late.ends) for row, late in compared if late.ends is not None and late.ends_apart]
    if 2 * len(apart) > len(compared):
        yield Finding(
            "ends-apart",
            f"The steps of {len(apart)} of {len(compared)} nodes end apart from those of the others, by up to "
            f"{milliseconds_text(max(abs(ends.ms) for _, ends in apart))}.",
            "More than the bounds of their clocks allow.",
            "That is how the stages of a pipeline look; label the nodes with their stage to compare within it.",
        )
        return
    yield from _shorten(
        [
            Finding(
                "ends-apart",
                f"The steps of {node} end {milliseconds_text(abs(ends.ms))} "
                f"{'after' if ends.ms > 0 else 'before'} those of its peers, more than its clock bound allows.",
                f"{_clock_text(report, node)}; the difference is certain to "
                f"± {milliseconds_text(ends.uncertainty_ms)}.",
                "Either it belongs to another stage of the pipeline, or the bound of its clock is wrong; the samples "
                f"cannot tell. The ends of one collective coincide to about {COINCIDE_MS:g} ms.",
                (node,),
            )
            for node, ends in apart
        ]
    )


def _counts(report: FleetReport) -> Findings:
    """Nodes that join late or leave early: they are silent while their peers make steps."""
    found = []
    for count in report.counts:
        parts = [
            f"{word}: it is silent during the {which} {'step' if number == 1 else f'{number} steps'}"
            for word, which, number in (("joined late", "first", count.before), ("left early", "last", count.after))
            if number
        ]
        found.append(
            Finding(
                "fewer-steps",
                f"{count.node} {', and '.join(parts)} of its peers.",
                f"Against {count.peers} peers, by the samples of the node.",
                f"{_clock_text(report, count.node)}.",
                (count.node,),
            )
        )
    return _shorten(found)


def _coarse(report: FleetReport) -> Findings:
    """Nodes whose counters change too rarely to compare their steps."""
    coarse = {node.name: node.resolution_ns / MILLISECOND_NS for node in report.nodes.values() if node.coarse}
    if coarse:
        yield Finding(
            "coarse",
            f"The steps of {names_text(coarse)} are not compared: their counters change every "
            f"{milliseconds_text(max(coarse.values()))} only.",
            "The stride and the resolution of the counters in the recordings.",
            "An edge of theirs may lie anywhere in that time.",
            tuple(coarse),
        )


def _failovers(report: FleetReport) -> Findings:
    """Rails whose traffic another one seems to have taken over."""
    for node in report.rails:
        for each in node.failovers:
            known = not math.isnan(each.bytes_ratio)
            if known and not KEPT[0] <= each.bytes_ratio <= KEPT[1]:
                continue
            silent, doubled = each.silent, each.doubled
            begin = (node.begin_ns - report.nodes[node.node].offset_ns - report.origin_ns) / SECOND_NS + each.first
            lasts = "to the end" if each.lasting else f"for {each.end - each.first} s"
            moves = f", and the node moves {100 * each.bytes_ratio:.0f} % of its bytes at other times" if known else ""
            yield Finding(
                "failover",
                f"Failover-like on {node.node}: from +{max(0.0, begin):.0f} s {lasts}, {silent} "
                f"carries nothing and {doubled} twice its share.",
                f"Exactly one rail doubles, all others keep theirs{moves}.",
                "The counters show bytes, not the reason; check the link of the silent port.",
                (node.node, each.silent),
            )


def _failover_ports(report: FleetReport) -> set[tuple[str, str]]:
    return {
        (node.node, port) for node in report.rails for each in node.failovers for port in (each.silent, each.doubled)
    }


def _idle_ports(report: FleetReport) -> Findings:
    """Ports that carry nothing in either direction while the other rails of their node do."""
    idle = [set(split.idle_ports()) for split in report.splits]
    both = set.intersection(*idle) if idle else set()
    for node, port in sorted(both - _failover_ports(report))[:MAX_NAMED]:
        yield Finding(
            "idle-port",
            f"{port} of {node} carries nothing.",
            "Less than 5 % of the median of the rails of its node, in both directions.",
            subjects=(node, port),
        )


def _hot_rails(report: FleetReport) -> Findings:
    """Rails that are hot on all nodes."""
    hot = [{name: (factor, nodes) for name, factor, nodes in split.hot_rails()} for split in report.splits]
    for name in dict.fromkeys(name for rails in hot for name in rails):
        directions = [way for way, rails in zip(DIRECTIONS, hot, strict=True) if name in rails]
        factor, nodes = next(rails[name] for rails in hot if name in rails)
        busiest, minutes = _hot_minutes(report, name)
        yield Finding(
            "hot-rail",
            f"{name} is hot on every node: it carries {_factor_text(factor)} than the other rails"
            f"{'' if len(directions) == 2 else f' ({directions[0]} only)'}.",
            f"Median polish of nodes × rails: the rail's factor is {factor:.2f}, on {nodes} of "
            f"{len(report.splits[0].nodes)} nodes"
            f"{f'; it was the busiest in {busiest} of {minutes} minutes' if minutes > 1 else ''}.",
            _hot_meaning(name, directions, report.splits[1]),
            (name,),
        )


def _hot_meaning(name: str, directions: list[str], receive: RailSplit) -> str:
    if len(directions) == 2:
        return "Both directions alike point at placement, an uneven ring, or cabling; not at one expert."
    if directions == ["transmit"]:
        nodes = [node for node, port, factor in receive.differing_ports() if port == name and factor > 1]
        if len(nodes) == 1:
            return (
                f"Only {nodes[0]} receives more on it: that is how a hot expert on its GPU of this "
                "rail looks, where NCCL sends through the NIC of the receiving GPU."
            )
    return "One direction alone does not say why; a hot expert shows in transmit everywhere and in receive on one node."


def _hot_minutes(report: FleetReport, name: str) -> tuple[int, int]:
    """The number of minutes in which the rail was the busiest of most nodes, and of all minutes."""
    wins = [
        node.minutes.argmax(axis=1) == node.rails.index(name)
        for node in report.rails
        if name in node.rails and len(node.minutes)
    ]
    length = min(map(len, wins), default=0)
    won = np.mean([each[:length] for each in wins], axis=0) > 0.5 if length else np.zeros(0)
    return int(np.count_nonzero(won)), length


def _different_nodes(report: FleetReport) -> Findings:
    """Nodes that carry more or less on all rails; bytes alone do not distinguish one group of peers from another."""
    if not report.splits:
        return
    transmit, receive = (dict(split.differing_nodes()) for split in report.splits)
    for name, factor in list(transmit.items())[:MAX_NAMED]:
        also = name in receive and (receive[name] > 1) == (factor > 1)
        yield Finding(
            "different-node",
            f"{name} transmits {_factor_text(factor)} than the other nodes, on all its rails"
            f"{'' if also else '; what it receives is usual'}.",
            f"The node's factor is {factor:.2f}; {round(100 * (HOT_FACTOR - 1))} % is reported.",
            "A stage of a pipeline, an expert's host or missing data can do that as well as a fault.",
            (name,),
        )


def _different_ports(report: FleetReport) -> Findings:
    """Single ports that carry more or less than their node and their rail explain."""
    known = _failover_ports(report)
    ways: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for way, split in zip(DIRECTIONS, report.splits, strict=False):
        for node, port, factor in split.differing_ports():
            if (node, port) not in known:
                ways.setdefault((node, port), []).append((way, factor))
    for (node, port), ((way, factor), *others) in list(ways.items())[:MAX_NAMED]:
        yield Finding(
            "different-port",
            f"{port} of {node} {'transmits and receives' if others else f'{way}s'} "
            f"{_factor_text(factor)} than its node and its rail explain: a single port.",
            f"Its factor is {factor:.2f}; the same rail of other nodes and the other rails of this node are usual.",
            "The counters do not say why; look at its link rate, its errors and its cable."
            if factor < 1
            else "The counters do not say why; other ports may send through it.",
            (node, port),
        )
    if more := [f"{node} {port}" for node, port in list(ways)[MAX_NAMED:]]:
        yield Finding("different-port", f"{count_text(len(more), 'more port')} differ: {names_text(more)}.")


def _places(report: FleetReport) -> Findings:
    """Leaf switches and racks that differ, and jobs that share a leaf."""
    for kind in ("leaf", "rack"):
        places = [place for place in report.places if place.kind == kind]
        for place in places:
            others = [rate for other in places if other is not place for rate in _bandwidths(report, other)]
            yield from _different_place(place, _bandwidths(report, place), others)
        late = [place for place in places if place.late]
        if len(late) == 1 and len(late[0].late) > 1 and len(places) > 1:
            (place,) = late
            yield Finding(
                "place",
                f"All late nodes are at {kind} {place.name}: {names_text(place.late)}.",
                f"{len(place.late)} of its {len(place.nodes)} nodes are late, none elsewhere.",
                subjects=(place.name,),
            )
    for place in report.places:
        if place.kind == "leaf" and len(place.jobs) > 1:
            yield Finding(
                "shared-leaf",
                f"{count_text(len(place.jobs), 'job')} share {place.name}: {names_text(place.jobs)}.",
                f"{count_text(len(place.nodes), 'node')} below it.",
                "That they share it does not show that one slows the other.",
                (place.name,),
            )


def _bandwidths(report: FleetReport, place: PlaceRow) -> list[float]:
    rates = [report.numbers[name].active_bytes_per_second for name in place.nodes if name in report.numbers]
    return [rate for rate in rates if rate is not None]


def _different_place(place: PlaceRow, mine: Sequence[float], others: Sequence[float]) -> Findings:
    if len(mine) < 2 or len(others) < 2:
        return
    factor = float(np.median(mine) / np.median(others))
    apart = max(mine) < min(others) if factor < 1 else min(mine) > max(others)
    if abs(factor - 1) >= MIN_DIFFERENCE and apart:
        yield Finding(
            "place",
            f"The nodes at {place.kind} {place.name} carry {_factor_text(factor)} than the others while active.",
            f"All {len(mine)} nodes of it are {'below' if factor < 1 else 'above'} all {len(others)} others.",
            "Another job or another stage on these nodes looks the same as the switch.",
            (place.name,),
        )


def _changes(report: FleetReport) -> Findings:
    changes = report.changes
    if changes is None:
        return
    for change in changes.changes:
        if math.isnan(change.ratio):
            continue
        before, after = (statistic_text(value, change.unit) for value in (change.before, change.after))
        interval, evidence = "", "Fewer than 20 steps on one side, so there is no interval."
        if not math.isnan(change.low):
            interval = f", interval {100 * (change.low - 1):+.1f} % to {100 * (change.high - 1):+.1f} %"
            evidence = f"{changes.before_steps} and {changes.after_steps} steps, resampled"
        yield Finding(
            "change",
            f"The {change.label} {'changed' if change.significant else 'did not change certainly'}: from {before} to "
            f"{after} ({100 * (change.ratio - 1):+.1f} %{interval}).",
            evidence,
            f"The intervals hold together at {100 * LEVEL:.0f} %; the cause of a change is not in the counters.",
        )


def _missing(report: FleetReport) -> Findings:
    lossy = [(one.node, one.missing_ratio) for one in report.numbers.values() if one.missing_ratio >= MIN_MISSING]
    if lossy:
        lossy.sort(key=lambda one: -one[1])
        shares = first_names([f"{name} {100 * ratio:.1f} %" for name, ratio in lossy], MAX_NAMED)
        yield Finding(
            "missing",
            f"Samples are missing on {count_text(len(lossy), 'node')}: {shares}.",
            "Share of samples between the first and the last one of the node.",
            "Missing data is never counted as silence; steps with lost edges are left out.",
            tuple(name for name, _ in lossy),
        )
    partial = tuple(one.node for one in report.numbers.values() if one.partial_ratio >= MIN_MISSING)
    if partial:
        text = f"Some rails were not read at times on {names_text(partial)}, so sums of the node are too low there."
        yield Finding("missing", text, "Sums of fewer rails than the node has.", subjects=partial)
    if report.missing:
        nodes = tuple(dict.fromkeys(node for node, *_ in report.missing))
        seconds = sum(end - begin for _, begin, end, _ in report.missing) / 1e9
        reasons = first_names(list(dict.fromkeys(one[3] for one in report.missing)), 3)
        text = f"{seconds:.0f} s of node time were not collected, on {names_text(nodes)}."
        yield Finding("not-collected", text, f"Reasons: {reasons}.", subjects=nodes)


def _clocks(report: FleetReport) -> Findings:
    known = [node.bound_ns for node in report.nodes.values() if node.bound_ns is not None]
    unknown = [name for name, node in report.nodes.items() if node.bound_ns is None]
    loose = [name for name, node in report.nodes.items() if node.synchronised is False]
    text = "No clock was measured, so no order between nodes is claimed from their clocks."
    if known:
        text = (
            f"The clocks of {len(known)} of {len(report.nodes)} nodes are known, to ± "
            f"{milliseconds_text(max(known) / MILLISECOND_NS)} or better."
        )
    parts = [f"Unknown: {names_text(unknown)}."] if unknown and known else []
    parts += [f"Not synchronised by their own word: {names_text(loose)}."] if loose else []
    limit = "Order between two nodes is claimed only beyond the sum of their bounds. Only ends show a wrong bound."
    yield Finding("clocks", text, " ".join(parts), limit)
