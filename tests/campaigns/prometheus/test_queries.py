"""Runs every query of every panel on a Prometheus that has the series of two nodes, and what the rules record of them.

The queries through Infinity are tested in tests/virtual/test_gateway_data.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.grafana.documents import BOARDS, Target, fill, selectors, targets, variables
from tests.grafana.library import run_grafana
from tests.grafana.stored_fleet import END, NAMES, VALUES, StoredFleet, stored_fleet
from tests.tables import for_each

pytestmark = [
    pytest.mark.needs("prometheus", "promtool"),
    pytest.mark.timeout(600),
]

ROCE = "RoCE alone: the simulated ports are InfiniBand."
OTHER_DRIVER = "Another driver's counter: the simulated devices are mlx5."
NO_PROCESS = "A node in virtual time is no process of its own, and nothing scrapes it over a network."
# metrics whose queries may return nothing here
ABSENT = {
    "ALERTS": "Absent while no alert fires.",
    "ALERTS_FOR_STATE": "Absent while no alert fires.",
    "instance_job_id:ibpulse_stopped_early:seconds": "Absent while the job is not silent.",
    **dict.fromkeys(
        (
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "scrape_duration_seconds",
            "scrape_samples_scraped",
        ),
        NO_PROCESS,
    ),
    "ibpulse_device_interval_lengthened": "Absent while every device is sampled at the configured interval.",
    "ibpulse_np_ecn_marked_roce_packets_received_total": ROCE,
    "ibpulse_np_cnp_packets_sent_total": ROCE,
    "ibpulse_rp_cnp_packets_handled_total": ROCE,
    "ibpulse_rx_icrc_encapsulated_errors_total": ROCE,
    "ibpulse_roce_adp_retransmits_total": ROCE,
    "ibpulse_roce_slow_restart_used_total": ROCE,
    "ibpulse_port_carrier_changes_total": ROCE,
    "ibpulse_req_transport_retries_exceeded_total": "Of mlx5, only read with slow.counters=all.",
    "ibpulse_hw_retrans_segs_total": OTHER_DRIVER,
    "ibpulse_hw_rc_resend_total": OTHER_DRIVER,
    "instance_device_port:ibpulse_congested:bool": "No port waits for long, and none has notifications.",
    "ibpulse_hw_rx_drops_total": OTHER_DRIVER,
    "ibpulse_hw_retrans_pkts_total": OTHER_DRIVER,
    "ibpulse_hw_retrans_timeout_events_total": OTHER_DRIVER,
    "ibpulse_hw_unresponsive_remote_events_total": OTHER_DRIVER,
    "ibpulse_hw_tx_rdma_retx_pkts_total": OTHER_DRIVER,
    "ibpulse_hw_impaired_remote_conn_events_total": OTHER_DRIVER,
}


# panels that only show what is wrong
ONLY_WRONG = (
    "Which nodes have a fault?",
    "Can the numbers be trusted?",
    "How many samples are missing?",
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredFleet]:
    with stored_fleet(tmp_path_factory.mktemp("fleet")) as found:
        yield found


def reasons_to_be_empty(target: Target) -> list[str]:
    """The reason why the query may return nothing here."""
    found = [ABSENT[selector.name] for selector in selectors(target.expr) if selector.name in ABSENT]
    return [*found, *(["Nothing is wrong."] if target.panel["title"] in ONLY_WRONG else [])]


@for_each({str(target): target for target in targets()})
def test_every_query_brings_data(target: Target, fleet: StoredFleet) -> None:
    found = fleet.has_data(target.expr, target.body.get("instant", False))
    assert found or reasons_to_be_empty(target), fill(target.expr, VALUES)


def test_what_counts_as_absent_is_absent(fleet: StoredFleet) -> None:
    assert [name for name in ABSENT if fleet.has_data(name)] == []


@for_each(BOARDS)
def test_every_variable_resolves(board: dict[str, Any], fleet: StoredFleet) -> None:
    found = variables(board, "query")
    assert found
    for variable in found:
        call = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
        assert call
        selector, label = call.groups()
        values = fleet.ask(f"label/{label}/values", **{"match[]": fill(selector, VALUES), "start": "0"})
        expected = {"cluster": set(), "job": {"ibpulse"}, "instance": set(NAMES), "job_id": {"4711"}}
        assert set(values) == expected.get(label, {f"mlx5_{number}" for number in range(4)}), variable["name"]


def as_frame(ref_id: str, series: list[dict[str, Any]], alone: bool) -> dict[str, Any]:
    """An instant answer as the frame that Grafana's data source makes of it for a table."""
    labels = sorted({label for each in series for label in each["metric"]})
    columns = [[each["metric"].get(label, "") for each in series] for label in labels]
    times = [int(each["value"][0] * 1000) for each in series]
    values = [float(each["value"][1]) for each in series]
    fields = [{"name": "Time", "type": "time"}, *({"name": label, "type": "string"} for label in labels)]
    fields.append({"name": "Value" if alone else f"Value #{ref_id}", "type": "number"})
    return {"schema": {"refId": ref_id, "fields": fields}, "data": {"values": [times, *columns, values]}}


TABLES = {
    ("fleet.json", "Which nodes have a fault?"): 2,
    ("fleet.json", "Which rails are in trouble now?"): 2,
    ("fleet.json", "Which nodes are saturated, bursty or congested?"): 2,
    ("fleet.json", "Which training jobs run, and which is slow or silent?"): 1,
    ("job.json", "Which node is the slowest?"): 2,
    ("node.json", "Which training jobs run here?"): 1,
    ("node.json", "What is each port?"): 4,
}


@for_each(list(TABLES))
def test_a_table_has_one_row_for_each_node_or_port(board: str, title: str, fleet: StoredFleet, library: Path) -> None:
    asked = [each for each in targets() if (each.board, each.panel["title"]) == (board, title)]
    answers = {
        each.body["refId"]: fleet.ask("query", query=fill(each.expr, VALUES), time=str(END))["result"] for each in asked
    }
    full = {ref_id: series for ref_id, series in answers.items() if series}
    # Grafana omits the letter from the name when only one query returns data
    frames = [as_frame(ref_id, series, len(full) == 1) for ref_id, series in full.items()]
    (table,) = run_grafana(library, frames=frames, transformations=asked[0].panel["transformations"])["frames"]
    assert table["length"] == TABLES[board, title]
    headings = [row["name"] for row in table["rows"]]
    # there is no `cluster` label here, and a table may do without `job`; a query without data has no column
    assert not [heading for heading in headings if heading.startswith("Value") or heading in answers]
    rules = [rule["matcher"] for rule in asked[0].panel["fieldConfig"]["overrides"]]
    shown = {rule["options"] for rule in rules if rule["id"] == "byName"} - {"cluster", "job"}
    assert len(shown & set(headings)) >= len(shown) - (len(answers) - len(frames))
