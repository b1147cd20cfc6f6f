"""Error counters on the page: names, order, and series present only while something is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from ibpulse.agent.aggregator import Snapshot
from ibpulse.agent.aggregator.snapshot import CounterTotal, PortCounters
from ibpulse.agent.metrics.page import render, rows_of
from ibpulse.agent.metrics.ports import DIAGNOSTIC_COUNTERS, STATE_ROWS
from ibpulse.agent.sysfs.error_counters import FACTS
from ibpulse.core.model import PortId
from tests.exposition.snapshots import node

STRANGE = CounterTotal("ibpulse_hw_sw_link_up_32_total", "SwLinkUp,32", 3, False)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return node(tmp_path_factory.mktemp("node"), 2)


def page(snapshot: Snapshot, *counters: PortCounters, accept: str = "") -> str:
    return render(replace(snapshot, counters=counters), CollectorRegistry(), accept)[0].decode()


def of_port(*totals: CounterTotal, device: str = "mlx5_0", stalled: float | None = None) -> PortCounters:
    return PortCounters(PortId(device, 1), totals, stalled)


def test_the_stalled_share_is_shown_where_it_is_known(snapshot: Snapshot) -> None:
    text = page(snapshot, of_port(stalled=0.25), of_port(device="mlx5_1"))
    lines = [line for line in text.splitlines() if line.startswith("ibpulse_port_transmit_stalled_ratio")]
    assert lines == ['ibpulse_port_transmit_stalled_ratio{device="mlx5_0",port="1"} 0.25']


def test_a_counter_without_a_row_gets_its_own_family(snapshot: Snapshot) -> None:
    text = page(snapshot, of_port(STRANGE))
    assert (
        "# HELP ibpulse_hw_sw_link_up_32_total Counter file SwLinkUp,32 of the port.\n"
        "# TYPE ibpulse_hw_sw_link_up_32_total counter\n"
        'ibpulse_hw_sw_link_up_32_total{device="mlx5_0",port="1"} 3\n'
    ) in text


def test_families_come_in_the_order_of_the_table_then_by_name(snapshot: Snapshot) -> None:
    rows = [CounterTotal(metric.name, "file", 1, False) for metric in reversed(DIAGNOSTIC_COUNTERS)]
    others = [CounterTotal(f"ibpulse_hw_{name}_total", name, 1, False) for name in ("b", "a")]
    found = [metric.name for metric in rows_of(replace(snapshot, counters=(of_port(*others), of_port(*rows))))]
    begin, end = found.index(DIAGNOSTIC_COUNTERS[0].name), found.index(STATE_ROWS[0].name)
    assert found[begin:end] == [
        *(metric.name for metric in DIAGNOSTIC_COUNTERS),
        *("ibpulse_hw_a_total", "ibpulse_hw_b_total"),
    ]


def test_the_page_names_every_diagnostic_counter_of_mlx5_and_what_it_means() -> None:
    text = (Path(__file__).parents[2] / "docs" / "counters.md").read_text()
    for metric in DIAGNOSTIC_COUNTERS:
        stem = metric.name.removeprefix("ibpulse_").removesuffix("_total")
        assert f"- `{metric.name}`: " in text
        files = {fact.file for fact in FACTS if fact.stem == stem}
        assert stem.startswith("hw_") or any(f"`{each}`" in text for each in (stem, *files)), stem
