"""The rules on real servers with healthy fabrics: those with sustained MoE saturation fire, and no others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.grafana.fleets import Fleet, running_fleet
from tests.running import eventually

pytestmark = [
    pytest.mark.needs("prometheus", "alertmanager"),
    pytest.mark.timeout(1800),
]

QUIET_SECONDS = int(os.environ.get("QUIET_SECONDS", "20"))
"""How long the healthy nodes must stay silent; the full quarter of an hour is for a manual run."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Nodes as in a fleet, of which one has an idle rail."""
    plans = {"dense": "dense", "moe": "moe", "moe-idle-rail": "moe", "idle": "idle"}
    with running_fleet(
        tmp_path_factory.mktemp("fleet"), {name: (workload, "10ms") for name, workload in plans.items()}
    ) as fleet:
        fleet.nodes["moe-idle-rail"].suffer({"idle-rail": ["mlx5_1"]})
        yield fleet


def test_sustained_moe_saturation_fires_for_moe_and_for_nobody_else(fleet: Fleet) -> None:
    wanted = {"dense": set(), "moe": {"IBPulseSustainedMoESaturation"}, "idle": set()}
    eventually(lambda: "IBPulseSustainedMoESaturation" in fleet.fired(5)["moe"], 120.0, 1.0)
    eventually(lambda: "IBPulseRailIdle" in fleet.fired(5)["moe-idle-rail"], 60.0, 1.0)
    eventually(lambda: "IBPulseSustainedMoESaturation" in fleet.fired(5)["moe-idle-rail"], 120.0, 1.0)
    time.sleep(QUIET_SECONDS)
    fired = fleet.fired(QUIET_SECONDS)
    assert {name: fired[name] for name in wanted} == wanted
    assert fired["moe-idle-rail"] == {"IBPulseSustainedMoESaturation", "IBPulseRailIdle"}


def test_alertmanager_has_the_alert_with_its_texts(fleet: Fleet) -> None:
    instance = fleet.nodes["moe"].instance
    # on a busy machine the alert may end and begin again
    alert = eventually(lambda: fleet.servers.received("IBPulseSustainedMoESaturation", instance), 60.0, 1.0)[0]
    # the simulated fabric counts no waiting, marks or losses
    assert alert["labels"]["severity"] == "info"
    assert alert["annotations"]["description"].startswith(f"{instance} (")
    assert alert["annotations"]["runbook_url"].endswith("IBPulseSustainedMoESaturation.md")
