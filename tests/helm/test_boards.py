"""Each board of dashboards/ becomes a ConfigMap that the sidecar of Grafana loads."""

from __future__ import annotations

import json

from tests.helm.rendering import CHART, ROOT, needs_helm, render

pytestmark = needs_helm

BOARDS = sorted((ROOT / "dashboards").glob("*.json"))
LARGEST_CONFIGMAP_BYTES = 1 << 20


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


def test_no_board_is_too_large_for_a_configmap() -> None:
    assert all(path.stat().st_size < LARGEST_CONFIGMAP_BYTES for path in BOARDS)


def test_the_chart_has_a_copy_of_every_board_because_helm_reads_nothing_outside_of_it() -> None:
    copies = {path.name: path.read_text() for path in (CHART / "files" / "dashboards").glob("*.json")}
    assert copies == {path.name: path.read_text() for path in BOARDS}
