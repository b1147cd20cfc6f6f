"""The rules on real servers with fabrics that break: each fault raises its alert and no other, and health none."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.grafana.fleets import JOB, JOB_NODE, Fleet, running_fleet
from tests.running import eventually

pytestmark = [
    pytest.mark.needs("prometheus", "alertmanager"),
    pytest.mark.timeout(1800),
]

FAULTS = {
    "slow-rail": ({"slow-rail": {"mlx5_1": 0.4}}, {"IBPulseRailSlow"}),
    "link-flap": (
        {"link-flap": ["mlx5_1"]},
        {"IBPulsePortDown", "IBPulseLinkDownInJob", "IBPulseLinkWentDown"},
    ),
    "vanish": ({"vanish": ["mlx5_1"]}, {"IBPulseRailMissing"}),
    "stuck": ({"stuck": ["mlx5_1"]}, {"IBPulseRailIdle"}),
    "refresh": ({"refresh": {"mlx5_1": 250}}, {"IBPulseCounterSourceDegraded"}),
    "einval": ({"einval": ["mlx5_1"]}, {"IBPulseReadsFailing"}),
    "reset": ({"reset": ["mlx5_1"]}, {"IBPulseCountersReset"}),
    JOB_NODE: ({"workload": "idle"}, {"IBPulseTrafficStalled"}),
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A healthy node for each fault."""
    # a step of 315 ms is found in samples of 10 ms, but not reliably in those of 50 ms
    intervals = dict.fromkeys(FAULTS, "50ms") | {JOB_NODE: "10ms"}
    with running_fleet(
        tmp_path_factory.mktemp("fleet"), {name: ("dense", interval) for name, interval in intervals.items()}
    ) as fleet:
        yield fleet


def test_each_fault_raises_its_alert_and_no_other(fleet: Fleet) -> None:
    stepped = f'count_over_time(job_id:ibpulse_step_period_seconds:median{{job_id="{JOB}"}}[2m]) > 20'
    eventually(lambda: fleet.servers.ask("query", query=stepped)["result"], 120.0, 1.0)
    assert fleet.fired(60) == {name: set() for name in FAULTS}
    began = time.monotonic()
    for name, (faults, _) in FAULTS.items():
        fleet.nodes[name].suffer(faults)
    for _ in range(3):
        # a reset happens each time the device is added to the list
        time.sleep(4.0)
        fleet.nodes["reset"].suffer({})
        time.sleep(2.0)
        fleet.nodes["reset"].suffer(FAULTS["reset"][0])
    wanted = {name: alerts for name, (_, alerts) in FAULTS.items()}

    def seen() -> dict[str, set[str]]:
        fired = fleet.fired(int(time.monotonic() - began) + 1)
        return {name: fired[name] for name in FAULTS}

    with contextlib.suppress(AssertionError):
        eventually(lambda: all(wanted[name] <= alerts for name, alerts in seen().items()), 150.0, 1.0)
    assert seen() == wanted
