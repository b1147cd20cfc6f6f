"""The table of metrics follows the conventions, and its page has every row."""

from __future__ import annotations

import re
from pathlib import Path

from ibpulse.agent.aggregator.snapshot import UTILIZATION_BUCKETS
from ibpulse.agent.metrics.page import SNAPSHOT_ROWS, TABLE, render
from ibpulse.core.metrics import web
from ibpulse.core.metrics.row import Metric
from ibpulse.core.metrics.text import process_registry
from tests.exposition.snapshots import SERVER, node, simulated
from tests.tables import for_each
from tools.reference.metric_pages import metrics_markdown

every_row = for_each({metric.name: metric for metric in TABLE})


@every_row
def test_names_follow_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"ibpulse_[a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.type == "counter")
    assert metric.name.endswith("_info") == (metric.type == "info")
    assert all(re.fullmatch(r"[a-z_]+", label) for label in metric.labels)


@every_row
def test_a_unit_is_the_end_of_the_family_name(metric: Metric) -> None:
    assert not metric.unit or metric.family.endswith(f"_{metric.unit}")
    assert metric.type != "info" or not metric.unit


@every_row
def test_help_is_a_sentence_that_needs_no_escaping(metric: Metric) -> None:
    assert metric.help.endswith(".")
    assert not set(metric.help) & set('\\\n"|{}')


def test_names_are_unique() -> None:
    assert len({metric.name for metric in TABLE} | {metric.family for metric in TABLE}) >= len(TABLE)
    assert len({metric.family for metric in TABLE}) == len(TABLE)


def test_histograms_have_at_most_24_increasing_buckets() -> None:
    assert len(UTILIZATION_BUCKETS) + 1 <= 24
    assert list(UTILIZATION_BUCKETS) == sorted(set(UTILIZATION_BUCKETS))


def listed() -> list[str]:
    """The metrics of the page: those with a line of their own, and those that share one."""
    lines = re.findall(r"(?m)^- `\w+` \(|^- As for transmit: .*|^`process_.*", metrics_markdown())
    return re.findall(r"`(\w+)`", "\n".join(lines))


def test_every_row_is_on_the_page_once() -> None:
    names = listed()
    assert [names.count(metric.name) for metric in TABLE] == [1] * len(TABLE)


def test_a_scrape_has_the_families_of_the_page_in_the_order_of_the_table(tmp_path: Path) -> None:
    body, _ = render(simulated(node(tmp_path, 1)), process_registry(), counts=SERVER)
    scraped = [line.split()[2] for line in body.decode().splitlines() if line.startswith("# TYPE")]
    of_the_process = [family.samples[0].name for family in process_registry().collect()]
    assert scraped == [*(row.name for row in SNAPSHOT_ROWS), *of_the_process, *(row.name for row in web.ROWS)]
    assert sorted(scraped) == sorted(name for name in listed() if not name.startswith("ibpulse_gateway_"))


def test_only_simulated_ports_say_so(tmp_path: Path) -> None:
    snapshot = node(tmp_path, 1)
    assert b"ibpulse_simulated" not in render(snapshot, process_registry())[0]
    assert b"\nibpulse_simulated 1" in render(simulated(snapshot), process_registry())[0]
