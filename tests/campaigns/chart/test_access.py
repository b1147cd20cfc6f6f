"""How the pods are asked: with TLS or without, by the kubelet, by Prometheus, and by the web configuration's rules."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml

from tests.campaigns.chart.rendering import Document, container, merged, needs_helm, one, pod, render, settings

pytestmark = needs_helm

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
TLS = {
    "content": {"tls_server_config": {"cert_file": "/etc/ibpulse/tls/tls.crt", "key_file": "/etc/ibpulse/tls/tls.key"}}
}
STRICT = {"content": {"tls_server_config": {**TLS["content"]["tls_server_config"], "client_ca_file": "ca.crt"}}}
STRICT["content"]["tls_server_config"]["client_auth_type"] = "RequireAndVerifyClientCert"


def probes(values: Document) -> list[Document]:
    """The three probes without their times."""
    found = container(render(values))
    return [{key: value for key, value in found[name].items() if key in ("httpGet", "tcpSocket")} for name in PROBES]


def endpoint(kind: str, **monitor: Any) -> Document:
    """The endpoint of a monitor."""
    given: Document = {"podMonitor": monitor.pop("monitor", {})}
    values = merged(given, {kind: {"enabled": True}, **monitor})
    spec = one(render(values), kind[0].upper() + kind[1:])["spec"]
    (found,) = spec["podMetricsEndpoints" if kind == "podMonitor" else "endpoints"]
    assert isinstance(found, dict)
    return found


def test_the_sampler_is_alive_by_its_heartbeat_and_ready_by_its_first_samples() -> None:
    def ask(path: str) -> Document:
        return {"httpGet": {"path": path, "port": "metrics", "scheme": "HTTP"}}

    assert probes({}) == [ask("/-/healthy"), ask("/-/healthy"), ask("/-/ready")]


@pytest.mark.parametrize("web", [TLS, {"existingSecret": "web", "tls": True}], ids=["content", "secret"])
def test_with_tls_probes_and_monitors_speak_it(web: Document) -> None:
    assert [probe["httpGet"]["scheme"] for probe in probes({"webConfig": web})] == ["HTTPS"] * 3
    assert endpoint("podMonitor", webConfig=web)["scheme"] == "https"
    assert endpoint("serviceMonitor", webConfig=web)["scheme"] == "https"


@pytest.mark.parametrize(
    "web",
    [STRICT, {"existingSecret": "web", "tls": True, "requiresClientCertificate": True}],
    ids=["content", "secret"],
)
def test_where_everybody_needs_a_certificate_probes_look_whether_the_port_is_open(web: Document) -> None:
    assert probes({"webConfig": web}) == [{"tcpSocket": {"port": "metrics"}}] * 3
    assert "--only-connect" in one(render({"webConfig": web}), "Pod")["spec"]["containers"][0]["args"]


def test_a_given_web_configuration_becomes_a_secret_that_the_program_reads() -> None:
    documents = render({"webConfig": {**TLS, "tlsSecret": "ibpulse-tls"}})
    secret = one(documents, "Secret")
    assert yaml.safe_load(secret["stringData"]["web.yml"]) == TLS["content"]
    assert settings(documents)["web"]["config.file"] == "/etc/ibpulse/web/web.yml"
    volumes = {volume["name"]: volume.get("secret") for volume in pod(documents)["volumes"]}
    assert volumes["web"] == {"secretName": secret["metadata"]["name"], "defaultMode": 0o440}
    assert volumes["tls"] == {"secretName": "ibpulse-tls", "defaultMode": 0o440}
    mounts = {mount["name"]: mount for mount in container(documents)["volumeMounts"]}
    assert (mounts["web"]["mountPath"], mounts["tls"]["mountPath"]) == ("/etc/ibpulse/web", "/etc/ibpulse/tls")
    assert all(mounts[name]["readOnly"] for name in ("web", "tls", "config"))


def test_a_secret_of_somebody_elses_is_used_as_it_is() -> None:
    documents = render({"webConfig": {"existingSecret": "web", "key": "strict.yml"}})
    assert "Secret" not in {document["kind"] for document in documents}
    assert settings(documents)["web"]["config.file"] == "/etc/ibpulse/web/strict.yml"


def test_a_changed_web_configuration_restarts_the_pods_only_if_it_shall() -> None:
    def annotations(users: Document, restart: bool) -> Document:
        values = {"webConfig": {"content": {"basic_auth_users": users}, "restartOnChange": restart}}
        found: Document = one(render(values), "DaemonSet")["spec"]["template"]["metadata"]["annotations"]
        return found

    some = {"a": "$2b$10$" + "x" * 53}
    assert annotations({}, True) != annotations(some, True)
    assert annotations({}, False) == annotations(some, False)


def test_no_password_hash_is_outside_of_the_secret() -> None:
    documents = render({"webConfig": {"content": {"basic_auth_users": {"a": "$2b$10$" + "x" * 53}}}})
    others = [document for document in documents if document["kind"] != "Secret"]
    assert "$2b$" not in yaml.safe_dump(others)
    assert base64.b64encode(b"$2b$") not in yaml.safe_dump(others).encode()


@pytest.mark.parametrize("kind", ["podMonitor", "serviceMonitor"])
def test_the_instance_is_the_node_or_the_address(kind: str) -> None:
    label = ["__meta_kubernetes_pod_node_name"]
    node, instance = ({"sourceLabels": label, "targetLabel": name} for name in ("node", "instance"))
    changing = "pod|container|endpoint" + ("|service" if kind == "serviceMonitor" else "")
    # what a replaced pod would change, so that its series go on
    dropped = {"action": "labeldrop", "regex": changing}
    assert endpoint(kind)["relabelings"] == [node, instance, dropped]
    by_address = endpoint(kind, monitor={"instance": "address"})
    assert by_address["relabelings"] == [node, dropped]


@pytest.mark.parametrize("kind", ["podMonitor", "serviceMonitor"])
def test_a_monitor_takes_every_field_of_its_kind(kind: str) -> None:
    given = {
        "tlsConfig": {"serverName": "a"},
        "basicAuth": {"username": {"name": "s", "key": "u"}},
        "metricRelabelings": [{"action": "drop", "regex": "x", "sourceLabels": ["__name__"]}],
        "relabelings": [{"targetLabel": "cluster", "replacement": "c"}],
        "extraEndpoint": {"honorTimestamps": False, "interval": "30s"},
    }
    found = endpoint(kind, monitor=given)
    assert found["interval"] == "30s"
    assert found["honorTimestamps"] is False
    assert found["relabelings"][-1] == given["relabelings"][0]
    assert {key: found[key] for key in ("tlsConfig", "basicAuth", "metricRelabelings")} == {
        key: given[key] for key in ("tlsConfig", "basicAuth", "metricRelabelings")
    }


def test_a_monitor_finds_the_pods_and_names_the_job_after_them() -> None:
    documents = render({"podMonitor": {"enabled": True, "namespace": "prom", "extraSpec": {"sampleLimit": 5000}}})
    monitor = one(documents, "PodMonitor")
    labels = one(documents, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert monitor["metadata"]["namespace"] == "prom"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["monitoring"]}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert (labels[monitor["spec"]["jobLabel"]], monitor["spec"]["sampleLimit"]) == ("ibpulse", 5000)


def test_the_service_is_a_name_for_every_pod_and_no_address_of_its_own() -> None:
    documents = render()
    service = one(documents, "Service")["spec"]
    assert service["clusterIP"] == "None"
    names = {port["name"]: port["containerPort"] for port in container(documents)["ports"]}
    assert service["ports"] == [
        {"name": "metrics", "port": names["metrics"], "targetPort": "metrics", "protocol": "TCP"}
    ]
