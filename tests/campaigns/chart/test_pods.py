"""What the pods may do and what they are given: no privilege, no surprise."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from tests.campaigns.chart.podsecurity import broken
from tests.campaigns.chart.rendering import ROOT, case_values, container, needs_helm, one, pod, render, render_text

pytestmark = needs_helm

SYSFS_ONLY = {("baseline", "HostPath Volumes"), ("restricted", "Volume Types")}


def without_sysfs(spec: dict[str, Any]) -> dict[str, Any]:
    """The pod without the mount of the node's sysfs."""
    spec = copy.deepcopy(spec)
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] != "sysfs"]
    return spec


def test_the_container_has_no_privilege_and_the_pod_nothing_of_the_node_but_sysfs() -> None:
    spec, only = pod(render()), container(render())
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
    }
    assert (spec["hostNetwork"], spec["hostPID"], spec["hostIPC"]) == (False, False, False)
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert [volume for volume in spec["volumes"] if "hostPath" in volume] == [
        {"name": "sysfs", "hostPath": {"path": "/sys", "type": "Directory"}}
    ]
    (mount,) = [mount for mount in only["volumeMounts"] if mount["name"] == "sysfs"]
    assert mount == {
        "name": "sysfs", "mountPath": "/host/sys", "readOnly": True, "recursiveReadOnly": "IfPossible",
    }  # fmt: skip


def test_nothing_lets_the_pods_ask_the_api_server() -> None:
    text = render_text({"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}})
    assert not re.search(r"kind: (Cluster)?Role", text)
    assert one(render(), "ServiceAccount")["automountServiceAccountToken"] is False


def test_only_the_mount_of_sysfs_keeps_the_pod_from_the_level_restricted() -> None:
    assert broken(pod(render())) == SYSFS_ONLY
    assert broken(without_sysfs(pod(render()))) == set()


def test_every_other_pod_of_the_chart_keeps_the_level_restricted() -> None:
    assert broken(one(render(), "Pod")["spec"]) == set()


def test_real_time_scheduling_breaks_exactly_what_the_values_say_it_breaks() -> None:
    documents = render({"fifo": {"enabled": True}})
    context = container(documents)["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["SYS_NICE"]}
    assert (context["runAsUser"], context["allowPrivilegeEscalation"]) == (0, False)
    assert broken(without_sysfs(pod(documents))) == {
        ("baseline", "Capabilities"),
        ("restricted", "Capabilities"),
        ("restricted", "Running as Non-root"),
        ("restricted", "Running as Non-root user"),
    }


def test_there_is_a_request_and_a_memory_limit_and_no_limit_of_the_processor() -> None:
    assert container(render())["resources"] == {
        "requests": {"cpu": "50m", "memory": "128Mi"},
        "limits": {"memory": "192Mi"},
    }


def test_the_ring_is_in_memory_and_every_volume_is_bounded() -> None:
    volumes = {volume["name"]: volume for volume in pod(render())["volumes"]}
    assert volumes["ring"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Mi"}
    assert volumes["captures"]["emptyDir"] == {"sizeLimit": "1Gi"}
    assert set(volumes) == {"sysfs", "ring", "captures", "config"}


def test_captures_of_nodes_that_share_a_claim_go_to_a_directory_of_each_node() -> None:
    documents = render({"captures": {"volume": "existingClaim", "existingClaim": "shared"}})
    environment = {entry["name"]: entry.get("value") for entry in container(documents)["env"]}
    assert environment["IBPULSE_CAPTURE__DIR"] == "/var/lib/ibpulse/captures/$(NODE_NAME)"


def test_the_captures_are_told_the_name_of_the_node_unless_the_settings_have_one() -> None:
    assert {"name": "IBPULSE_CAPTURE__NODE", "value": "$(NODE_NAME)"} in container(render())["env"]
    named = render({"config": {"capture": {"node": ["a"]}}})
    assert [entry["name"] for entry in container(named)["env"]] == ["NODE_NAME"]


def test_the_node_is_never_chosen_by_a_label_that_may_be_missing() -> None:
    spec = pod(render())
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert "affinity" not in spec
    # a taint that is not tolerated would leave an expensive node without an exporter
    assert spec["tolerations"] == [{"operator": "Exists"}]


def test_a_preset_asks_for_any_of_its_alternatives_and_keeps_other_affinity() -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]
    key = "preferredDuringSchedulingIgnoredDuringExecution"
    documents = render({"nodePreset": "nfd-rdma", "affinity": {"nodeAffinity": {key: preferred}}})
    affinity = pod(documents)["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [[entry["key"] for entry in term["matchExpressions"]] for term in terms] == [
        ["feature.node.kubernetes.io/rdma.capable"],
        ["feature.node.kubernetes.io/custom-rdma.capable"],
    ]
    assert affinity[key] == preferred


def test_a_new_chart_version_alone_restarts_no_pod() -> None:
    template = one(render(), "DaemonSet")["spec"]["template"]
    assert "helm.sh/chart" not in template["metadata"]["labels"]
    assert "helm.sh/chart" not in one(render(), "DaemonSet")["spec"]["selector"]["matchLabels"]


def test_changed_settings_restart_the_pods_and_equal_ones_do_not() -> None:
    def checksum(**values: Any) -> str:
        metadata = one(render(values), "DaemonSet")["spec"]["template"]["metadata"]
        found: str = metadata["annotations"]["checksum/config"]
        return found

    assert checksum() == checksum(service={"enabled": False})
    assert checksum() != checksum(config={"sampler": {"interval": "20ms"}})


def test_the_openshift_constraint_allows_host_paths_to_the_one_account_and_nothing_else() -> None:
    found = one(render({"openshift": {"securityContextConstraints": True}}), "SecurityContextConstraints")
    allowed = {key for key, value in found.items() if key.startswith("allow") and value not in (False, [])}
    assert allowed == {"allowHostDirVolumePlugin"}
    assert found["users"] == ["system:serviceaccount:monitoring:r-ibpulse"]
    assert "namespace" not in found["metadata"]
    assert found["runAsUser"] == {"type": "MustRunAsNonRoot"}
    assert found["requiredDropCapabilities"] == ["ALL"]
    used = {key for volume in pod(render())["volumes"] for key in volume if key != "name"}
    assert used <= set(found["volumes"])


def test_everything_that_can_be_added_is_there() -> None:
    documents = render(case_values(ROOT / "helm" / "ibpulse" / "ci" / "everything-values.yaml"))
    daemon, spec, only = one(documents, "DaemonSet"), pod(documents), container(documents)
    assert only["image"].startswith("registry.example.com/mirror/ibpulse@sha256:e3b0c44")
    assert only["args"][-1] == "--log.level=debug"
    assert {"name": "TZ", "value": "UTC"} in only["env"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}, {"name": "other"}]
    assert spec["serviceAccountName"] == "shared"
    assert spec["containers"][1]["args"] == ["--of=r"]
    assert [entry["name"] for entry in spec["initContainers"]] == ["before"]
    assert {"name": "scratch", "mountPath": "/scratch"} in only["volumeMounts"]
    assert {"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}} in spec["volumes"]
    assert daemon["spec"]["template"]["metadata"]["annotations"]["example.com/note"] == "pod"
    assert all(
        document["metadata"]["labels"]["team"] == "fabric" for document in documents if "labels" in document["metadata"]
    )
    names = {document["metadata"]["name"] for document in documents if document["kind"] == "ConfigMap"}
    assert names == {"r-fabric", "r-extra", "r-fabric-text"}


def test_common_labels_do_not_change_what_the_pods_are_found_by() -> None:
    documents = render({"commonLabels": {"app.kubernetes.io/name": "other"}, "podLabels": {"a": "b"}})
    daemon = one(documents, "DaemonSet")
    labels = daemon["spec"]["template"]["metadata"]["labels"]
    assert labels["a"] == "b"
    selectors = [
        daemon["spec"]["selector"]["matchLabels"],
        one(documents, "Service")["spec"]["selector"],
        one(documents, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)


def test_long_names_stay_within_their_limit_and_keep_their_ending() -> None:
    documents = render({"fullnameOverride": "x" * 63, "webConfig": {"content": {"basic_auth_users": {}}}})
    # a class has no namespace, so it has that of the release in its name, which may have 253 characters
    longest = {"PriorityClass": 253}
    assert all(len(each["metadata"]["name"]) <= longest.get(each["kind"], 63) for each in documents)
    assert one(documents, "Secret")["metadata"]["name"].endswith("x-web")


def test_nothing_goes_out_and_only_the_metrics_port_is_open() -> None:
    policy = one(render(), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"ports": [{"port": "metrics", "protocol": "TCP"}]}]
    assert policy["egress"] == []


def test_the_pods_have_a_priority_that_evicts_nobody() -> None:
    documents = render()
    made = one(documents, "PriorityClass")
    assert pod(documents)["priorityClassName"] == made["metadata"]["name"] == "monitoring-r-ibpulse"
    assert (made["value"], made["preemptionPolicy"], made.get("globalDefault", False)) == (1_000_000, "Never", False)
    assert "namespace" not in made["metadata"]


@pytest.mark.parametrize(
    ("values", "name"), [({"priorityClassName": "mine"}, "mine"), ({"priorityClass": {"create": False}}, None)]
)
def test_the_priority_can_be_ones_own_or_none(values: dict[str, Any], name: str | None) -> None:
    documents = render(values)
    assert [each for each in documents if each["kind"] == "PriorityClass"] == []
    assert pod(documents).get("priorityClassName") == name
