"""Settings for nodes with a label: every node has one pod, with the settings that it should have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.campaigns.chart.rendering import Document, needs_helm, render

pytestmark = needs_helm

GPU = "nvidia.com/gpu.product"
PROFILES = [
    {"name": "h200", "label": GPU, "values": ["H200", "H200-NVL"], "config": {"sampler": {"interval": "5ms"}}},
    {"name": "lab", "label": "site", "values": ["lab"], "config": {"ports": {"expected-rails": 2}}},
]
NODES: dict[str, dict[str, str]] = {
    "plain": {},
    "other": {GPU: "B200", "site": "hall"},
    "h200": {GPU: "H200-NVL"},
    "lab": {"site": "lab"},
    "both": {GPU: "H200", "site": "lab"},
}
EXPECTED = {"plain": "r-ibpulse", "other": "r-ibpulse", "h200": "r-ibpulse-h200", "lab": "r-ibpulse-lab"}
EXPECTED["both"] = "r-ibpulse-h200"
PRESET = {"feature.node.kubernetes.io/rdma.capable": "true"}


def of_kind(documents: list[Document], kind: str) -> dict[str, Document]:
    return {each["metadata"]["name"]: each for each in documents if each["kind"] == kind}


def admits(daemon_set: Document, labels: Mapping[str, str]) -> bool:
    """Whether the required node affinity of the pods takes a node (core/v1, NodeSelector)."""
    affinity = daemon_set["spec"]["template"]["spec"].get("affinity", {})
    required = affinity.get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True

    def holds(expression: Mapping[str, Any]) -> bool:
        inside = labels.get(expression["key"]) in expression["values"]
        return inside if expression["operator"] == "In" else not inside

    return any(all(map(holds, term["matchExpressions"])) for term in required["nodeSelectorTerms"])


@pytest.mark.parametrize("preset", ["any", "nfd-rdma"])
def test_every_node_has_the_pod_of_the_first_profile_that_fits(preset: str) -> None:
    sets = of_kind(render({"profiles": PROFILES, "nodePreset": preset}), "DaemonSet")
    found = {
        node: [name for name, each in sets.items() if admits(each, labels | PRESET)] for node, labels in NODES.items()
    }
    assert found == {node: [name] for node, name in EXPECTED.items()}
    without = [name for name, each in sets.items() if admits(each, {GPU: "H200"})]
    assert without == (["r-ibpulse-h200"] if preset == "any" else [])


def test_ones_own_affinity_holds_in_every_profile() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b")]
    own = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    sets = of_kind(render({"profiles": PROFILES, "affinity": own}), "DaemonSet")
    assert [name for name, each in sets.items() if admits(each, {GPU: "H200"})] == []
    assert [name for name, each in sets.items() if admits(each, {GPU: "H200", "zone": "b"})] == ["r-ibpulse-h200"]


def test_a_profile_adds_its_settings_to_those_of_all() -> None:
    documents = render({"profiles": PROFILES, "config": {"sampler": {"history": "2m", "interval": "20ms"}}})
    maps, sets = of_kind(documents, "ConfigMap"), of_kind(documents, "DaemonSet")
    samplers = {name: yaml.safe_load(maps[name]["data"]["ibpulse.yaml"])["sampler"] for name in sets}
    assert samplers == {
        "r-ibpulse": {"history": "2m", "interval": "20ms"},
        "r-ibpulse-h200": {"history": "2m", "interval": "5ms"},
        "r-ibpulse-lab": {"history": "2m", "interval": "20ms"},
    }
    for name, each in sets.items():
        mounted = [
            volume["configMap"]["name"]
            for volume in each["spec"]["template"]["spec"]["volumes"]
            if "configMap" in volume
        ]
        assert mounted == [name]
    sums = {each["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for each in sets.values()}
    assert len(sums) == 3


def test_the_selector_of_the_other_nodes_is_that_of_0_1_and_those_of_profiles_are_theirs() -> None:
    sets = of_kind(render({"profiles": PROFILES}), "DaemonSet")
    common = {"app.kubernetes.io/name": "ibpulse", "app.kubernetes.io/instance": "r"}
    selectors = {name: each["spec"]["selector"]["matchLabels"] for name, each in sets.items()}
    assert selectors == {
        "r-ibpulse": common,
        "r-ibpulse-h200": common | {"ibpulse-profile": "h200"},
        "r-ibpulse-lab": common | {"ibpulse-profile": "lab"},
    }
    for name, each in sets.items():
        assert selectors[name].items() <= each["spec"]["template"]["metadata"]["labels"].items()
    assert "ibpulse-profile" not in sets["r-ibpulse"]["spec"]["template"]["metadata"]["labels"]
