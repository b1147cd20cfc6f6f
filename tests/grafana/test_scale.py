"""The numbers of docs/scale.md, counted again."""

from __future__ import annotations

import re
from pathlib import Path

from tools.grafana import recording_rules
from tools.grafana.series_names import level_of

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
SERIES_PER_NODE = 1100
SCRAPE_SECONDS = 15
BYTES_PER_SAMPLE = 1.5
HEAD_BYTES_PER_SERIES = 4000


def rows(first: str) -> list[list[float]]:
    """The numbers of every table row whose first cell matches."""
    found = re.findall(rf"^\| (?:{first}) \|.*$", PAGE, re.MULTILINE)
    return [[float(cell.replace(",", "").split()[0]) for cell in line.split("|")[1:-1]] for line in found]


def test_series_samples_storage_and_memory_follow_from_the_budget() -> None:
    table = rows(r"[\d,]+")
    assert [row[0] for row in table] == [100, 1000, 10_000]
    for nodes, series, rate, day_gb, fortnight_gb, head_gb in table:
        assert series == nodes * SERIES_PER_NODE
        assert rate == round(series / SCRAPE_SECONDS)
        bytes_per_day = series / SCRAPE_SECONDS * BYTES_PER_SAMPLE * 86_400
        assert day_gb == round(bytes_per_day / 1e9, 1 if nodes < 10_000 else 0)
        assert fortnight_gb == round(15 * bytes_per_day / 1e9)
        assert head_gb == round(series * HEAD_BYTES_PER_SERIES / 1e9, 1)


def test_the_recorded_series_per_node_are_counted_from_the_rules() -> None:
    line = re.search(r"\| recorded series \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|", PAGE)
    assert line
    per_node, thousand, ten_thousand = (int(text.replace(",", "")) for text in line.groups())
    assert per_node == len(recording_rules.NODES)
    assert (thousand, ten_thousand) == (1000 * per_node, 10_000 * per_node)


def test_the_recorded_series_of_jobs_are_counted_from_the_rules() -> None:
    levels = [level_of(rule.record) for rule in recording_rules.JOBS]
    of_nodes = [8 if "port" in level else 1 for level in levels if "instance" in level]
    line = re.search(r"\| recorded series of jobs, one per node \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|", PAGE)
    assert line
    per_node, thousand, ten_thousand = (int(text.replace(",", "")) for text in line.groups())
    assert per_node == sum(of_nodes)
    assert (thousand, ten_thousand) == (1000 * per_node, 10_000 * per_node)
    assert levels.count(["job_id"]) == 7
