"""The gateway of the chart: what it may do, whom it asks, and who may ask it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ibpulse.commands import VERBS
from ibpulse.commands.parser import parse
from ibpulse.gateway.nodes.discovery import parse_source, read_node_config
from tests.campaigns.chart.podsecurity import broken
from tests.campaigns.chart.rendering import (
    CASES,
    CHART,
    Document,
    case_values,
    container,
    merged,
    needs_helm,
    one,
    render,
)

pytestmark = needs_helm

HASH = "$2b$10$" + "x" * 53
PROTECTED = case_values(CHART / "ci" / "gateway-values.yaml")


def on(**gateway: Any) -> Document:
    """Values with a gateway."""
    return {"gateway": {"enabled": True, **gateway}}


def named(documents: list[Document], kind: str, name: str = "r-ibpulse-gateway") -> Document:
    """The object of a kind with a name."""
    (found,) = [each for each in documents if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def template(documents: list[Document]) -> Document:
    """The pod template of the gateway."""
    found: Document = one(documents, "Deployment")["spec"]["template"]
    return found


def gateway(documents: list[Document]) -> Document:
    """The container of the gateway."""
    (found,) = template(documents)["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def flags(documents: list[Document], name: str) -> list[str]:
    """The values that the command line has for a flag."""
    return [word.partition("=")[2] for word in gateway(documents)["args"] if word.startswith(f"--{name}=")]


def test_there_is_no_gateway_unless_it_is_wanted() -> None:
    assert "gateway" not in yaml.safe_dump(render())


def test_the_pod_keeps_the_level_restricted_and_has_nothing_of_the_node() -> None:
    documents = render(on())
    spec, only = template(documents)["spec"], gateway(documents)
    assert broken(spec) == set()
    assert only["securityContext"] == container(documents)["securityContext"]
    assert (only["securityContext"]["readOnlyRootFilesystem"], spec["securityContext"]["runAsUser"]) == (True, 65532)
    assert "volumes" not in spec
    assert only["image"] == container(documents)["image"]


def test_its_account_is_its_own_and_has_no_token() -> None:
    documents = render(on())
    spec = template(documents)["spec"]
    assert spec["serviceAccountName"] == "r-ibpulse-gateway"
    assert spec["automountServiceAccountToken"] is False
    assert named(documents, "ServiceAccount")["automountServiceAccountToken"] is False
    assert not {each["kind"] for each in documents} & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}


def test_the_constraint_of_openshift_for_the_nodes_is_not_for_the_gateway() -> None:
    documents = render(merged(on(), {"openshift": {"securityContextConstraints": True}}))
    assert one(documents, "SecurityContextConstraints")["users"] == ["system:serviceaccount:monitoring:r-ibpulse"]
    # the default constraint assigns user and groups, and refuses pods that choose them
    context = template(documents)["spec"]["securityContext"]
    assert context["runAsNonRoot"] is True
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(context)


@pytest.mark.parametrize("name", ["ibpulse", "x" * 63])
def test_nothing_that_selects_the_daemons_selects_the_gateway_and_the_other_way_round(name: str) -> None:
    values = {"podMonitor": {"enabled": True}, "nameOverride": name}
    documents = render(merged(values, on(serviceMonitor={"enabled": True}, replicas=2)))
    daemon = one(documents, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    pod = template(documents)["metadata"]["labels"]
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


def test_it_finds_the_pods_by_their_service() -> None:
    documents = render(on())
    service = named(documents, "Service", "r-ibpulse")
    (port,) = service["spec"]["ports"]
    assert flags(documents, "nodes.sources") == [f"dns+http://r-ibpulse.monitoring.svc:{port['port']}"]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)


def test_pods_with_tls_are_asked_with_tls_and_given_sources_take_their_place() -> None:
    secure = merged(on(), {"webConfig": {"existingSecret": "web", "tls": True}, "port": 9000})
    assert flags(render(secure), "nodes.sources") == ["dns+https://r-ibpulse.monitoring.svc:9000"]
    given = ["/etc/lists/a.yml", "dns+http://b:1"]
    documents = render(merged(on(sources=given), {"service": {"enabled": False}}))
    assert flags(documents, "nodes.sources") == given


def test_it_reaches_the_port_of_the_daemons_and_dns_and_nothing_else() -> None:
    policy = named(render(on()), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"ports": [{"port": "web", "protocol": "TCP"}]}]
    daemons = {"app.kubernetes.io/name": "ibpulse", "app.kubernetes.io/instance": "r"}
    assert policy["egress"] == [
        {
            "ports": [{"port": 10055, "protocol": "TCP"}],
            "to": [{"podSelector": {"matchLabels": daemons}}],
        },
        {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
    ]


def test_the_policies_take_further_peers_and_the_daemons_always_let_the_gateway_in() -> None:
    peer = {"namespaceSelector": {"matchLabels": {"a": "b"}}}
    outside = {"ports": [{"port": 443, "protocol": "TCP"}]}
    policies = {"from": [peer], "egress": [outside]}
    documents = render(merged(on(networkPolicy=policies), {"networkPolicy": {"from": [peer]}}))
    own = named(documents, "NetworkPolicy")["spec"]
    assert (own["ingress"][0]["from"], own["egress"][2:]) == ([peer], [outside])
    pod = named(documents, "Deployment")["spec"]["selector"]
    theirs = named(documents, "NetworkPolicy", "r-ibpulse")["spec"]["ingress"][0]
    tester = theirs["from"][1]
    assert theirs["from"] == [peer, tester, {"podSelector": pod}]
    asking = one(documents, "Pod")["metadata"]["labels"]
    assert tester["podSelector"]["matchLabels"].items() <= asking.items()
    # without the list everyone may come, also the gateway
    assert "from" not in named(render(on()), "NetworkPolicy", "r-ibpulse")["spec"]["ingress"][0]
    alone = {"networkPolicy": {"from": [peer]}, "helmTest": {"enabled": False}}
    assert one(render(alone), "NetworkPolicy")["spec"]["ingress"][0]["from"] == [peer]


def test_probes_ask_whether_it_serves_and_whether_a_source_has_answered() -> None:
    def paths(values: Document) -> list[Any]:
        only = gateway(render(values))
        probes = [only[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert all({"port": "web"}.items() <= probe.get("httpGet", probe.get("tcpSocket")).items() for probe in probes)
        return [(probe["httpGet"]["scheme"], probe["httpGet"]["path"]) for probe in probes if "httpGet" in probe]

    assert paths(on()) == [("HTTP", "/-/healthy"), ("HTTP", "/-/healthy"), ("HTTP", "/-/ready")]
    web = {"existingSecret": "web", "tls": True}
    assert [scheme for scheme, _ in paths(on(webConfig=web))] == ["HTTPS"] * 3
    assert paths(on(webConfig={**web, "requiresClientCertificate": True})) == []


def test_several_have_a_disruption_budget_and_prefer_different_nodes() -> None:
    alone, several = render(on()), render(on(replicas=3))
    assert "PodDisruptionBudget" not in {each["kind"] for each in alone}
    assert "affinity" not in template(alone)["spec"]
    assert one(several, "Deployment")["spec"]["replicas"] == 3
    selector = one(several, "Deployment")["spec"]["selector"]
    assert one(several, "PodDisruptionBudget")["spec"] == {"maxUnavailable": 1, "selector": selector}
    apart = template(several)["spec"]["affinity"]["podAntiAffinity"]
    (preferred,) = apart["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"] == {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    own = {"podAntiAffinity": {}, "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    assert "podAntiAffinity" in template(render(on(replicas=2, affinity=own)))["spec"]["affinity"]


def test_both_its_files_come_from_secrets_with_their_certificates() -> None:
    documents = render(PROTECTED)
    volumes = {each["name"]: each["secret"] for each in template(documents)["spec"]["volumes"]}
    assert {name: volume["secretName"] for name, volume in volumes.items()} == {
        "web": "r-ibpulse-gateway-web",
        "tls": "ibpulse-gateway-tls",
        "nodes": "r-ibpulse-gateway-nodes",
        "nodes-tls": "ibpulse-authority",
    }
    assert {volume["defaultMode"] for volume in volumes.values()} == {0o440}
    mounts = {each["name"]: each["mountPath"] for each in gateway(documents)["volumeMounts"] if each["readOnly"]}
    assert flags(documents, "web.config.file") == [f"{mounts['web']}/web.yml"]
    assert flags(documents, "nodes.config.file") == [f"{mounts['nodes']}/nodes.yml"]
    assert (mounts["tls"], mounts["nodes-tls"]) == ("/etc/ibpulse/tls", "/etc/ibpulse/nodes-tls")
    content = PROTECTED["gateway"]["nodeConfig"]["content"]
    assert yaml.safe_load(named(documents, "Secret", "r-ibpulse-gateway-nodes")["stringData"]["nodes.yml"]) == content


def test_no_password_is_outside_of_the_secrets() -> None:
    values = merged(PROTECTED, {"gateway": {"nodeConfig": {"content": {"basic_auth": {"password": "hush-hush"}}}}})
    others = [each for each in render(values) if each["kind"] != "Secret"]
    assert "hush-hush" not in yaml.safe_dump(others)
    assert "$2b$" not in yaml.safe_dump(others)


def test_a_changed_web_configuration_restarts_it_only_if_it_shall() -> None:
    def annotations(users: Document, restart: bool) -> Document:
        web = {"content": {"http_server_config": {}, "basic_auth_users": users}, "restartOnChange": restart}
        return template(render(on(webConfig=web)))["metadata"].get("annotations", {})

    assert annotations({}, True) != annotations({"a": HASH}, True)
    assert annotations({}, False) == annotations({"a": HASH}, False)


def test_its_monitor_names_the_job_after_it() -> None:
    documents = render(PROTECTED)
    monitor = one(documents, "ServiceMonitor")["spec"]
    labels = named(documents, "Service")["metadata"]["labels"]
    assert (labels[monitor["jobLabel"]], monitor["endpoints"][0]["port"]) == ("ibpulse-gateway", "web")
    assert monitor["endpoints"][0]["scheme"] == "https"
    assert {"tlsConfig", "basicAuth"} <= set(monitor["endpoints"][0])


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_the_program_takes_the_command_line_and_the_files_of_each_case(case: Path, tmp_path: Path) -> None:
    documents = render(merged(case_values(case), on()))
    verb, *words = gateway(documents)["args"]
    parsed = parse(VERBS[verb], words)
    assert parsed.faults == ()
    assert [parse_source(source).name for source in parsed.flags["nodes.sources"]]
    for document in documents:
        for name, text in document.get("stringData", {}).items():
            (tmp_path / name).write_text(text)
            if name == "nodes.yml":
                read_node_config(tmp_path / name)


def test_everything_that_can_be_added_is_there() -> None:
    documents = render(case_values(CHART / "ci" / "everything-values.yaml"))
    spec, only = template(documents)["spec"], gateway(documents)
    service = named(documents, "Service", "r-fabric-gateway")
    assert service["spec"]["type"] == "NodePort"
    assert (service["spec"]["ports"][0]["port"], only["ports"][0]["containerPort"]) == (8080, 8080)
    assert only["args"][-1] == "--log.level=debug"
    assert {"name": "lists", "mountPath": "/etc/lists", "readOnly": True} in only["volumeMounts"]
    assert {"name": "lists", "configMap": {"name": "node-lists"}} in spec["volumes"]
    assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("shared", "high")
    assert (set(spec["affinity"]), spec["tolerations"]) == ({"nodeAffinity"}, [{"operator": "Exists"}])
    assert template(documents)["metadata"]["annotations"]["example.com/note"] == "gateway"
    assert template(documents)["metadata"]["labels"]["tier"] == "gateway"
    assert {"name": "registry"} in spec["imagePullSecrets"]


def test_long_names_stay_within_their_limit_and_keep_their_ending() -> None:
    documents = render(merged(PROTECTED, {"fullnameOverride": "x" * 63, "nameOverride": "y" * 63}))
    assert all(len(each["metadata"]["name"]) <= 63 for each in documents if each["kind"] != "PriorityClass")
    labels = template(documents)["metadata"]["labels"]
    assert all(len(value) <= 63 for value in labels.values())
    assert labels["app.kubernetes.io/name"].endswith("y-gateway")
