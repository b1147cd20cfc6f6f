"""Each board of dashboards/ becomes a ConfigMap that the sidecar of Grafana loads."""

from __future__ import annotations

import json

from tests.campaigns.chart.rendering import ROOT, needs_helm, render

pytestmark = needs_helm

BOARDS = sorted((ROOT / "dashboards").glob("*.json"))
MAX_CONFIGMAP_BYTES = 1 << 20


def test_every_board_is_a_configmap_with_the_label_and_the_folder() -> None:
    values = {"dashboards": {"enabled": True, "namespace": "grafana", "labels": {"a": "b"}, "folder": "Fabric"}}
    maps = [
        document for document in render(values)
        if document["kind"] == "ConfigMap" and document["metadata"]["namespace"] == "grafana"
    ]  # fmt: skip
    assert len(maps) == len(BOARDS)
    written = {}
    for found in maps:
        metadata = found["metadata"]
        assert (metadata["labels"]["grafana_dashboard"], metadata["labels"]["a"]) == ("1", "b")
        assert metadata["annotations"] == {"grafana_folder": "Fabric"}
        written |= {name: json.loads(text) for name, text in found["data"].items()}
    assert written == {f"ibpulse-{path.name}": json.loads(path.read_text()) for path in BOARDS}


def gateways(values: dict[str, object]) -> set[str]:
    """The values with which the boards' variable for the address of a gateway begins."""
    boards = [
        json.loads(text)
        for document in render({"dashboards": {"enabled": True}, **values})
        if document["kind"] == "ConfigMap"
        for name, text in document["data"].items()
        if name.endswith(".json")
    ]
    assert len(boards) == len(BOARDS)
    found = [each["query"] for board in boards for each in board["templating"]["list"] if each["name"] == "gateway"]
    assert len(found) == len(BOARDS)
    return set(found)


def test_boards_ask_the_gateway_of_the_chart_or_a_given_one() -> None:
    assert gateways({}) == {""}
    (address,) = gateways({"gateway": {"enabled": True, "port": 1234}})
    services = [document for document in render({"gateway": {"enabled": True}}) if document["kind"] == "Service"]
    names = {document["metadata"]["name"] for document in services}
    name, _, rest = address.partition(".")
    assert name in names
    assert rest == "monitoring.svc:1234/node/"
    given = {"enabled": True, "gateway": 'pulse.example.com/"node"/'}
    assert gateways({"gateway": {"enabled": True}, "dashboards": given}) == {'pulse.example.com/"node"/'}


def test_no_board_is_too_large_for_a_configmap() -> None:
    assert all(path.stat().st_size < MAX_CONFIGMAP_BYTES for path in BOARDS)


def test_the_operator_of_grafana_gets_each_board_from_its_configmap() -> None:
    instances = {"matchLabels": {"dashboards": "grafana"}}
    values = {"enabled": True, "grafanaDashboard": {"enabled": True, "instanceSelector": instances}}
    documents = render({"dashboards": values})
    maps = {each["metadata"]["name"]: each["data"] for each in documents if each["kind"] == "ConfigMap"}
    made = [each for each in documents if each["kind"] == "GrafanaDashboard"]
    assert len(made) == 5
    for each in made:
        assert each["apiVersion"] == "grafana.integreatly.org/v1beta1"
        spec = each["spec"]
        assert set(spec) == {"instanceSelector", "folder", "configMapRef"}
        assert spec["instanceSelector"] == instances
        assert spec["configMapRef"]["key"] in maps[spec["configMapRef"]["name"]]
