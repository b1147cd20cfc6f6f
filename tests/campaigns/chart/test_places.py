"""What is at which place of the rendered objects: rights, volumes, probes, addresses, and what the values add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.campaigns.chart.rendering import CHART, ROOT, Document, case_values, needs_helm, render
from tests.tables import for_each

pytestmark = needs_helm

POD, GATEWAY = "DaemonSet spec template spec", "Deployment spec template spec"
MAIN, ONLY = f"{POD} containers ibpulse", f"{GATEWAY} containers 0"
TESTER = "Pod spec containers 0"
OWN = "NetworkPolicy:r-ibpulse-gateway spec"
PRESET = f"{POD} affinity nodeAffinity requiredDuringSchedulingIgnoredDuringExecution nodeSelectorTerms"
APART = f"{GATEWAY} affinity podAntiAffinity preferredDuringSchedulingIgnoredDuringExecution 0 podAffinityTerm"
ON = {"gateway": {"enabled": True}}
WEB = {"existingSecret": "web", "tls": True}
STRICT = {**WEB, "requiresClientCertificate": True}
CONTENT = {"tls_server_config": {"cert_file": "/etc/ibpulse/tls/tls.crt", "key_file": "/etc/ibpulse/tls/tls.key"}}
STRICT_CONTENT = {
    "tls_server_config": {
        **CONTENT["tls_server_config"],
        "client_ca_file": "ca.crt",
        "client_auth_type": "RequireAndVerifyClientCert",
    }
}
PEER = {"namespaceSelector": {"matchLabels": {"a": "b"}}}
OUTSIDE = {"ports": [{"port": 443, "protocol": "TCP"}]}
DNS = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
DAEMONS = {"app.kubernetes.io/name": "ibpulse", "app.kubernetes.io/instance": "r"}
ACCOUNT = ["system:serviceaccount:monitoring:r-ibpulse"]
EVERYTHING, PROTECTED = (case_values(CHART / f"ci/{name}-values.yaml") for name in ("everything", "gateway"))
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
}


def probes(place: str, port: str, asked: tuple[str, str, str] | None, scheme: str = "HTTP") -> Document:
    """The three probes: startup, liveness and readiness; without paths they only look whether the port is open."""
    names = ("startupProbe", "livenessProbe", "readinessProbe")
    if asked is None:
        return {f"{place} {name} tcpSocket": {"port": port} for name in names}
    paths = zip(names, asked, strict=True)
    return {f"{place} {name} httpGet": {"path": path, "port": port, "scheme": scheme} for name, path in paths}


PATHS = ("/-/healthy", "/-/healthy", "/-/ready")
CASES: dict[str, tuple[Document, Document]] = {
    "the pods have no privilege, and of the node only sysfs": (
        {},
        {
            f"{POD} securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "fsGroup": 65532,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            f"{MAIN} securityContext": RESTRICTED,
            f"{TESTER} securityContext": RESTRICTED,
            **{f"{POD} {name}": False for name in ("hostNetwork", "hostPID", "hostIPC", "enableServiceLinks")},
            f"{POD} automountServiceAccountToken": False,
            "ServiceAccount automountServiceAccountToken": False,
            "Role": None,
            "ClusterRole": None,
            f"{POD} volumes sysfs": {"name": "sysfs", "hostPath": {"path": "/sys", "type": "Directory"}},
            f"{MAIN} volumeMounts sysfs": {
                "name": "sysfs",
                "mountPath": "/host/sys",
                "readOnly": True,
                "recursiveReadOnly": "IfPossible",
            },
        },
    ),
    "volumes and memory are bounded, the processor is not": (
        {},
        {
            f"{MAIN} resources": {
                "requests": {"cpu": "50m", "memory": "128Mi"},
                "limits": {"memory": "192Mi"},
            },
            f"{POD} volumes ring emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"},
            f"{POD} volumes captures emptyDir": {"sizeLimit": "1Gi"},
        },
    ),
    "every node has a pod, which evicts nobody": (
        {},
        {
            f"{POD} nodeSelector": {"kubernetes.io/os": "linux"},
            f"{POD} affinity": None,
            # a taint that is not tolerated would leave an expensive node without an exporter
            f"{POD} tolerations": [{"operator": "Exists"}],
            f"{POD} priorityClassName": "monitoring-r-ibpulse",
            "PriorityClass metadata name": "monitoring-r-ibpulse",
            "PriorityClass value": 1_000_000,
            "PriorityClass preemptionPolicy": "Never",
            "PriorityClass globalDefault": None,
            # a new version of the chart alone restarts no pod
            "DaemonSet spec template metadata labels helm.sh/chart": None,
        },
    ),
    "the priority can be one's own": (
        {"priorityClassName": "mine"},
        {f"{POD} priorityClassName": "mine", "PriorityClass": None},
    ),
    "the priority can be none": (
        {"priorityClass": {"create": False}},
        {f"{POD} priorityClassName": None, "PriorityClass": None},
    ),
    "only the port of the metrics is open, and nothing goes out": (
        {},
        {
            "NetworkPolicy spec policyTypes": ["Ingress", "Egress"],
            "NetworkPolicy spec ingress": [{"ports": [{"port": "metrics", "protocol": "TCP"}]}],
            "NetworkPolicy spec egress": [],
            "Service spec clusterIP": "None",
            "Service spec ports": [{"name": "metrics", "port": 10055, "targetPort": "metrics", "protocol": "TCP"}],
            f"{MAIN} ports metrics containerPort": 10055,
            **probes(MAIN, "metrics", PATHS),
        },
    ),
    "real-time scheduling needs root with one capability": (
        {"fifo": {"enabled": True}},
        {
            f"{MAIN} securityContext capabilities": {"drop": ["ALL"], "add": ["SYS_NICE"]},
            f"{MAIN} securityContext runAsUser": 0,
            f"{MAIN} securityContext allowPrivilegeEscalation": False,
        },
    ),
    "captures of nodes that share a claim are in a directory of each node": (
        {"captures": {"volume": "existingClaim", "existingClaim": "shared"}},
        {f"{MAIN} env IBPULSE_CAPTURE__DIR value": "/var/lib/ibpulse/captures/$(NODE_NAME)"},
    ),
    "captures have the name of the node": ({}, {f"{MAIN} env IBPULSE_CAPTURE__NODE value": "$(NODE_NAME)"}),
    "captures have the name in the settings": (
        {"config": {"capture": {"node": ["a"]}}},
        {f"{MAIN} env IBPULSE_CAPTURE__NODE": None},
    ),
    "a preset asks for any of its alternatives": (
        {"nodePreset": "nfd-rdma"},
        {
            f"{PRESET} {number} matchExpressions 0 key": f"feature.node.kubernetes.io/{name}rdma.capable"
            for number, name in enumerate(("", "custom-"))
        },
    ),
    "the constraint of OpenShift is for one account and allows host paths": (
        {"openshift": {"securityContextConstraints": True}, **ON},
        {
            "SecurityContextConstraints users": ACCOUNT,
            "SecurityContextConstraints allowHostDirVolumePlugin": True,
            "SecurityContextConstraints allowPrivilegedContainer": False,
            "SecurityContextConstraints allowHostNetwork": False,
            "SecurityContextConstraints runAsUser": {"type": "MustRunAsNonRoot"},
            "SecurityContextConstraints requiredDropCapabilities": ["ALL"],
            # the default constraint assigns user and groups, and refuses pods that choose them
            f"{GATEWAY} securityContext runAsNonRoot": True,
            f"{GATEWAY} securityContext runAsUser": None,
            f"{GATEWAY} securityContext fsGroup": None,
        },
    ),
    "with TLS the probes speak it": (
        {"webConfig": WEB, "gateway": {"enabled": True, "webConfig": WEB}, "podMonitor": {"enabled": True}},
        {
            "PodMonitor spec podMetricsEndpoints 0 scheme": "https",
            **probes(MAIN, "metrics", PATHS, "HTTPS"),
            **probes(ONLY, "web", PATHS, "HTTPS"),
        },
    ),
    "where everybody needs a certificate the probes look whether the port is open": (
        {"webConfig": STRICT, "gateway": {"enabled": True, "webConfig": STRICT}},
        {**probes(MAIN, "metrics", None), **probes(ONLY, "web", None), f"{TESTER} args 3": "--only-connect"},
    ),
    "the same is seen in the content": (
        {"webConfig": {"content": STRICT_CONTENT}},
        probes(MAIN, "metrics", None),
    ),
    "a web configuration becomes a Secret that the program reads": (
        {"webConfig": {"content": CONTENT, "tlsSecret": "ibpulse-tls"}},
        {
            f"{POD} volumes web secret": {"secretName": "r-ibpulse-web", "defaultMode": 0o440},
            f"{POD} volumes tls secret": {"secretName": "ibpulse-tls", "defaultMode": 0o440},
            f"{MAIN} volumeMounts web": {"name": "web", "mountPath": "/etc/ibpulse/web", "readOnly": True},
            f"{MAIN} volumeMounts tls": {"name": "tls", "mountPath": "/etc/ibpulse/tls", "readOnly": True},
        },
    ),
    "a Secret of somebody else is used as it is": (
        {"webConfig": {"existingSecret": "web"}},
        {f"{POD} volumes web secret secretName": "web", "Secret": None},
    ),
    "the gateway has no right, and nothing of the node": (
        ON,
        {
            f"{ONLY} securityContext": RESTRICTED,
            f"{GATEWAY} securityContext runAsUser": 65532,
            f"{GATEWAY} securityContext seccompProfile": {"type": "RuntimeDefault"},
            f"{GATEWAY} volumes": None,
            f"{GATEWAY} serviceAccountName": "r-ibpulse-gateway",
            f"{GATEWAY} automountServiceAccountToken": False,
            "ServiceAccount:r-ibpulse-gateway automountServiceAccountToken": False,
            "Role": None,
            "ClusterRole": None,
        },
    ),
    "the gateway finds the pods by their Service, and reaches only them and DNS": (
        ON,
        {
            f"{ONLY} args 2": "--nodes.sources=dns+http://r-ibpulse.monitoring.svc:10055",
            "Service:r-ibpulse spec publishNotReadyAddresses": True,
            f"{OWN} policyTypes": ["Ingress", "Egress"],
            f"{OWN} ingress": [{"ports": [{"port": "web", "protocol": "TCP"}]}],
            f"{OWN} egress": [
                {
                    "ports": [{"port": 10055, "protocol": "TCP"}],
                    "to": [{"podSelector": {"matchLabels": DAEMONS}}],
                },
                DNS,
            ],
            "NetworkPolicy:r-ibpulse spec ingress 0 from": None,
            **probes(ONLY, "web", PATHS),
            "PodDisruptionBudget": None,
            f"{GATEWAY} affinity": None,
        },
    ),
    "pods with TLS are asked with TLS": (
        {**ON, "webConfig": WEB, "port": 9000},
        {f"{ONLY} args 2": "--nodes.sources=dns+https://r-ibpulse.monitoring.svc:9000"},
    ),
    "given sources replace the Service": (
        {
            "gateway": {"enabled": True, "sources": ["/etc/lists/a.yml", "dns+http://b:1"]},
            "service": {"enabled": False},
        },
        {f"{ONLY} args 2": "--nodes.sources=/etc/lists/a.yml", f"{ONLY} args 3": "--nodes.sources=dns+http://b:1"},
    ),
    "the policies take further peers": (
        {
            "gateway": {"enabled": True, "networkPolicy": {"from": [PEER], "egress": [OUTSIDE]}},
            "networkPolicy": {"from": [PEER]},
            "helmTest": {"enabled": False},
        },
        {
            f"{OWN} ingress 0 from": [PEER],
            f"{OWN} egress 2": OUTSIDE,
            "NetworkPolicy:r-ibpulse spec ingress 0 from 0": PEER,
        },
    ),
    "several gateways prefer different nodes": (
        {"gateway": {"enabled": True, "replicas": 3}},
        {
            "Deployment spec replicas": 3,
            "PodDisruptionBudget spec maxUnavailable": 1,
            f"{APART} topologyKey": "kubernetes.io/hostname",
        },
    ),
    "both files of a protected gateway come from Secrets": (
        PROTECTED,
        {
            **{
                f"{GATEWAY} volumes {volume} secret": {"secretName": secret, "defaultMode": 0o440}
                for volume, secret in {
                    "web": "r-ibpulse-gateway-web",
                    "tls": "ibpulse-gateway-tls",
                    "nodes": "r-ibpulse-gateway-nodes",
                    "nodes-tls": "ibpulse-authority",
                }.items()
            },
            f"{ONLY} volumeMounts nodes-tls mountPath": "/etc/ibpulse/nodes-tls",
            "ServiceMonitor spec endpoints 0 scheme": "https",
            "ServiceMonitor spec endpoints 0 port": "web",
        },
    ),
    "everything that can be added is there": (
        EVERYTHING,
        {
            f"{MAIN} image": "registry.example.com/mirror/ibpulse@sha256:"
            + EVERYTHING["image"]["digest"].removeprefix("sha256:"),
            f"{MAIN} env TZ value": "UTC",
            f"{POD} imagePullSecrets 0": {"name": "registry"},
            f"{POD} imagePullSecrets 1": {"name": "other"},
            f"{POD} serviceAccountName": "shared",
            f"{POD} containers 1 args": ["--of=r"],
            f"{POD} initContainers 0 name": "before",
            f"{MAIN} volumeMounts scratch": {"name": "scratch", "mountPath": "/scratch"},
            f"{POD} volumes scratch": {"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}},
            "DaemonSet spec template metadata annotations example.com/note": "pod",
            "DaemonSet metadata labels team": "fabric",
            "Service:r-fabric-gateway spec type": "NodePort",
            "Service:r-fabric-gateway spec ports 0 port": 8080,
            f"{ONLY} ports 0 containerPort": 8080,
            f"{ONLY} volumeMounts lists": {"name": "lists", "mountPath": "/etc/lists", "readOnly": True},
            f"{GATEWAY} volumes lists": {"name": "lists", "configMap": {"name": "node-lists"}},
            f"{GATEWAY} serviceAccountName": "shared",
            f"{GATEWAY} priorityClassName": "high",
            f"{GATEWAY} tolerations": [{"operator": "Exists"}],
            "Deployment spec template metadata annotations example.com/note": "gateway",
            "Deployment spec template metadata labels tier": "gateway",
        },
    ),
    "common labels do not change what the pods are found by": (
        {"commonLabels": {"app.kubernetes.io/name": "other"}, "podLabels": {"a": "b"}},
        {
            "DaemonSet spec template metadata labels a": "b",
            "DaemonSet spec template metadata labels app.kubernetes.io/name": "ibpulse",
            "DaemonSet spec selector matchLabels app.kubernetes.io/name": "ibpulse",
            "Service spec selector app.kubernetes.io/name": "ibpulse",
            "NetworkPolicy spec podSelector matchLabels app.kubernetes.io/name": "ibpulse",
        },
    ),
}


def at(documents: Sequence[Document], place: str) -> Any:
    """The value at a place: a kind, with a name if there are several, and keys; members of lists by name or number."""
    kind, *keys = place.split()
    kind, _, wanted = kind.partition(":")
    found: Any = [each for each in documents if each["kind"] == kind and wanted in ("", each["metadata"]["name"])]
    if not found:
        return None
    if not wanted and len(found) > 1:
        found = [each for each in found if "gateway" not in each["metadata"]["name"]]
    (found,) = found
    for key in keys:
        if isinstance(found, list):
            named = {each["name"]: each for each in found if isinstance(each, dict) and "name" in each}
            found = found[int(key)] if key.isdecimal() else named.get(key)
        else:
            found = found.get(key)
        if found is None:
            return None
    return found


@for_each(CASES)
def test_values_are_at_their_places(values: Document, expected: Document) -> None:
    documents = render(values)
    assert {place: at(documents, place) for place in expected} == expected


def test_the_tests_and_the_gateway_run_the_image_of_the_daemon() -> None:
    documents = render(ON)
    assert len({at(documents, f"{place} image") for place in (MAIN, ONLY, TESTER)}) == 1
    assert at(documents, f"{TESTER} args 0").strip() == (ROOT / "helm/ibpulse/files/ask.py").read_text().strip()
