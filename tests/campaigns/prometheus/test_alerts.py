"""Every alert on Prometheus's own engine, over series with the labels that a PodMonitor gives.

Each fires when it should, and stays silent when it should: while pods are replaced, scrapes fail, a second Prometheus
is not deduplicated, nodes are drained, and jobs begin and end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from ibpulse.gateway.push import STALLED
from tests import ROOT
from tests.grafana.rule_engine import EVALUATION_SECONDS, SCRAPE_SECONDS, Series
from tests.grafana.rule_faults import FAULTS, Fault, Fires
from tests.grafana.rule_fleet import BEGIN, END, LAST, NO_JOB, Node, during
from tests.grafana.rule_scenarios import (
    MAINTENANCE,
    Key,
    by_subject,
    cordoned,
    disturbed,
    drained,
    plain,
    replicated,
    run,
    series_of,
)
from tools.grafana.alerts import ALERTS, COMPONENTS, GROUPS

PAGE = ROOT / "docs" / "alerts.md"
FLEET = "exporters-missing"
OF_JOBS = {alert.name for alert in GROUPS["ibpulse-traffic"] if not alert.of_node}
TARGET = {"cluster", "job", "instance", "node"}

pytestmark = [
    pytest.mark.needs("promtool"),
    pytest.mark.timeout(900),
]


def key(fault: Fault, fires: Fires) -> Key:
    """The labels that name an alert of a fault."""
    on_node = {} if fires.job and fires.alert != "IBPulseNodeBehindItsJob" else {"instance": fault.nodes[0].name}
    subject = {"device": fires.device, "port": fires.port, "job_id": fires.job, "reason": fires.reason}
    labels = {"alertname": fires.alert, "severity": fires.severity, **on_node, **subject}
    return frozenset((name, value) for name, value in labels.items() if value)


def expected() -> dict[Key, list[int]]:
    """The seconds at which every alert of the table fires."""
    return {
        key(fault, fires): list(range(BEGIN + fires.after, BEGIN + fires.until, EVALUATION_SECONDS))
        for fault in FAULTS
        for fires in fault.fires
    }


def readable(seconds: Mapping[Key, list[int]]) -> dict[str, list[tuple[int, int]]]:
    """The same with names and spans after the beginning of the fault, which a failing test can show."""
    return {" ".join(f"{name}={value}" for name, value in sorted(labels)): spans(s) for labels, s in seconds.items()}


def spans(seconds: list[int]) -> list[tuple[int, int]]:
    """The first second of each run of evaluations, and the first after it."""
    step, known = EVALUATION_SECONDS, {*seconds}
    ends = [second + step - BEGIN for second in seconds if second + step not in known]
    return list(zip((second - BEGIN for second in seconds if second - step not in known), ends, strict=True))


def test_every_fault_raises_its_alerts_from_second_to_second_and_nothing_else_raises_any() -> None:
    assert readable(by_subject(plain())) == readable(expected())


def test_every_alert_has_a_fault_and_there_are_as_many_near_misses() -> None:
    assert {fires.alert for fault in FAULTS for fires in fault.fires} == {a.name for a in ALERTS}
    assert len([fault for fault in FAULTS if not fault.fires]) >= len(ALERTS)


def test_every_alert_has_the_labels_of_its_subject_and_no_others() -> None:
    component = {alert.name: COMPONENTS[group] for group, alerts in GROUPS.items() for alert in alerts}
    for labels in map(dict, plain().seconds):
        own = {"alertname", "severity", "component"}
        if labels["alertname"] == STALLED:
            # as the gateway pushes it
            assert labels.keys() == {"alertname", "severity", "cluster", "job_id"}
            continue
        assert labels["component"] == component[labels["alertname"]]
        assert set(labels) - own <= TARGET | {"device", "port", "job_id", "reason"}, labels
        assert {"cluster", "job"} <= set(labels)
        # a job on several nodes has no node
        assert ("node" in labels) == ("instance" in labels)


def test_the_texts_of_every_alert_name_its_subject() -> None:
    seen = set()
    for labels, notes in plain().annotations:
        seen.add(labels["alertname"])
        for text in notes.values():
            assert "<no value>" not in text
            assert "error expanding" not in text
        subject = labels.get("instance") or labels["job_id"]
        assert subject in notes["description"]
        assert all(labels.get(name, "") in notes["description"] for name in ("device", "job_id"))
        if "/d/ibpulse-job" in notes["dashboard_url"]:
            assert f"&var-job_id={labels['job_id']}" in notes["dashboard_url"]
        elif "instance" in labels and "/d/ibpulse-fleet" not in notes["dashboard_url"]:
            assert f"&var-instance={labels['instance']}" in notes["dashboard_url"]
        assert re.fullmatch(r"[A-Z].*\.", notes["summary"])
    assert seen == {alert.name for alert in ALERTS}


def test_alerts_stay_while_scrapes_fail_and_pods_are_replaced_and_no_other_fires() -> None:
    assert_same(by_subject(disturbed()))


def test_two_prometheus_servers_raise_each_alert_once_and_at_the_same_time() -> None:
    assert readable(by_subject(replicated())) == readable(expected())


def assert_same(found: Mapping[Key, list[int]]) -> None:
    """Exactly the alerts of the table, each from its minute on and without interruption."""
    wanted = expected()
    assert sorted(readable(found)) == sorted(readable(wanted))
    for labels, seconds in found.items():
        assert len(spans(seconds)) == 1, readable({labels: seconds})
        assert seconds[0] == wanted[labels][0]


def test_no_alert_about_a_node_in_maintenance_fires() -> None:
    assert {dict(labels)["alertname"] for labels in drained().seconds} == OF_JOBS


# the fleet


def fleet(cluster: str, size: int, down: int) -> list[Node]:
    return [
        Node(f"{cluster}-{number}", {"up": during(0, 1)} if number < down else {}, cluster=cluster, job=NO_JOB)
        for number in range(size)
    ]


def missing(nodes: list[Node], others: list[Series] | None = None, maintenance: str = "") -> dict[str, list[int]]:
    """Seconds at which the alert about the fleet fires, by cluster."""
    found = run([*series_of(nodes), *(others or [])], maintenance=maintenance)
    return {
        dict(labels).get("cluster", ""): seconds
        for labels, seconds in found.seconds.items()
        if dict(labels).get("reason") == FLEET
    }


def test_a_rack_without_exporters_raises_one_alert_and_single_nodes_do_not() -> None:
    found = missing([*fleet("rack", 20, 2), *fleet("single", 20, 1)])
    assert {name: spans(seconds) for name, seconds in found.items()} == {"rack": [(630, 2730)]}


def test_a_rack_in_maintenance_that_is_switched_off_raises_no_alert() -> None:
    rack, drained_rack = fleet("rack", 20, 2), fleet("drained", 20, 2)
    assert list(missing([*rack, *drained_rack], cordoned(drained_rack[:2]), MAINTENANCE)) == ["rack"]


def test_no_exporter_at_all_raises_the_alert() -> None:
    others = [Series("up", {"job": "node-exporter", "instance": "n1"}, [1.0] * (LAST // SCRAPE_SECONDS + 1))]
    assert list(missing([], others)) == [""]


def test_nodes_that_should_have_an_exporter_and_have_none_raise_the_alert() -> None:
    def capacity(cluster: str, names: list[str]) -> list[Series]:
        return [
            Series(
                "kube_node_status_capacity",
                {"cluster": cluster, "node": name, "resource": "nvidia_com_gpu", "unit": "integer"},
                [8.0] * (LAST // SCRAPE_SECONDS + 1),
            )
            for name in names
        ]

    tainted = capacity("tainted", [f"tainted-{number}" for number in range(10)])
    whole = capacity("whole", [f"whole-{number}" for number in range(10)])
    found = missing([*fleet("tainted", 8, 0), *fleet("whole", 10, 0)], [*tainted, *whole])
    assert list(found) == ["tainted"]


# the page


def detection() -> str:
    """The table of times, as the page has it."""
    rows = ["| alert | severity | fires after | ends after |", "|---|---|---|---|"]
    rows += [
        f"| `{alert.name}` | {fires.severity} | {span(fires.after)} | {ended(fires.until)} |"
        for alert in ALERTS
        for fault in FAULTS
        for fires in fault.fires
        if fires.alert == alert.name and fault.name not in TWICE
    ]
    return "\n".join(rows) + "\n"


def span(seconds: int) -> str:
    return f"{seconds} s" if seconds <= 120 else f"{seconds / 60:.0f} min"


def ended(until: int) -> str:
    lasting = END - BEGIN
    return span(until - lasting) if until >= lasting else f"{span(until)} after the fault began"


TWICE = {
    "down-unknown",
    "down-90s",
    "down-10s",
    "moe-unknown",
    *(f.name for f in FAULTS if "unreliable-" in f.name),
    "withdrawn",
    "stalled-lost",
    "stalled-ends",
}
"""Faults whose alerts the table has from another one."""


def test_the_page_has_the_times_of_these_tests() -> None:
    assert detection() in PAGE.read_text(), "docs/alerts.md: the table of times differs; it is:\n" + detection()
