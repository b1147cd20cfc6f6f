"""What happens to a fleet besides its faults: replaced pods, a second Prometheus, drained nodes, failed scrapes.

Every scenario has every fault of the table at the same time, each on nodes of its own, and nodes that are well.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tests.grafana.rule_engine import SCRAPE_SECONDS, Found, Series, evaluate
from tests.grafana.rule_faults import FAULTS, Fault
from tests.grafana.rule_fleet import BEGIN, LAST, NO_JOB, Node, until
from tools.grafana.rule_files import ALERT_FILE, RECORDING_FILE, resolve, rule_files

GAP, REPLACEMENT = BEGIN + 33 * 60, BEGIN + 36 * 60
"""When scrapes fail, and when pods are replaced: once every alert fires, and before the faults end."""
MAINTENANCE = "kube_node_spec_unschedulable == 1"
Key = frozenset[tuple[str, str]]


def rules(**overrides: str) -> dict[str, Any]:
    """The documents of the rule files, without recordings that no alert needs."""
    files = rule_files(resolve(overrides))
    documents = {name: yaml.safe_load(files[name]) for name in (RECORDING_FILE, ALERT_FILE)}
    exprs = {rule["record"]: rule["expr"] for group in documents[RECORDING_FILE]["groups"] for rule in group["rules"]}
    wanted = " ".join(rule["expr"] for group in documents[ALERT_FILE]["groups"] for rule in group["rules"])
    while more := " ".join(expr for record, expr in exprs.items() if record in wanted and expr not in wanted):
        wanted += more
    for group in documents[RECORDING_FILE]["groups"]:
        group["rules"] = [rule for rule in group["rules"] if rule["record"] in wanted]
    return documents


def healthy() -> list[Node]:
    """Nodes that are well: a job begins and ends on four of them, at once on two and after a pause on two."""
    begins, ends = 10 * 60.0, 61 * 60.0
    clock = "ibpulse_job_last_traffic_timestamp_seconds"
    at_once = [Node(f"worker-{number}", job="run-a", job_span=(begins, ends), whole=True) for number in range(2)]
    paused = [
        Node(f"worker-{number}", {clock: until(ends - 150)}, job="run-b", job_span=(begins, ends), whole=True)
        for number in range(2, 4)
    ]
    return [*at_once, *paused, Node("spare", job=NO_JOB, whole=True), Node("unknown", job="", whole=True)]


def series_of(nodes: Iterable[Node]) -> list[Series]:
    return [series for node in nodes for series in node.series(LAST)]


def nodes_of(faults: Iterable[Fault]) -> list[Node]:
    return [node for fault in faults for node in fault.nodes]


def run(series: list[Series], texts_at: tuple[int, ...] = (), **overrides: str) -> Found:
    """What fires over the series, with the committed rules or with other numbers."""
    with tempfile.TemporaryDirectory() as directory:
        return evaluate(Path(directory), rules(**overrides), series, LAST, texts_at)


@functools.cache
def plain() -> Found:
    """Every fault and every near miss, and nodes that are well."""
    # early, because a link that went down is an event, and late, because symbol errors are counted for half an hour
    return run(series_of([*nodes_of(FAULTS), *healthy()]), texts_at=(BEGIN + 480, BEGIN + 2100))


FIRING = [fault for fault in FAULTS if fault.fires]


def disturbed() -> Found:
    """All scrapes fail for two minutes, and a minute later the pods are replaced, one after the other."""
    nodes = [*nodes_of(FIRING), *healthy()]
    again = []
    for number, node in enumerate(nodes):
        ends = REPLACEMENT + number % 8 * SCRAPE_SECONDS
        pods = ((0, ends), (ends + 45, float("inf")))
        again.append(replace(node, gaps=((GAP, GAP + 120),), pods=pods))
    return run(series_of(again))


def replicated() -> Found:
    """A ruler sees the series of two Prometheus servers, which were not deduplicated."""
    nodes = [*nodes_of(FIRING), *healthy()]
    return run(series_of(replace(node, extra={"prometheus_replica": name}) for name in "ab" for node in nodes))


def drained() -> Found:
    """All nodes with a fault are cordoned, and the rules know the query for maintenance."""
    nodes = nodes_of(FIRING)
    return run([*series_of([*nodes, *healthy()]), *cordoned(nodes)], maintenance=MAINTENANCE)


def cordoned(nodes: Iterable[Node]) -> list[Series]:
    """What kube-state-metrics says about nodes that are cordoned."""
    return [
        Series(
            "kube_node_spec_unschedulable",
            {"cluster": node.cluster, "node": node.name, "namespace": "monitoring", "pod": "kube-state-metrics-0"},
            [1.0] * (LAST // SCRAPE_SECONDS + 1),
        )
        for node in nodes
    ]


def by_subject(found: Found) -> Mapping[Key, list[int]]:
    """Seconds by the labels that name an alert and its subject."""
    told = ("alertname", "severity", "instance", "device", "port", "job_id", "reason")
    return {
        frozenset((name, value) for name, value in labels if name in told): seconds
        for labels, seconds in found.seconds.items()
    }
