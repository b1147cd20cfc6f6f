"""Sentences about rails: failovers, idle ports, hot rails, and nodes and ports that differ."""

from __future__ import annotations

import math

import numpy as np

from ibpulse.base.text import count_text, escape_controls
from ibpulse.base.units import SECOND_NS
from ibpulse.core.statistics.failovers import Failover
from ibpulse.core.statistics.hot_rail import HOT_FACTOR
from ibpulse.core.statistics.rail_split import RailSplit
from ibpulse.workbench.fleet.fleet_finding import FleetFinding, factor_text, shown_names
from ibpulse.workbench.fleet.fleet_report import FleetReport
from ibpulse.workbench.fleet.node_numbers import NodeRails

WAYS = ("transmit", "receive")
# a failover keeps the bytes of a node to this part
KEPT = (0.8, 1.25)
MOST = 8
LEAST_PERCENT = round(100 * (HOT_FACTOR - 1))


def describe_failovers(report: FleetReport) -> list[FleetFinding]:
    """Rails whose traffic another one seems to have taken over."""
    return [
        _describe_failover(report, node, each)
        for node in report.rails
        for each in node.failovers
        if math.isnan(each.bytes_ratio) or KEPT[0] <= each.bytes_ratio <= KEPT[1]
    ]


def _describe_failover(report: FleetReport, node: NodeRails, each: Failover) -> FleetFinding:
    silent, doubled = (escape_controls(port) for port in (each.silent, each.doubled))
    begin = (node.begin_ns - report.nodes[node.node].offset_ns - report.origin_ns) / SECOND_NS + each.first
    lasts = "to the end" if each.lasting else f"for {each.end - each.first} s"
    whole = math.isnan(each.bytes_ratio)
    moves = "" if whole else f", and the node moves {100 * each.bytes_ratio:.0f} % of its bytes at other times"
    return FleetFinding(
        "failover",
        f"Failover-like on {escape_controls(node.node)}: from +{max(0.0, begin):.0f} s {lasts}, {silent} carries "
        f"nothing and {doubled} twice its share.",
        f"Exactly one rail doubles, all others keep theirs{moves}.",
        "The counters show bytes, not the reason; check the link of the silent port.",
        (node.node, each.silent),
    )


def _in_failovers(report: FleetReport) -> set[tuple[str, str]]:
    return {
        (node.node, port) for node in report.rails for each in node.failovers for port in (each.silent, each.doubled)
    }


def describe_idle(report: FleetReport) -> list[FleetFinding]:
    """Ports that carry nothing in either direction while the other rails of their node do."""
    if not report.splits:
        return []
    both = set(report.splits[0].idle_ports()) & set(report.splits[1].idle_ports())
    ports = sorted(both - _in_failovers(report))
    return [
        FleetFinding(
            "idle-port",
            f"{escape_controls(port)} of {escape_controls(node)} carries nothing.",
            "Less than 5 % of the median of the rails of its node, in both directions.",
            "",
            (node, port),
        )
        for node, port in ports[:MOST]
    ]


def describe_splits(report: FleetReport) -> list[FleetFinding]:
    """Rails that are hot on all nodes, and nodes and single ports that differ."""
    if not report.splits:
        return []
    transmit, receive = report.splits
    return [
        *_hot_rails(report, transmit, receive),
        *_nodes(report, transmit, receive),
        *_ports(report, transmit, receive),
    ]


def _hot_rails(report: FleetReport, transmit: RailSplit, receive: RailSplit) -> list[FleetFinding]:
    hot = [{name: (factor, nodes) for name, factor, nodes in split.hot_rails()} for split in (transmit, receive)]
    found = []
    for name in dict.fromkeys([*hot[0], *hot[1]]):
        directions = [way for way, rails in zip(WAYS, hot, strict=True) if name in rails]
        factor, nodes = next(rails[name] for rails in hot if name in rails)
        total = len(transmit.nodes)
        minutes = _hot_minutes(report, name)
        evidence = f"Median polish of nodes × rails: the rail's factor is {factor:.2f}, on {nodes} of {total} nodes"
        if minutes[1] > 1:
            evidence += f"; it was the busiest in {minutes[0]} of {minutes[1]} minutes"
        found.append(
            FleetFinding(
                "hot-rail",
                f"{escape_controls(name)} is hot on every node: it carries {factor_text(factor)} than the other rails"
                f"{'' if len(directions) == 2 else f' ({directions[0]} only)'}.",
                evidence + ".",
                _hot_meaning(name, directions, receive),
                (name,),
            )
        )
    return found


def _hot_meaning(name: str, directions: list[str], receive: RailSplit) -> str:
    if len(directions) == 2:
        return "Both directions alike point at placement, an uneven ring, or cabling; not at one expert."
    if directions == ["transmit"]:
        nodes = [node for node, port, factor in receive.differing_ports() if port == name and factor > 1]
        if len(nodes) == 1:
            return (
                f"Only {escape_controls(nodes[0])} receives more on it: that is how a hot expert on its GPU of this "
                "rail looks, where NCCL sends through the NIC of the receiving GPU."
            )
    return "One direction alone does not say why; a hot expert shows in transmit everywhere and in receive on one node."


def _hot_minutes(report: FleetReport, name: str) -> tuple[int, int]:
    """In how many minutes the rail was the busiest of most nodes, and of how many."""
    wins = [
        node.minutes.argmax(axis=1) == node.rails.index(name)
        for node in report.rails
        if name in node.rails and len(node.minutes)
    ]
    length = min((len(each) for each in wins), default=0)
    if not length:
        return 0, 0
    return int(np.count_nonzero(np.mean([each[:length] for each in wins], axis=0) > 0.5)), length


def _nodes(report: FleetReport, transmit: RailSplit, receive: RailSplit) -> list[FleetFinding]:
    """Nodes that carry more or less on all rails; one group of peers cannot be told from another by bytes alone."""
    received = dict(receive.differing_nodes())
    found = []
    for name, factor in transmit.differing_nodes()[:MOST]:
        also = name in received and (received[name] > 1) == (factor > 1)
        found.append(
            FleetFinding(
                "different-node",
                f"{escape_controls(name)} transmits {factor_text(factor)} than the other nodes, on all its rails"
                f"{'' if also else '; what it receives is usual'}.",
                f"The node's factor is {factor:.2f}; {LEAST_PERCENT} % is reported.",
                "A stage of a pipeline, an expert's host or missing data can do that as well as a fault.",
                (name,),
            )
        )
    return found


def _ports(report: FleetReport, transmit: RailSplit, receive: RailSplit) -> list[FleetFinding]:
    known = _in_failovers(report)
    ways: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for way, split in zip(WAYS, (transmit, receive), strict=True):
        for node, port, factor in split.differing_ports():
            if (node, port) not in known:
                ways.setdefault((node, port), []).append((way, factor))
    found = [_describe_port(node, port, each) for (node, port), each in ways.items()]
    if len(found) > MOST:
        names = shown_names(f"{node} {port}" for node, port in list(ways)[MOST:])
        more = f"{count_text(len(found) - MOST, 'more port')} differ: {names}."
        found[MOST:] = [FleetFinding("different-port", more, "", "")]
    return found


def _describe_port(node: str, port: str, ways: list[tuple[str, float]]) -> FleetFinding:
    what = "transmits and receives" if len(ways) == 2 else f"{ways[0][0]}s"
    factor = ways[0][1]
    return FleetFinding(
        "different-port",
        f"{escape_controls(port)} of {escape_controls(node)} {what} {factor_text(factor)} than its node and its rail "
        "explain: a single port.",
        f"Its factor is {factor:.2f}; the same rail of other nodes and the other rails of this node are usual.",
        "The counters do not say why; look at its link rate, its errors and its cable."
        if factor < 1
        else "The counters do not say why; other ports may send through it.",
        (node, port),
    )
