"""The rules over the series of simulated nodes: each fault raises its alerts and no other, and health none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.grafana.rule_engine import SCRAPE_SECONDS, Series, evaluate
from tests.grafana.rule_scenarios import rules
from tests.running import Metrics
from tests.virtual.node import Node
from tests.virtual.world import SECOND, START_NS, World

pytestmark = [
    pytest.mark.needs("promtool"),
    pytest.mark.timeout(1200),
]

JOB, JOB_NODE = "7", "idle-job"
IDLE_RAIL = {"idle-rail": ["mlx5_1"]}
# by node: the workload, the faults, and the alerts that they raise
FAULTS: Mapping[str, tuple[str, Mapping[str, object], set[str]]] = {
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
    "idle": ("idle", {}, set()),
    "moe": ("moe", {}, {"IBPulseSustainedMoESaturation"}),
    "moe-idle-rail": ("moe", IDLE_RAIL, {"IBPulseSustainedMoESaturation", "IBPulseRailIdle"}),
}
# by the name of the node, the names of cgroups in the scope of Slurm: those of 26.05, and one that is not known
CGROUPS = {"sluid-link-flap": ("s5K1KKYAYG5D00", "system"), "sluid-vanish": ("t5K1KKYAYG5D00", "system")}
# steps are found in samples of 10 ms, but not reliably in those of 50 ms
FAST = (JOB_NODE, "moe", "moe-idle-rail")
# a job has steps once ten minutes have one, and MoE saturation is sustained after 16
HEALTHY_MINUTES, MINUTES = 12, 26
PER_MINUTE = 60 // SCRAPE_SECONDS
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
    if name == JOB_NODE:
        owners = folder / "owners"
        owners.mkdir(mode=0o755)
        (owners / f"{JOB}.json").write_text(json.dumps({"id": JOB, "scheduler": "slurm"}))
        flags = (f"--jobs.owners-dir={owners}",)
    interval = "10ms" if name in FAST else "50ms"
    node = Node(folder / name, *flags, rails=4, workload=FAULTS[name][0], interval=interval, name=name, world=world)
    for cgroup in CGROUPS.get(name, ()):
        (node.tree / "fs/cgroup/system.slice/slurmstepd.scope" / cgroup).mkdir(parents=True)
    return node


def test_each_fault_raises_its_alerts_and_no_other(tmp_path: Path) -> None:
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
            # a reset happens each time the device is added to the list
            elif scrape in (HEALTHY_MINUTES * PER_MINUTE + again for again in (4, 8, 12)):
                by_name["reset"].fault({})
                by_name["reset"].fault(FAULTS["reset"][1])
    finally:
        for node in nodes:
            node.close()
        world.close()
    found: dict[str, set[str]] = {name: set() for name in FAULTS}
    early = set()
    for labels, seconds in evaluate(tmp_path, rules(), scraped.series(), MINUTES * 60).seconds.items():
        named = dict(labels)
        found.setdefault(named.get("instance", JOB_NODE if named.get("job_id") == JOB else ""), set()).add(
            named["alertname"]
        )
        early |= {named["alertname"]} if min(seconds) <= HEALTHY_MINUTES * 60 else set()
    assert found == {name: alerts for name, (_, _, alerts) in FAULTS.items()}
    assert early == set()
