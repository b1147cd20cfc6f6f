"""What the pictures of a dataset show: nodes over time on one clock, and their lateness step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.base.text import natural_key
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.lateness import match_steps, medians_of_others
from ibpulse.workbench.fleet.fleet_report import FleetReport
from ibpulse.workbench.fleet.peer_groups import PeerGroup, find_peers
from ibpulse.workbench.fleet.report_source import ReportSource

ORDERS = ("lateness", "rack", "name")
# the close-up shows so many steps, at most so many seconds
CLOSE_STEPS, CLOSE_SECONDS = 6, 12.0
# a point of lateness over time is the median of so many steps, and there are at most so many points
POINT_STEPS, MOST_POINTS = 6, 60


@dataclass(frozen=True, slots=True)
class FleetColumns:
    """Mean bandwidth of nodes in columns of `seconds` from `begin` on: (nodes, columns), NaN where data is missing."""

    begin: float
    seconds: float
    values: Floats


@dataclass(frozen=True, slots=True)
class LatenessSeries:
    """Lateness over time: `seconds` (points,), and medians in ms by node, each (points,), NaN where unknown."""

    seconds: Floats
    lateness: Mapping[str, Floats]


def sort_nodes(report: FleetReport, order: str) -> list[str]:
    """The nodes from top to bottom."""
    late: dict[str, float] = {}
    for row in report.steps:
        if row.lateness is not None:
            late[row.node] = max(late.get(row.node, -np.inf), row.lateness.lateness_ms)
    names = sorted(report.nodes, key=natural_key)
    if order == "rack":
        labels = {name: report.nodes[name].labels for name in names}
        return sorted(names, key=lambda name: [natural_key(labels[name].get(kind, "")) for kind in ("leaf", "rack")])
    return sorted(names, key=lambda name: -late.get(name, -np.inf)) if order == "lateness" else names


def find_close_up(report: FleetReport) -> tuple[float, float]:
    """The span of some steps in the middle, in seconds after the origin; one tenth of the whole without steps."""
    periods = [row.step_ms for row in report.steps if row.step_ms is not None]
    length = CLOSE_STEPS * float(np.median(periods)) / 1e3 if periods else report.seconds / 10
    length = min(length, CLOSE_SECONDS, report.seconds)
    begin = (report.seconds - length) / 2
    return begin, begin + length


def fill_columns(source: ReportSource, nodes: Sequence[str], span: tuple[float, float], most: int) -> FleetColumns:
    """The means of nodes in a span, in at most `most` columns of whole samples, on the clock of the collector."""
    interval = max((source.nodes[name].interval_ns for name in nodes), default=1) / SECOND_NS
    samples = max(1, round((span[1] - span[0]) / interval))
    per_column = -(-samples // max(1, most))
    seconds = per_column * interval
    columns = -(-samples // per_column)
    values = np.full((len(nodes), columns), np.nan)
    for row, name in enumerate(nodes):
        found = source.samples(name)
        if found is None:
            continue
        node = source.nodes[name]
        total = found.rates.sum(axis=0, dtype=np.float64)
        middle = found.start_ns - found.interval_ns / 2 - source.origin_ns - node.offset_ns
        times = (middle + found.interval_ns * np.arange(len(total), dtype=np.float64)) / SECOND_NS
        places = np.floor((times - span[0]) / seconds).astype(np.int64)
        inside = (places >= 0) & (places < columns) & ~np.isnan(total)
        sums, counts = np.zeros(columns), np.zeros(columns)
        np.add.at(sums, places[inside], total[inside])
        np.add.at(counts, places[inside], 1)
        values[row] = np.divide(sums, counts, out=np.full(columns, np.nan), where=counts > 0)
    return FleetColumns(span[0], seconds, values)


def follow_lateness(source: ReportSource) -> LatenessSeries:
    """The lateness of every node against its peers over time, as medians over neighbouring steps."""
    lateness: dict[str, Floats] = {}
    groups = source.steps()
    steps = max((len(group.columns["step"]) for group in groups), default=0)
    count = min(MOST_POINTS, max(1, steps // POINT_STEPS))
    seconds = np.linspace(0.0, (source.end_ns - source.origin_ns) / SECOND_NS, count + 1)
    for peers in find_peers(groups):
        for name, (times, values) in _against_peers(peers, source).items():
            places = np.clip(np.searchsorted(seconds, times) - 1, 0, count - 1)
            medians = np.full(count, np.nan)
            for place in np.unique(places):
                medians[place] = np.median(values[places == place])
            # of several pipelines on a node, the latest one
            lateness[name] = np.fmax(lateness.get(name, np.full(count, np.nan)), medians)
    return LatenessSeries((seconds[:-1] + seconds[1:]) / 2, lateness)


def _against_peers(peers: PeerGroup, source: ReportSource) -> dict[str, tuple[Floats, Floats]]:
    """Times in seconds and lateness in ms of the steps of each node."""
    groups = {name: group for name, group in peers.groups.items() if len(group.columns["begin"]) > 1}
    if len(groups) < 2:
        return {}
    ends = [group.columns["begin"] - source.nodes[name].offset_ns for name, group in groups.items()]
    places = match_steps(ends)
    silences = np.full(places.shape, np.nan)
    times = np.full(places.shape, np.nan)
    for row, (end, group) in enumerate(zip(ends, groups.values(), strict=True)):
        columns = group.columns
        silence = np.append(columns["transmit_first"] - columns["begin"], np.nan)
        silences[row], times[row] = silence[places[row]], np.append(end, np.nan)[places[row]]
    against = (silences - medians_of_others(silences)) / MILLISECOND_NS
    found = {}
    for row, name in enumerate(groups):
        known = ~np.isnan(against[row])
        found[name] = times[row, known] / SECOND_NS, against[row, known]
    return found
