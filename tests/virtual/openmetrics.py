"""Scrapes virtual nodes every 15 s, and writes all series with their times for a Prometheus that is asked later.

    series = Scrapes()
    series.follow(nodes, minutes=10)
    series.write(path)

and then `promtool tsdb create-blocks-from openmetrics PATH DATA`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.virtual.node import Node

INTERVAL_SECONDS = 15
JOB = "ibpulse"


@dataclass
class _Family:
    type: str
    lines: dict[str, list[str]] = field(default_factory=dict)
    """The samples of each series by its name and labels, or of each histogram by its labels."""


class Scrapes:
    """The series of one Prometheus; a node is the instance of its name."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def follow(self, nodes: Sequence[Node], scrapes: int) -> None:
        """Let time pass for nodes of one world, and scrape each of them so many times."""
        for _ in range(scrapes):
            nodes[0].run(INTERVAL_SECONDS)
            for node in nodes:
                self.scrape(node)

    def scrape(self, node: Node) -> None:
        """Add what a node says now, as of the time of the world."""
        at = f"{node.world.wall_ns / 1e9:.3f}"
        own = {"instance": node.name, "job": JOB}
        self._add("up", "gauge", "up", own, 1.0, at)
        for family in text_string_to_metric_families(node.ask("/metrics").text):
            for sample in family.samples:
                self._add(family.name, family.type, sample.name, {**sample.labels, **own}, sample.value, at)

    def _add(self, family: str, kind: str, name: str, labels: dict[str, str], value: float, at: str) -> None:
        pairs = {key: f'{key}="{_escape(labels[key])}"' for key in sorted(labels)}
        series = f"{name}{{{','.join(pairs.values())}}}"
        # the buckets of a scrape stay together
        group = str([pairs[key] for key in pairs if key != "le"]) if kind == "histogram" else series
        found = self._families.setdefault(family, _Family("unknown" if kind == "untyped" else kind))
        found.lines.setdefault(group, []).append(f"{series} {value!r} {at}\n")

    def write(self, path: Path) -> None:
        """Write all series in the format OpenMetrics."""
        with path.open("w") as file:
            for name, family in self._families.items():
                file.write(f"# TYPE {name} {family.type}\n")
                for lines in family.lines.values():
                    file.writelines(lines)
            file.write("# EOF\n")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
