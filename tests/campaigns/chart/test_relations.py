"""How the rendered objects fit together: who selects whom, what restarts pods, where secrets are, and the boards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ibpulse.commands import VERBS
from ibpulse.commands.parser import parse
from ibpulse.gateway.nodes.discovery import parse_source, read_node_config
from tests.campaigns.chart.rendering import (
    CASES,
    CHART,
    ROOT,
    Document,
    case_values,
    merged,
    needs_helm,
    one,
    render,
    settings,
)
from tests.tables import for_each

pytestmark = needs_helm

HASH = "$2b$10$" + "x" * 53
USERS = {"basic_auth_users": {"a": HASH}}
PROTECTED = case_values(CHART / "ci" / "gateway-values.yaml")
BOARDS = sorted((ROOT / "dashboards").glob("*.json"))
ON = {"gateway": {"enabled": True}}


def named(documents: list[Document], kind: str, name: str) -> Document:
    """The object of a kind with a name."""
    (found,) = [each for each in documents if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


@pytest.mark.parametrize("name", ["ibpulse", "x" * 63])
def test_nothing_that_selects_the_daemons_selects_the_gateway_and_the_other_way_round(name: str) -> None:
    values = {"podMonitor": {"enabled": True}, "nameOverride": name}
    gateway = {"enabled": True, "serviceMonitor": {"enabled": True}, "replicas": 2}
    documents = render({**values, "gateway": gateway})
    daemon = one(documents, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    pod = one(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    service = next(each for each in documents if each["kind"] == "Service" and "clusterIP" not in each["spec"])
    selectors = {
        (each["kind"], "gateway" in each["metadata"]["name"]): labels
        for each in documents
        for key in ("selector", "podSelector")
        if (labels := each.get("spec", {}).get(key, {})) and (labels := labels.get("matchLabels", labels))
    }
    assert len(selectors) == 9
    for (kind, of_gateway), labels in selectors.items():
        target = service["metadata"]["labels"] if kind == "ServiceMonitor" else pod
        assert (labels.items() <= target.items()) is of_gateway, kind
        assert (labels.items() <= daemon.items()) is not of_gateway, kind


def test_the_daemons_always_let_the_gateway_and_the_tests_in() -> None:
    documents = render({**ON, "networkPolicy": {"from": [{"namespaceSelector": {}}]}})
    _, tester, gateway = named(documents, "NetworkPolicy", "r-ibpulse")["spec"]["ingress"][0]["from"]
    assert gateway == {"podSelector": one(documents, "Deployment")["spec"]["selector"]}
    labels = one(documents, "Pod")["metadata"]["labels"]
    assert tester["podSelector"]["matchLabels"].items() <= labels.items()
    assert not one(render(), "Service")["spec"]["selector"].items() <= labels.items()


def restarted(kind: str, values: Document, other: Document) -> bool:
    """Whether the pods of a kind differ under other values."""
    templates = [one(render(each), kind)["spec"]["template"]["metadata"] for each in (values, other)]
    return bool(templates[0].get("annotations") != templates[1].get("annotations"))


def web(users: Document, restart: bool) -> Document:
    return {"webConfig": {"content": {"http_server_config": {}, **users}, "restartOnChange": restart}}


def gateway_web(users: Document, restart: bool) -> Document:
    return {"gateway": {"enabled": True, **web(users, restart)}}


@for_each(
    [
        ("DaemonSet", {}, {"service": {"enabled": False}}, False),
        ("DaemonSet", {}, {"config": {"sampler": {"interval": "20ms"}}}, True),
        ("DaemonSet", web({}, True), web(USERS, True), True),
        ("DaemonSet", web({}, False), web(USERS, False), False),
        ("Deployment", gateway_web({}, True), gateway_web(USERS, True), True),
        ("Deployment", gateway_web({}, False), gateway_web(USERS, False), False),
    ]
)
def test_only_what_a_pod_reads_at_its_start_restarts_it(
    kind: str, values: Document, other: Document, expected: bool
) -> None:
    assert restarted(kind, values, other) is expected


def test_no_password_is_outside_of_the_secrets() -> None:
    values = merged(PROTECTED, {"gateway": {"nodeConfig": {"content": {"basic_auth": {"password": "hush-hush"}}}}})
    documents = render(values)
    others = yaml.safe_dump([each for each in documents if each["kind"] != "Secret"])
    assert "hush-hush" not in others
    assert "$2b$" not in others
    content = PROTECTED["webConfig"]["content"]
    assert yaml.safe_load(named(documents, "Secret", "r-ibpulse-web")["stringData"]["web.yml"]) == content
    assert settings(documents)["web"]["config.file"] == "/etc/ibpulse/web/web.yml"


def test_long_names_stay_within_their_limit_and_keep_their_ending() -> None:
    documents = render(merged(PROTECTED, {"fullnameOverride": "x" * 63, "nameOverride": "y" * 63}))
    # a class has no namespace, so it has that of the release in its name, which may have 253 characters
    longest = {"PriorityClass": 253}
    assert all(len(each["metadata"]["name"]) <= longest.get(each["kind"], 63) for each in documents)
    assert "x-web" in " ".join(each["metadata"]["name"] for each in documents if each["kind"] == "Secret")
    labels = one(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert all(len(value) <= 63 for value in labels.values())
    assert labels["app.kubernetes.io/name"].endswith("y-gateway")


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_the_gateway_takes_the_command_line_and_the_files_of_each_case(case: Path, tmp_path: Path) -> None:
    documents = render(merged(case_values(case), ON))
    verb, *words = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    parsed = parse(VERBS[verb], words)
    assert parsed.faults == ()
    assert [parse_source(source).name for source in parsed.flags["nodes.sources"]]
    for document in documents:
        for name, text in document.get("stringData", {}).items():
            (tmp_path / name).write_text(text)
            if name == "nodes.yml":
                read_node_config(tmp_path / name)


@pytest.mark.parametrize("kind", ["podMonitor", "serviceMonitor"])
def test_a_monitor_finds_the_pods_and_takes_every_field_of_its_kind(kind: str) -> None:
    given = {
        "tlsConfig": {"serverName": "a"},
        "basicAuth": {"username": {"name": "s", "key": "u"}},
        "metricRelabelings": [{"action": "drop", "regex": "x", "sourceLabels": ["__name__"]}],
        "relabelings": [{"targetLabel": "cluster", "replacement": "c"}],
    }
    more = {"extraEndpoint": {"honorTimestamps": False, "interval": "30s"}, "extraSpec": {"sampleLimit": 5000}}
    for instance, targets in (("node", ["node", "instance"]), ("address", ["node"])):
        monitor = {**given, **more, "instance": instance, "namespace": "prom"}
        documents = render(merged({"podMonitor": monitor}, {kind: {"enabled": True}}))
        made = one(documents, kind[0].upper() + kind[1:])
        (found,) = made["spec"]["podMetricsEndpoints" if kind == "podMonitor" else "endpoints"]
        assert found.items() >= {**given, **more["extraEndpoint"], "relabelings": found["relabelings"]}.items()
        label = ["__meta_kubernetes_pod_node_name"]
        changing = "pod|container|endpoint" + ("|service" if kind == "serviceMonitor" else "")
        assert found["relabelings"] == [
            *({"sourceLabels": label, "targetLabel": target} for target in targets),
            # what a replaced pod would change, so that its series go on
            {"action": "labeldrop", "regex": changing},
            *given["relabelings"],
        ]
        assert (made["metadata"]["namespace"], made["spec"]["sampleLimit"]) == ("prom", 5000)
        assert made["spec"]["namespaceSelector"] == {"matchNames": ["monitoring"]}
        labels = one(documents, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
        of_service = named(documents, "Service", "r-ibpulse")["metadata"]["labels"]
        selected = labels if kind == "podMonitor" else of_service
        assert made["spec"]["selector"]["matchLabels"].items() <= selected.items()
        assert selected[made["spec"]["jobLabel"]] == "ibpulse"


# the boards


def test_every_board_is_a_configmap_for_a_sidecar_and_for_the_operator_of_grafana() -> None:
    instances = {"matchLabels": {"dashboards": "grafana"}}
    values: dict[str, Any] = {"enabled": True, "namespace": "grafana", "labels": {"a": "b"}, "folder": "Fabric"}
    values["grafanaDashboard"] = {"enabled": True, "instanceSelector": instances}
    documents = [each for each in render({"dashboards": values}) if each["metadata"].get("namespace") == "grafana"]
    maps = {each["metadata"]["name"]: each for each in documents if each["kind"] == "ConfigMap"}
    written = {}
    for found in maps.values():
        labels, annotations = found["metadata"]["labels"], found["metadata"]["annotations"]
        assert (labels["grafana_dashboard"], labels["a"], annotations["grafana_folder"]) == ("1", "b", "Fabric")
        written |= {name: json.loads(text) for name, text in found["data"].items()}
    assert written == {f"ibpulse-{path.name}": json.loads(path.read_text()) for path in BOARDS}
    made = [each for each in documents if each["kind"] == "GrafanaDashboard"]
    assert len(made) == len(BOARDS)
    for each in made:
        assert each["spec"]["instanceSelector"] == instances
        assert each["spec"]["configMapRef"]["key"] in maps[each["spec"]["configMapRef"]["name"]]["data"]


@for_each(
    [
        ({}, ""),
        ({"gateway": {"enabled": True, "port": 1234}}, "r-ibpulse-gateway.monitoring.svc:1234/node/"),
        ({**ON, "dashboards": {"gateway": 'pulse.example.com/"node"/'}}, 'pulse.example.com/"node"/'),
    ]
)
def test_boards_ask_the_gateway_of_the_chart_or_a_given_one(values: Document, address: str) -> None:
    documents = render(merged(values, {"dashboards": {"enabled": True}}))
    texts = [document["data"].items() for document in documents if document["kind"] == "ConfigMap"]
    boards = [json.loads(text) for data in texts for name, text in data if name.endswith(".json")]
    found = [each["query"] for board in boards for each in board["templating"]["list"] if each["name"] == "gateway"]
    assert found == [address] * len(BOARDS)
