"""Sentences about steps: stalls, late nodes, ends that lie apart, and nodes with fewer steps."""

from __future__ import annotations

import math

from ibpulse.datasets.fleet_finding import FleetFinding, bound_text, milliseconds_text, shown_names
from ibpulse.datasets.fleet_report import FleetReport, StepRow
from ibpulse.fleet.lateness import COINCIDE_MS, ENOUGH_MS, Lateness
from ibpulse.fleet.stalls import FleetStall
from ibpulse.text import count_text, escape_controls
from ibpulse.units import MILLISECOND_NS

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
    sentence += f" {_first_sentence(stall)}"
    bounds = [report.nodes[name].bound_ns for name in stall.silent]
    known = [bound for bound in bounds if bound is not None]
    clocks = f"clocks are known to ± {milliseconds_text(max(known) / MILLISECOND_NS)}" if known else ""
    if len(known) < len(bounds):
        clocks = "the clocks of some of these nodes are not known, so no order is certain"
    moving = f"; {shown_names(stall.moving)} kept moving bytes and did not stop first" if stall.moving else ""
    limit = "A job that ended looks the same" if lasts else "A checkpoint or an evaluation looks the same"
    return FleetFinding(
        "stall",
        sentence,
        f"No traffic for more than three steps{moving}; {clocks}.",
        f"{limit}. Moments are known to one sample and the clock bound.",
        stall.first if _order_is_known(report, stall) else (),
    )


def _order_is_known(report: FleetReport, stall: FleetStall) -> bool:
    bounds = [report.nodes[name].bound_ns for name in stall.silent]
    return len(stall.first) < len(stall.silent) and None not in bounds


def _first_sentence(stall: FleetStall) -> str:
    if len(stall.silent) == 1:
        return f"It is {escape_controls(stall.silent[0])}."
    if len(stall.first) == 1:
        gap = milliseconds_text(1e3 * stall.gap)
        return f"{escape_controls(stall.first[0])} fell silent first, at least {gap} before the next one."
    if len(stall.first) < len(stall.silent):
        return f"The first is one of {shown_names(stall.first)}; their order is not known."
    return "Which one was the first is not known: they fell silent closer together than the clocks and samples resolve."


def describe_late(report: FleetReport) -> list[FleetFinding]:
    """Who begins steps late, or that nobody does."""
    compared = [row for row in report.steps if row.lateness is not None]
    if not compared:
        return [_unknown_late(report)]
    late = sorted((row for row in compared if _is_late(row)), key=lambda row: -_lateness(row).lateness_ms)
    doubtful = [row for row in compared if _lateness(row).start.stands_out and not _is_late(row)]
    found = [_describe_late(report, row) for row in late[:MOST_LATE]]
    if len(late) > MOST_LATE:
        names = shown_names(row.node for row in late[MOST_LATE:])
        found.append(
            FleetFinding("late", f"{len(late) - MOST_LATE} more nodes are late: {names}.", "", RING_LIMIT + ".")
        )
    if not late:
        found.append(_nobody_late(compared))
    return found + [_describe_doubtful(row) for row in doubtful]


def _lateness(row: StepRow) -> Lateness:
    assert row.lateness is not None
    return row.lateness


def _is_late(row: StepRow) -> bool:
    return row.lateness is not None and row.lateness.late


def _describe_late(report: FleetReport, row: StepRow) -> FleetFinding:
    late = _lateness(row)
    which = f" ({row.peers})" if row.peers else ""
    sentence = (
        f"{escape_controls(row.node)}{escape_controls(which)} begins each step {milliseconds_text(late.lateness_ms)} "
        f"later than its peers (± {milliseconds_text(late.uncertainty_ms)})."
    )
    evidence = f"Median of {late.steps} steps against {row.compared_with} peers, {late.start.z:.0f} robust deviations"
    if late.own is not None and late.own.stands_out:
        evidence += f"; by its own edges it receives {milliseconds_text(late.own.ms)} before it transmits"
    elif late.own is not None:
        evidence += "; its own receive edges do not show a wait"
    clock = f"Its clock {bound_text(report.nodes[row.node].bound_ns)}; the ends of the steps correct it in band"
    return FleetFinding("late", sentence, f"{evidence}.", f"{clock}. {RING_LIMIT}.", (row.node,))


def _describe_doubtful(row: StepRow) -> FleetFinding:
    late = _lateness(row)
    return FleetFinding(
        "unknown-late",
        f"Whether {escape_controls(row.node)} is late is not known: it begins {milliseconds_text(late.lateness_ms)} "
        "later than its peers after its own traffic ended, but its traffic does not end with theirs.",
        f"Median of {late.steps} steps.",
        "A stage of a pipeline has a rhythm of its own; label the nodes with their stage to compare within it.",
        (row.node,),
    )


def _nobody_late(compared: list[StepRow]) -> FleetFinding:
    most = max(compared, key=lambda row: _lateness(row).lateness_ms)
    largest = max(_lateness(row).uncertainty_ms for row in compared)
    alone = all(row.compared_with < 2 for row in compared)
    return FleetFinding(
        "nobody-late",
        f"No node begins its steps late, of {len(compared)} that were compared.",
        f"The largest lateness is {milliseconds_text(_lateness(most).lateness_ms)} ± "
        f"{milliseconds_text(_lateness(most).uncertainty_ms)}, {escape_controls(most.node)}.",
        f"A lateness below {milliseconds_text(max(ENOUGH_MS, largest))} would not be named, and inside one ring one "
        "below a sample does not show" + ("; two nodes are few to compare" if alone else "") + ".",
    )


def _unknown_late(report: FleetReport) -> FleetFinding:
    steps = sum(row.steps for row in report.steps)
    reason = (
        "no node has steps with silences between them"
        if not steps
        else "no two nodes have ports of one job and stage with at least three common steps"
    )
    return FleetFinding(
        "unknown-late",
        f"Who is late is not known: {reason}.",
        f"{count_text(steps, 'step')} on {count_text(len(report.nodes), 'node')}.",
        "Lateness needs silences of at least three samples between steps, on two nodes or more.",
    )


def describe_rhythms(report: FleetReport) -> list[FleetFinding]:
    """Nodes whose steps have another length than those of others with the same job and ports."""
    rhythms: dict[float, list[str]] = {}
    for row in report.steps:
        if row.rhythm_ms is not None:
            rhythms.setdefault(row.rhythm_ms, []).append(row.node)
    if not rhythms:
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
    found = []
    for row in report.steps:
        late = row.lateness
        if late is None or late.ends is None or not late.ends_apart:
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
    if len(found) > MOST_LATE:
        names = shown_names(one for each in found[MOST_LATE:] for one in each.subjects)
        found[MOST_LATE:] = [FleetFinding("ends-apart", f"The same holds for {names}.", "", "")]
    return found


def describe_counts(report: FleetReport) -> list[FleetFinding]:
    """Nodes with fewer steps than their peers."""
    found = []
    for count in report.counts:
        name = escape_controls(count.node)
        clock = f"Its clock {bound_text(report.nodes[count.node].bound_ns)}."
        if count.before:
            text = f"{name} joined late: it has no steps while its peers make their first {_steps_text(count.before)}."
            found.append(
                FleetFinding("fewer-steps", text, f"Against {count.peers} peers, within its samples.", clock, (name,))
            )
        if count.after:
            text = f"{name} left early: it has no steps while its peers make their last {_steps_text(count.after)}."
            found.append(
                FleetFinding("fewer-steps", text, f"Against {count.peers} peers, within its samples.", clock, (name,))
            )
        if count.within:
            text = f"{name} has {count_text(count.within, 'step')} fewer than its peers between its first and its last."
            limit = (
                "Steps that lost samples at their edges are not counted; lost data and a skipped step look the same."
            )
            found.append(FleetFinding("fewer-steps", text, f"Against {count.peers} peers.", limit, (name,)))
    return found


def _steps_text(count: int) -> str:
    return "one" if count == 1 else str(count)
