"""`python -m tests.campaigns.chart.on_api_server`: the chart in a real API server with 50 nodes, but no containers.

What one node can show is in tests/campaigns/cluster. Prints what was done, and ends with an exception at the first
thing that is not as it should be. See `api_server` for what it needs and how long the first run takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.campaigns.chart.api_server import Cluster, build, running_cluster
from tests.campaigns.chart.rendering import CASES, CHART
from tests.campaigns.chart.schemas import operator_directory
from tests.running import eventually

GPU = "nvidia.com/gpu.product"
EVICTED = {"key": "dedicated", "value": "research", "effect": "NoExecute"}
KINDS: dict[str, tuple[int, dict[str, str], list[dict[str, str]]]] = {
    "h200": (20, {GPU: "H200"}, [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]),
    "amd": (10, {}, [{"key": "amd.com/gpu", "value": "true", "effect": "NoSchedule"}]),
    "lab": (10, {"site": "lab"}, [EVICTED]),
    "cpu": (6, {}, []),
    "windows": (4, {"kubernetes.io/os": "windows"}, []),
}
"""How many nodes of each kind, their labels and their taints."""
LINUX = sum(count for name, (count, _, _) in KINDS.items() if name != "windows")
PROFILES = [
    {"name": "h200", "label": GPU, "values": ["H200"], "config": {"sampler": {"interval": "5ms"}}},
    {"name": "lab", "label": "site", "values": ["lab"], "config": {"ports": {"expected-rails": 2}}},
]
SPACE = "ibpulse"
# it needs a resource of OpenShift
ELSEWHERE = ("openshift-values.yaml",)


def main() -> int:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=Path, default=Path.home() / ".cache" / "ibpulse-kubernetes")
    programs = parser.parse_args().programs
    build(programs)
    with (
        tempfile.TemporaryDirectory(prefix="ibpulse-cluster-") as name,
        running_cluster(programs, Path(name)) as cluster,
    ):
        prepare(cluster)
        for path in CASES:
            if path.name not in ELSEWHERE:
                take_every_field(cluster, path)
        place_one_pod_on_every_node(cluster)
    return 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def prepare(cluster: Cluster) -> None:
    """Nodes, namespaces and the operator's resources."""
    directory = operator_directory()
    assert directory, "the Prometheus operator's Go module is missing; .ci/run loads it"
    cluster.kubectl("apply", "--server-side", f"--filename={directory}")
    for space in (SPACE, "monitoring", "grafana"):
        cluster.kubectl("create", "namespace", space)
    cluster.kubectl("label", "namespace", SPACE, "pod-security.kubernetes.io/enforce=privileged")
    nodes = {
        f"{kind}-{number}": (labels, taints)
        for kind, (count, labels, taints) in KINDS.items()
        for number in range(count)
    }
    cluster.add_nodes(nodes)
    eventually(lambda: sum(map(is_ready, items(cluster, "nodes"))) == len(nodes), 120, 1)
    say(f"{len(nodes)} nodes are ready")


def items(cluster: Cluster, kind: str, *more: str) -> list[dict[str, Any]]:
    """The objects of a kind."""
    found: Any = cluster.get(kind, *more)
    return list(found["items"])


def is_ready(each: dict[str, Any]) -> bool:
    """Whether a node or a pod is ready."""
    conditions = each.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def pods(cluster: Cluster) -> list[dict[str, Any]]:
    """The daemons that are there and not about to end."""
    found = items(cluster, "pods", f"--namespace={SPACE}", "--selector=app.kubernetes.io/component=metrics")
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


def wait_for_pods(cluster: Cluster, count: int) -> list[dict[str, Any]]:
    """Wait until all DaemonSets have so many pods together, all ready and of the newest revision."""

    def rolled_out() -> bool:
        sets = items(cluster, "daemonsets", f"--namespace={SPACE}")
        current = [
            each["status"]["updatedNumberScheduled"] if each["status"]["desiredNumberScheduled"] else 0
            for each in sets
            if each["status"].get("observedGeneration") == each["metadata"]["generation"]
            and each["status"].get("desiredNumberScheduled", 0) == each["status"].get("numberReady", 0)
            and each["status"].get("desiredNumberScheduled", 0) == each["status"].get("updatedNumberScheduled", 0)
        ]
        return len(current) == len(sets) and sum(current) == count

    eventually(rolled_out, 180, 1)
    found = pods(cluster)
    assert len(found) == count
    nodes = Counter(each["spec"]["nodeName"] for each in found)
    assert set(nodes.values()) <= {1}
    return found


def take_every_field(cluster: Cluster, path: Path) -> None:
    """The API server takes all objects of one of the files of ci/ under strict validation, and refuses a typo."""
    text = cluster.helm("template", "strict", str(CHART), f"--namespace={SPACE}", f"--values={path}").stdout
    strict = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-")
    cluster.kubectl(*strict, text=text)
    wrong = cluster.kubectl(*strict, text=text.replace("automountServiceAccountToken:", "automountToken:"), check=False)
    assert wrong.returncode != 0
    assert "unknown field" in wrong.stderr or "not declared in schema" in wrong.stderr, wrong.stderr
    say(f"{path.name}: strict validation takes all objects, and refuses a misspelt field")


def place_one_pod_on_every_node(cluster: Cluster) -> None:
    """With profiles, every Linux node has one pod of its own profile, whatever its taints."""
    values = json.dumps({"profiles": PROFILES})
    begin = time.monotonic()
    cluster.helm("install", "r", str(CHART), f"--namespace={SPACE}", f"--set-json=profiles={json.dumps(PROFILES)}")
    found = wait_for_pods(cluster, LINUX)
    seconds = time.monotonic() - begin
    owners = Counter(
        (each["spec"]["nodeName"].partition("-")[0], each["metadata"]["ownerReferences"][0]["name"]) for each in found
    )
    profile = {"h200": "r-ibpulse-h200", "lab": "r-ibpulse-lab"}
    expected = {(kind, profile.get(kind, "r-ibpulse")): KINDS[kind][0] for kind in KINDS if kind != "windows"}
    assert owners == expected, (owners, values)
    assert {each["spec"]["priority"] for each in found} == {1_000_000}
    assert {each["spec"]["preemptionPolicy"] for each in found} == {"Never"}
    say(f"{len(found)} pods on {LINUX} Linux nodes of {len(KINDS) - 1} kinds in {seconds:.0f} s, each of its profile")
    # a node that gets the label of a profile changes its pod
    cluster.kubectl("label", "node", "cpu-0", f"{GPU}=H200")
    eventually(lambda: owner_on(cluster, "cpu-0") == "r-ibpulse-h200", 120, 1)
    cluster.kubectl("label", "node", "cpu-0", f"{GPU}-")
    eventually(lambda: owner_on(cluster, "cpu-0") == "r-ibpulse", 120, 1)
    say("a node that gets a label of a profile gets its pod, and the other one back without it")


def owner_on(cluster: Cluster, node: str) -> str | None:
    """The DaemonSet of the only ready pod on a node."""
    found = [each for each in pods(cluster) if each["spec"].get("nodeName") == node and is_ready(each)]
    return found[0]["metadata"]["ownerReferences"][0]["name"] if len(found) == 1 else None


if __name__ == "__main__":
    sys.exit(main())
