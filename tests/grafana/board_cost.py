"""What a refresh of a board reads, counted from its expressions: series, and stored samples. Asserts nothing.

A node has eight ports, all of them rails; eight nodes share a training job. Whatever only exists while something is
wrong is counted as if it were wrong on one node in a hundred.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import promql_parser as promql

from ibpulse.agent.metrics.page import TABLE
from ibpulse.core.events.event import KINDS
from tests.grafana.documents import PROMETHEUS, parse, walk
from tools.grafana.queries import RANGE, RATE
from tools.grafana.series_names import RECORDED, labels_of, level_of

PORTS = 8
NODES_PER_JOB = 8
NODES_OF_JOB_BOARD = 64
"""Nodes of the training job that the board about a job shows."""
RARE = 0.01
SCRAPE_SECONDS, RECORDED_SECONDS = 15, 60
RATE_SECONDS = 4 * SCRAPE_SECONDS
VALUES = {
    "window": 2,
    "timescale": 4,
    "signature": 4,
    "kind": len(KINDS),
    "reason": 6,
    "code": 3,
    "path": 10,
    # labels that follow from the others
    **dict.fromkeys(("scheduler", "source", "name", "namespace", "version", "python", "requested", "actual"), 1),
    **dict.fromkeys(("cpu_requested", "cpu_actual", "job_id"), 1),
}
# series that exist only while something is wrong, with the number of them on such a node
SPARSE = {
    "ALERTS": 1,
    "ALERTS_FOR_STATE": 1,
    "instance_device_port:ibpulse_bad_rail:state": 1,
    "ibpulse_device_interval_lengthened": 1,
    "ibpulse_port_counter_saturated": 1,
}
# with one label value for each port at most
OF_PORT = ("ibpulse_port_info", "ibpulse_port_job_info")
BUCKETS = {metric.name: len(metric.buckets) + 1 for metric in TABLE if metric.type == "histogram"}


@dataclass(frozen=True)
class Cost:
    """Series, and samples of them, that a server reads."""

    series: float = 0
    samples: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.series + other.series, self.samples + other.samples)


def board_cost(board: Mapping[str, Any], nodes: int) -> Cost:
    """What one refresh reads with the default values of the variables, in a fleet of so many nodes.

    Collapsed rows query nothing until somebody opens them, and annotations that are switched off neither.
    """
    span = _seconds(board["time"]["from"])
    found = Cost()
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            if target["datasource"]["type"] == PROMETHEUS:
                found += query_cost(board, target["expr"], nodes, 0 if target.get("instant") else span)
    for annotation in board["annotations"].get("list", ()):
        if annotation["enable"]:
            found += query_cost(board, annotation["expr"], nodes, span)
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            # a lookup in the index
            found += Cost(sum(cost.series for cost in _selectors(board, _inner(variable["query"]), nodes, 0)), 0)
    return found


def query_cost(board: Mapping[str, Any], expr: str, nodes: int, span: float) -> Cost:
    """What a query reads, for a moment if the span (in seconds) is 0."""
    return sum(_selectors(board, expr, nodes, span), Cost())


def _selectors(board: Mapping[str, Any], expr: str, nodes: int, span: float) -> Iterator[Cost]:
    for node, parents in walk(parse(expr)):
        if not isinstance(node, promql.VectorSelector):
            continue
        matrix = parents[-1] if parents and isinstance(parents[-1], promql.MatrixSelector) else None
        # with `@ end()` the window is read once
        once = matrix is not None and node.at is not None
        window = _window(matrix.range, board) if matrix is not None else 0
        interval = RECORDED_SECONDS if node.name in RECORDED else SCRAPE_SECONDS
        series = cardinality(board, node, nodes)
        yield Cost(series, series * max(1, (window + (0 if once else span)) / interval))


def cardinality(board: Mapping[str, Any], selector: Any, nodes: int) -> float:
    """The number of series that a selector matches, with the default values of the board's variables."""
    name, fixed = selector.name, {each.name: each.value for each in selector.matchers.matchers}
    labels = labels_of(name)
    if name in SPARSE:
        return SPARSE[name] * _nodes(board, nodes) * RARE
    if "instance" not in (level_of(name) if name in RECORDED else ["instance"]):
        count = 1.0 if "job_id" not in level_of(name) or "job_id" in fixed else nodes / NODES_PER_JOB
    else:
        count = _nodes(board, nodes) * (PORTS if "device" in labels else 1)
    if name in OF_PORT:
        return count
    for label in labels:
        if label in ("device", "port"):
            continue
        value = fixed.get(label, "")
        stem = re.sub(r"(:rate5m|_bucket)", "", name.partition(":")[2].partition(":")[0] if ":" in name else name)
        most = BUCKETS[stem] if label == "le" else VALUES[label]
        # one value, or several with `|` between them; a pattern for all of them has a dot
        count *= min(most, len(value.split("|"))) if value and "." not in value and "$" not in value else most
    # only one of the two forms of a histogram is stored
    return 0 if name in BUCKETS else count


def _nodes(board: Mapping[str, Any], nodes: int) -> int:
    own = {each["name"]: each for each in board["templating"]["list"]}
    if "instance" in own and not own["instance"].get("multi"):
        return 1
    # the default of all nodes is a list of those of one training job
    return min(nodes, NODES_OF_JOB_BOARD) if not own["instance"].get("allValue") else nodes


def _window(span: timedelta, board: Mapping[str, Any]) -> float:
    seconds = span.total_seconds()
    return {PLACES[RATE]: RATE_SECONDS, PLACES[RANGE]: _seconds(board["time"]["from"])}.get(seconds, seconds)


def _seconds(text: str) -> float:
    """The length of a range such as `now-3h`."""
    found = re.fullmatch(r"now-(\d+)([smh])", text)
    assert found, text
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def _inner(query: str) -> str:
    return re.sub(r"^\w+\((.*), \w+\)$", r"\1", query)


def _place(name: str) -> float:
    selector = parse(f"rate(up[{name}])").args[0]
    return float(selector.range.total_seconds())


PLACES = {name: _place(name) for name in (RATE, RANGE)}
"""The spans that stand for the variables when an expression is parsed."""
