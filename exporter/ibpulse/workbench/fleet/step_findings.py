"""Sentences about steps: stalls, late nodes, ends that lie apart, and nodes with fewer steps."""

from __future__ import annotations

import math

from ibpulse.base.text import count_text, escape_controls
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.defaults import FEWEST_PEERS
from ibpulse.core.statistics.lateness import COINCIDE_MS, ENOUGH_MS, Lateness
from ibpulse.core.statistics.stalls import FleetStall
from ibpulse.workbench.fleet.fleet_finding import FleetFinding, bound_text, milliseconds_text, shown_names
from ibpulse.workbench.fleet.fleet_report import FleetReport, StepRow

MOST_STALLS, MOST_LATE = 3, 8
RING_LIMIT = (
    "Inside one ring nobody can run ahead of a late node by more than its buffers, so all bursts look late together; "
    "take the name as a hint at who computes longer, and not as proof"
)


def describe_stalls(report: FleetReport) -> list[FleetFinding]:
    """Who fell silent, and who first."""
    found = [_describe_stall(report, stall) for stall in report.stalls[:MOST_STALLS]]
    more = len(report.stalls) - len(found)
    if more > 0:
        found.append(FleetFinding("stall", f"There are {more} more and shorter silences of several steps.", "", ""))
    return found


def _describe_stall(report: FleetReport, stall: FleetStall) -> FleetFinding:
    count = len(stall.silent)
    lasts = math.isinf(stall.until)
    end = report.seconds if lasts else stall.until
    for_how_long = f"from +{stall.since:.2f} s for {end - stall.since:.2f} s"
    who = f"All {count_text(count, 'node')}" if stall.whole else f"{count} of {count + len(stall.moving)} nodes"
    verb = "is" if count == 1 else "are"
    sentence = f"{who} {verb} silent {for_how_long}, {'up to the end' if lasts else 'and then continue'}."
    bounds = [report.nodes[name].bound_ns for name in stall.silent]
    known = [bound for bound in bounds if bound is not None]
    sentence += f" {_first_sentence(stall, len(known) == len(bounds))}"
    clocks = f"clocks are known to ± {milliseconds_text(max(known) / MILLISECOND_NS)}" if known else ""
    if len(known) < len(bounds):
        clocks = "the clocks of some of these nodes are not known, so no order is certain"
    receiving = stall.receiving
    if len(receiving.nodes) == 1 < len(stall.silent):
        gap = milliseconds_text(1e3 * receiving.gap)
        clocks = f"{shown_names(receiving.nodes)} stopped receiving first, at least {gap} before the next; {clocks}"
    moving = f"; {shown_names(stall.moving)} kept moving bytes and did not stop first" if stall.moving else ""
    limit = "A job that ended looks the same" if lasts else "A checkpoint or an evaluation looks the same"
    return FleetFinding(
        "stall",
        sentence,
        f"No traffic for more than three steps{moving}; {clocks}.",
        f"{limit}. Moments are known to one sample and the clock bound.",
        stall.first,
    )


def _first_sentence(stall: FleetStall, clocks: bool) -> str:
    if len(stall.silent) == 1:
        return f"It is {escape_controls(stall.silent[0])}."
    if len(stall.first) == 1:
        gap = milliseconds_text(1e3 * stall.sending.gap)
        return f"{escape_controls(stall.first[0])} stopped sending first, at least {gap} before the next one."
    if stall.first:
        return f"The first to stop sending is one of {shown_names(stall.first)}; their order is not known."
    reason = (
        "they stopped closer together than the clocks and samples resolve" if clocks else "their clocks are not known"
    )
    return f"Which one stopped sending first is not known: {reason}."


def describe_late(report: FleetReport) -> list[FleetFinding]:
    """Who begins steps late, or that nobody does."""
    compared = [row for row in report.steps if row.lateness is not None and row.lateness.judged]
    if not compared:
        return [_unknown_late(report)]
    late = sorted(
        ((row, each) for row in compared if (each := row.late) is not None), key=lambda one: -one[1].lateness_ms
    )
    doubtful = [row for row in compared if _lateness(row).start.stands_out and row.late is None]
    found = [_describe_late(report, row, each) for row, each in late[:MOST_LATE]]
    if len(late) > MOST_LATE:
        names = shown_names(row.node for row, _ in late[MOST_LATE:])
        found.append(
            FleetFinding("late", f"{len(late) - MOST_LATE} more nodes are late: {names}.", "", RING_LIMIT + ".")
        )
    others = [row for row in compared if row not in doubtful]
    if others and not late:
        found.append(_nobody_late(others))
    return found + [_describe_doubtful(row) for row in doubtful]


def _lateness(row: StepRow) -> Lateness:
    assert row.lateness is not None
    return row.lateness


def _describe_late(report: FleetReport, row: StepRow, late: Lateness) -> FleetFinding:
    which = f" ({row.peers})" if row.peers else ""
    sentence = (
        f"{escape_controls(row.node)}{escape_controls(which)} begins each step {milliseconds_text(late.lateness_ms)} "
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
        sentence += f" in the {when} +{halves.at:.1f} s; in the other half {_size_text(other)}"
    elif halves is not None and halves.changed:
        evidence += f"; {_size_text(halves.first)} up to +{halves.at:.1f} s, then {_size_text(halves.second)}"
    clock = f"Its clock {bound_text(report.nodes[row.node].bound_ns)}; the ends of the steps correct it in band"
    return FleetFinding("late", f"{sentence}.", f"{evidence}.", f"{clock}. {RING_LIMIT}.", (row.node,))


def _size_text(late: Lateness) -> str:
    return f"{milliseconds_text(late.lateness_ms)} ± {milliseconds_text(late.uncertainty_ms)}"


def _describe_doubtful(row: StepRow) -> FleetFinding:
    late = _lateness(row)
    text = f"Whether {escape_controls(row.node)} is late is not known: it begins {milliseconds_text(late.lateness_ms)} "
    limit = "A stage of a pipeline has a rhythm of its own; label the nodes with their stage to compare within it."
    if late.ends_apart:
        text += "later than its peers after its own traffic ended, but its traffic does not end with theirs."
    else:
        text += f"later than its {late.peers} peers, but its own edges do not show that."
        limit = "What it waits for, and what its peers do differently, is not in the counters."
    return FleetFinding("unknown-late", text, f"Median of {late.steps} steps.", limit, (row.node,))


def _nobody_late(compared: list[StepRow]) -> FleetFinding:
    most = max(compared, key=lambda row: _lateness(row).lateness_ms)
    largest = max(_lateness(row).uncertainty_ms for row in compared)
    return FleetFinding(
        "nobody-late",
        f"No node begins its steps late, of {len(compared)} that were compared.",
        f"The largest lateness is {_size_text(_lateness(most))}, {escape_controls(most.node)}.",
        f"A lateness below {milliseconds_text(max(ENOUGH_MS, largest))} would not be named, and inside one ring one "
        "below a sample does not show.",
    )


def _unknown_late(report: FleetReport) -> FleetFinding:
    steps = sum(row.steps for row in report.steps)
    reason = (
        "no node has steps with silences between them"
        if not steps
        else f"no node has {FEWEST_PEERS} peers with ports of one job and stage and at least three common steps"
    )
    return FleetFinding(
        "unknown-late",
        f"Who is late is not known: {reason}.",
        f"{count_text(steps, 'step')} on {count_text(len(report.nodes), 'node')}.",
        f"Lateness needs silences of at least three samples between steps, on {FEWEST_PEERS + 1} nodes or more.",
    )


def describe_rhythms(report: FleetReport) -> list[FleetFinding]:
    """Nodes whose steps have another length than those of others with the same job and ports."""
    rhythms: dict[float, list[str]] = {}
    for row in report.steps:
        if row.rhythm_ms is not None and not report.nodes[row.node].coarse:
            rhythms.setdefault(row.rhythm_ms, []).append(row.node)
    if len(rhythms) < 2:
        return []
    order = sorted(rhythms, key=lambda rhythm: -len(rhythms[rhythm]))
    parts = [f"{milliseconds_text(rhythm)} on {shown_names(rhythms[rhythm])}" for rhythm in order[:MOST_LATE]]
    return [
        FleetFinding(
            "rhythm",
            f"Nodes have different rhythms, and only equal ones are compared: {'; '.join(parts)}.",
            "Usual time from one long silence to the next.",
            "Stages of a pipeline, and other jobs, have rhythms of their own. A silence is computing or waiting; the "
            "counters cannot tell, so they do not say which stage is too long. Label the nodes with their stage.",
            tuple(node for rhythm in order for node in rhythms[rhythm]),
        )
    ]


def describe_ends(report: FleetReport) -> list[FleetFinding]:
    """Nodes whose traffic does not end with that of their peers."""
    judged = [row.lateness for row in report.steps if row.lateness is not None and row.lateness.judged]
    apart = [late.ends.ms for late in judged if late.ends is not None and late.ends_apart]
    if 2 * len(apart) > len(judged):
        return [_describe_scattered(apart, len(judged))]
    found = []
    for row in report.steps:
        late = row.lateness
        if late is None or late.ends is None or not (late.judged and late.ends_apart):
            continue
        way = "after" if late.ends.ms > 0 else "before"
        found.append(
            FleetFinding(
                "ends-apart",
                f"The steps of {escape_controls(row.node)} end {milliseconds_text(abs(late.ends.ms))} {way} those of "
                "its peers, more than its clock bound allows.",
                f"Its clock {bound_text(report.nodes[row.node].bound_ns)}; the difference is certain to "
                f"± {milliseconds_text(late.ends.uncertainty_ms)}.",
                "Either it belongs to another stage of the pipeline, or the bound of its clock is wrong; the samples "
                f"cannot tell. The ends of one collective coincide to about {COINCIDE_MS:g} ms.",
                (row.node,),
            )
        )
    return _shorten(found)


def _describe_scattered(apart: list[float], nodes: int) -> FleetFinding:
    return FleetFinding(
        "ends-apart",
        f"The steps of {len(apart)} of {nodes} nodes end apart from those of the others, by up to "
        f"{milliseconds_text(max(map(abs, apart)))}.",
        "More than the bounds of their clocks allow.",
        "That is how the stages of a pipeline look; label the nodes with their stage to compare within it.",
    )


def _shorten(found: list[FleetFinding]) -> list[FleetFinding]:
    """The first ones, and the names of the others in one sentence."""
    if len(found) <= MOST_LATE:
        return found
    more = tuple(one for each in found[MOST_LATE:] for one in each.subjects)
    return [*found[:MOST_LATE], FleetFinding(found[0].kind, f"The same holds for {shown_names(more)}.", "", "", more)]


def describe_counts(report: FleetReport) -> list[FleetFinding]:
    """Nodes that join late or leave early: they are silent while their peers make steps."""
    found = []
    for count in report.counts:
        name = escape_controls(count.node)
        parts = [f"joined late: it is silent during the first {_steps_text(count.before)}"] if count.before else []
        parts += [f"left early: it is silent during the last {_steps_text(count.after)}"] if count.after else []
        found.append(
            FleetFinding(
                "fewer-steps",
                f"{name} {', and '.join(parts)} of its peers.",
                f"Against {count.peers} peers, by the samples of the node.",
                f"Its clock {bound_text(report.nodes[count.node].bound_ns)}.",
                (count.node,),
            )
        )
    return _shorten(found)


def describe_coarse(report: FleetReport) -> list[FleetFinding]:
    """Nodes whose counters change too rarely to compare their steps."""
    coarse = [node for node in report.nodes.values() if node.coarse]
    if not coarse:
        return []
    longest = max(node.resolution_ns for node in coarse) / MILLISECOND_NS
    names = tuple(node.name for node in coarse)
    return [
        FleetFinding(
            "coarse",
            f"The steps of {shown_names(names)} are not compared: their counters change every "
            f"{milliseconds_text(longest)} only.",
            "The stride and the resolution of the counters in the recordings.",
            "An edge of theirs may lie anywhere in that time.",
            names,
        )
    ]


def _steps_text(count: int) -> str:
    return "step" if count == 1 else f"{count} steps"
