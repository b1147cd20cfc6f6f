"""The numbers and the tables of docs/scale.md, counted again."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from ibpulse.agent.metrics.page import TABLE
from tests import ROOT
from tests.grafana.documents import asked_for, selectors
from tools.grafana import recording_rules
from tools.grafana.rule_files import ALERT_FILE, RECORDING_FILE, resolve, rule_files
from tools.grafana.rule_levels import Recording
from tools.grafana.series_names import labels_of, level_of

PAGE = (ROOT / "docs" / "scale.md").read_text()
PORTS = 8
MAX_PER_GROUP = 500_000
"""Series that a group may read at 4,000 nodes with 4 shards."""


def per_node(rule: Recording) -> int:
    """Series that a rule records for each node with 8 ports and one job; 0 for one about all nodes."""
    level = level_of(rule.record)
    return (PORTS if "port" in level else 1) if "instance" in level else 0


def recorded_per_node() -> dict[str, int]:
    return {name: sum(map(per_node, rules)) for name, rules in recording_rules.GROUPS.items()}


@pytest.mark.parametrize(
    ("line", "groups"),
    [
        ("recorded series", ("ibpulse-nodes", "ibpulse-days", "ibpulse-fleet", "ibpulse-boards")),
        ("recorded series of jobs, one per node", ("ibpulse-pace", "ibpulse-jobs")),
    ],
)
def test_the_recorded_series_are_counted_from_the_rules(line: str, groups: tuple[str, ...]) -> None:
    found = re.search(rf"\| {line} \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|", PAGE)
    assert found
    one, thousand, many = (int(text.replace(",", "")) for text in found.groups())
    assert one == sum(recorded_per_node()[name] for name in groups)
    assert (thousand, many) == (1000 * one, 4000 * one)


def read_per_node(expr: str) -> int:
    """Series of one node that an expression reads, each selector counted, with 8 ports and one job."""
    return sum(cardinality(name, selector) for selector in selectors(expr) for name in asked_for(selector))


def cardinality(name: str, selector: Any) -> int:
    if name.startswith("kube_") or name == "up":
        return 1
    labels = labels_of(name)
    if ":" in name and "instance" not in level_of(name):
        return 0
    pinned = {matcher.name for matcher in selector.matchers.matchers if str(matcher.op) == "MatchOp.Equal"}
    buckets = {f"{metric.name}_bucket": len(metric.buckets) + 1 for metric in TABLE if metric.buckets}
    count = PORTS if "device" in labels else 1
    count *= buckets.get(name, 1)
    # a counter is saturated rarely; windows are chosen
    return count * (5 if "signature" in labels and "signature" not in pinned else 1)


def groups(shards: int) -> dict[str, int]:
    """Series of one node that each group reads at an evaluation."""
    files = rule_files(resolve({"shards": str(shards)}))
    return {
        group["name"]: sum(read_per_node(rule["expr"]) for rule in group["rules"])
        for name in (RECORDING_FILE, ALERT_FILE)
        for group in yaml.safe_load(files[name])["groups"]
    }


def cost_table() -> str:
    """The table of what a group reads, as the page has it."""
    whole, parts = groups(1), groups(4)
    lines = ["| group | series read per node | 4,000 nodes | 4,000 nodes, 4 shards |", "|---|---|---|---|"]
    for name, count in whole.items():
        most = max(found for part, found in parts.items() if re.fullmatch(rf"{name}(-\d+)?", part))
        lines.append(f"| `{name}` | {count} | {4000 * count:,} | {4000 * most:,} |")
    return "\n".join(lines) + "\n"


def test_the_page_says_what_each_group_reads() -> None:
    assert cost_table() in PAGE, "docs/scale.md: the table of groups differs; it is:\n" + cost_table()


def test_no_group_reads_more_than_the_page_allows() -> None:
    assert max(groups(4).values()) * 4000 <= MAX_PER_GROUP
    assert f"{MAX_PER_GROUP:,}" in PAGE
