"""An alert of the rules that really fires: a node, its Prometheus and an Alertmanager."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.grafana.fleets import running_fleet
from tests.running import eventually

pytestmark = [
    pytest.mark.needs("prometheus", "alertmanager"),
    pytest.mark.timeout(600),
]


def test_alertmanager_has_the_alert_with_its_texts(tmp_path: Path) -> None:
    with running_fleet(tmp_path, {"moe": "moe"}) as fleet:
        instance = fleet.nodes["moe"].instance
        alert = eventually(lambda: fleet.servers.received("IBPulseSustainedMoESaturation", instance), 300.0, 1.0)[0]
    # the simulated fabric counts no waiting, marks or losses
    assert alert["labels"]["severity"] == "info"
    assert alert["annotations"]["description"].startswith(f"{instance} (")
    assert alert["annotations"]["runbook_url"].endswith("IBPulseSustainedMoESaturation.md")
