"""The rules over the series of simulated nodes: each fault raises its alerts in time and no other, and health none."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from ibpulse.workbench.simulate.timeline import Workload
from ibpulse.workbench.simulate.workloads import make_workload
from tests.grafana.rule_engine import SCRAPE_SECONDS, Series, evaluate
from tests.grafana.rule_scenarios import rules
from tests.running import Metrics
from tests.virtual.node import Node
from tests.virtual.world import SECOND, START_NS, World

pytestmark = [
    pytest.mark.needs("promtool"),
    pytest.mark.timeout(1200),
]

JOB_NODE, LONGER, BEHIND = "idle-job", "longer-step", "behind-job"
JOBS = {JOB_NODE: "7", LONGER: "8", BEHIND: "9", **{f"peer-{number}": "9" for number in range(3)}}
IDLE_RAIL = {"idle-rail": ["mlx5_1"]}
# by node: the workload, the faults, and the alerts that they raise
FAULTS: Mapping[str, tuple[str | Workload, Mapping[str, object], set[str]]] = {
    "slow-rail": ("dense", {"slow-rail": {"mlx5_1": 0.4}}, {"IBPulseRailSlow"}),
    "link-flap": (
        "dense",
        {"link-flap": ["mlx5_1"]},
        # it does not come back
        {"IBPulseLinkDown"},
    ),
    "vanish": ("dense", {"vanish": ["mlx5_1"]}, {"IBPulseRailMissing"}),
    "stuck": ("dense", {"stuck": ["mlx5_1"]}, {"IBPulseRailIdle"}),
    "refresh": ("dense", {"refresh": {"mlx5_1": 250}}, {"IBPulseUnreliable"}),
    "einval": ("dense", {"einval": ["mlx5_1"]}, {"IBPulseUnreliable"}),
    "reset": ("dense", {"reset": ["mlx5_1"]}, set()),
    # Alertmanager shows the first of them only
    "trained-down": ("dense", {"trained-down": ["mlx5_1"]}, {"IBPulseRailTrainedDown", "IBPulseRailSlow"}),
    "sluid-link-flap": (
        "dense",
        {"link-flap": ["mlx5_1"]},
        {"IBPulseLinkDown"},
    ),
    "sluid-vanish": ("dense", {"vanish": ["mlx5_1"]}, {"IBPulseRailMissing"}),
    JOB_NODE: ("dense", {}, {"IBPulseTrafficStalled"}),
    LONGER: (make_workload("square", period_ns=SECOND), {}, {"IBPulseStepTimeRegressed"}),
    **{f"peer-{number}": ("dense", {}, set()) for number in range(3)},
    BEHIND: ("dense", {"slow-rail": {f"mlx5_{rail}": 0.7 for rail in range(2)}}, {"IBPulseNodeBehindItsJob"}),
    "idle": ("idle", {}, set()),
    "moe": ("moe", {}, {"IBPulseSustainedMoESaturation"}),
    "moe-idle-rail": ("moe", IDLE_RAIL, {"IBPulseSustainedMoESaturation", "IBPulseRailIdle"}),
}
# by the name of the node, the names of cgroups in the scope of Slurm: those of 26.05, and one that is not known
CGROUPS = {"sluid-link-flap": ("s5K1KKYAYG5D00", "system"), "sluid-vanish": ("t5K1KKYAYG5D00", "system")}
# steps are found in samples of 10 ms, but not reliably in those of 50 ms
FAST = (JOB_NODE, LONGER, "moe", "moe-idle-rail")
# a job has steps once ten minutes have one, and MoE saturation is sustained after 16
HEALTHY_MINUTES, MINUTES = 12, 26
PER_MINUTE = 60 // SCRAPE_SECONDS
# the reference of a step is known before the faults begin
YOUNG = {"step_recent": "5m", "step_known": "5"}
# from the fault to the alert: what kills a job, and what costs it speed
MAX_SECONDS = {
    **dict.fromkeys(("IBPulseLinkDown", "IBPulseRailMissing"), 60),
    **dict.fromkeys(("IBPulseStepTimeRegressed", "IBPulseNodeBehindItsJob"), 120),
    # a silence that begins like a pause
    "IBPulseTrafficStalled": 210,
    **dict.fromkeys(("IBPulseRailTrainedDown", "IBPulseRailIdle", "IBPulseRailSlow"), 120),
}
# when promtool's clock shows 0, at the first scrape
ZERO_SECONDS = START_NS / SECOND + SCRAPE_SECONDS


class Scraped:
    """The series that the rules read, a value for each scrape."""

    def __init__(self) -> None:
        text = json.dumps(rules())
        self._wanted = re.compile("|".join(sorted(set(re.findall(r"\bibpulse_\w+", text)))))
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], dict[int, float]] = {}
        self._count = 0

    def scrape(self, nodes: list[Node]) -> None:
        """Add what all nodes say now."""
        for node in nodes:
            lines = [line for line in node.ask("/metrics").text.splitlines(keepends=True) if self._wanted.match(line)]
            samples = Metrics.parse("".join(lines)).samples | {("up", frozenset()): 1.0}
            own = {("instance", node.name), ("node", node.name), ("job", "ibpulse")}
            for (name, labels), value in samples.items():
                since = ZERO_SECONDS if name.endswith("_timestamp_seconds") else 0.0
                self._values.setdefault((name, labels | own), {})[self._count] = value - since
        self._count += 1

    def series(self) -> list[Series]:
        return [
            Series(name, dict(labels), [values.get(number) for number in range(self._count)])
            for (name, labels), values in self._values.items()
        ]


def start(folder: Path, world: World, name: str) -> Node:
    flags: tuple[str, ...] = ()
    if name in JOBS:
        owners = folder / f"{name}-owners"
        owners.mkdir(mode=0o755)
        (owners / f"{JOBS[name]}.json").write_text(json.dumps({"id": JOBS[name], "scheduler": "slurm"}))
        flags = (f"--jobs.owners-dir={owners}",)
    interval, rails, workload = "10ms" if name in FAST else "50ms", 2 if name in JOBS else 4, FAULTS[name][0]
    node = Node(folder / name, *flags, rails=rails, workload=workload, interval=interval, name=name, world=world)
    for cgroup in CGROUPS.get(name, ()):
        (node.tree / "fs/cgroup/system.slice/slurmstepd.scope" / cgroup).mkdir(parents=True)
    return node


def test_each_fault_raises_its_alerts_in_time_and_no_other(tmp_path: Path) -> None:
    world, scraped = World(), Scraped()
    nodes = [start(tmp_path, world, name) for name in FAULTS]
    by_name = {node.name: node for node in nodes}
    try:
        for scrape in range(MINUTES * PER_MINUTE + 1):
            # for all of them
            nodes[0].run(SCRAPE_SECONDS)
            scraped.scrape(nodes)
            if scrape == HEALTHY_MINUTES * PER_MINUTE:
                for name, (_, faults, _) in FAULTS.items():
                    by_name[name].fault(faults)
                by_name[JOB_NODE].play("idle")
                by_name[LONGER].play(make_workload("square", period_ns=1.2 * SECOND))
            # a reset happens each time the device is added to the list
            elif scrape in (HEALTHY_MINUTES * PER_MINUTE + again for again in (4, 8, 12)):
                by_name["reset"].fault({})
                by_name["reset"].fault(FAULTS["reset"][1])
    finally:
        for node in nodes:
            node.close()
        world.close()
    found: dict[str, set[str]] = {name: set() for name in FAULTS}
    after: dict[str, int] = {}
    names = {job: name for name, job in JOBS.items() if not name.startswith("peer-")}
    for labels, seconds in evaluate(tmp_path, rules(**YOUNG), scraped.series(), MINUTES * 60).seconds.items():
        named = dict(labels)
        alert = named["alertname"]
        found.setdefault(named.get("instance") or names.get(named.get("job_id", ""), ""), set()).add(alert)
        first = min(seconds) - HEALTHY_MINUTES * 60
        assert first > 0, named
        after[alert] = max(after.get(alert, 0), first)
    assert found == {name: alerts for name, (_, _, alerts) in FAULTS.items()}
    print({name: f"{seconds} s" for name, seconds in sorted(after.items(), key=operator.itemgetter(1))})
    assert {name: after[name] for name, most in MAX_SECONDS.items() if after[name] > most} == {}
