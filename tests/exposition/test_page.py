from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.agent.aggregator.jobs import MAX_JOBS
from ibpulse.agent.aggregator.ports import CounterTotals
from ibpulse.agent.aggregator.snapshot import UTILIZATION_BUCKETS
from ibpulse.agent.metrics.node import JOB_ROWS, MAX_INFOS
from ibpulse.agent.metrics.page import SNAPSHOT_ROWS, render, rows_of
from ibpulse.agent.sysfs.error_counters import CounterSet
from ibpulse.core.jobs import MAX_JOBS as MAX_CONSIDERED
from ibpulse.core.metrics import web
from ibpulse.core.metrics.row import read_families
from ibpulse.core.metrics.text import format_number, process_registry
from tests.aggregator.rings import Ring, port
from tests.exposition.snapshots import SERVER, mlx5_readings, node, simulated, snapshot_of

OPENMETRICS = "application/openmetrics-text"


def own_registry() -> CollectorRegistry:
    """The collectors that a daemon registers in addition to the snapshot."""
    registry = process_registry()
    GCCollector(registry=registry)
    return registry


def text_of(snapshot: Snapshot, *names: str, registry: CollectorRegistry | None = None, accept: str = "") -> str:
    return render(snapshot, registry or CollectorRegistry(), accept, names)[0].decode()


def sample_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_every_row_of_the_table_is_exported_and_nothing_else(tmp_path: Path) -> None:
    snapshot = simulated(node(tmp_path, 1))
    exported = [metric for metric, samples in read_families(rows_of(snapshot), snapshot) if samples]
    assert exported == list(SNAPSHOT_ROWS)


def test_the_families_of_the_server_come_last_and_only_with_their_counts(tmp_path: Path) -> None:
    snapshot, names = node(tmp_path, 1), ["ibpulse_node_rails", "python_info", *(row.name for row in web.ROWS)]
    without, whole = (
        render(snapshot, process_registry(), OPENMETRICS, names, given)[0].decode() for given in (None, SERVER)
    )
    assert whole.startswith(without.removesuffix("# EOF\n"))
    assert whole.endswith("# EOF\n")
    shown = [line.split()[2] for line in whole.splitlines() if line.startswith("# TYPE")]
    assert shown == ["ibpulse_node_rails", "python_info", *(row.family for row in web.ROWS)]


def test_no_reload_metric_without_a_web_configuration(tmp_path: Path) -> None:
    body, _ = render(node(tmp_path, 1), CollectorRegistry(), counts=web.WebCounts())
    assert b"ibpulse_http_stream_viewers 0.0\n" in body
    assert b"ibpulse_web_" not in body
    assert b"ibpulse_http_request" not in body


def test_unknown_values_are_absent(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1", active=False))
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    before = sample_lines(text_of(aggregator.update(ring.fabric, 0)))
    assert 'ibpulse_port_up{device="mlx5_0",port="1"} 0' in before
    ring.file.assign("mlx5_0:1", 4, 1)
    placed = text_of(aggregator.update(ring.fabric, 0))
    for name in (
        "transmit_bytes_total",
        "receive_bytes_total",
        "rate_bytes",
        "utilization",
        "window=",
        "heartbeat_age",
        "throttled",
        "until",
    ):
        # that nothing was observed is known
        assert not [line for line in sample_lines(placed) if name in line and "observed_ratio" not in line], name
    assert "NaN" not in placed
    assert 'ibpulse_port_observed_seconds_total{device="mlx5_0",port="1"} 0.0' in placed


def series_of(snapshot: Snapshot, link_layer: str, counter_set: CounterSet) -> list[str]:
    """The series of mlx5 ports whose error counters the slow reader has read."""
    ports = [replace(each.port, identity=replace(each.port.identity, link_layer=link_layer)) for each in snapshot.ports]
    readings = tuple(mlx5_readings(port, counter_set) for port in ports)
    totals = CounterTotals().update(replace(snapshot.fabric, counters=readings))
    return sample_lines(text_of(replace(snapshot, counters=totals), registry=own_registry()))


def job_series(snapshot: Snapshot) -> list[str]:
    return sample_lines(text_of(snapshot, *(row.name for row in JOB_ROWS)))


def test_the_series_of_jobs_are_few_and_bounded_however_many_jobs_there_are(tmp_path: Path) -> None:
    snapshot = node(tmp_path)
    # the node, each port's count and its job, and the statistics of the job
    assert len(job_series(snapshot)) == 1 + 8 + 8 + 5
    (one,) = snapshot.jobs or ()
    many = [replace(one, claim=replace(one.claim, id=str(number))) for number in range(MAX_CONSIDERED)]
    shared = replace(snapshot, jobs=tuple(many), job_statistics=())
    assert len(job_series(shared)) == 1 + 8 + 8 * MAX_INFOS
    statistics = [replace(snapshot.job_statistics[0], job_id=str(number)) for number in range(MAX_JOBS)]
    apart = [replace(job, ports=one.ports[number : number + 1]) for number, job in enumerate(many)]
    assert len(job_series(replace(snapshot, jobs=tuple(apart), job_statistics=tuple(statistics)))) == 1 + 8 + 8 + 5 * 8


@pytest.mark.parametrize("link_layer", ["InfiniBand", "Ethernet"])
def test_a_node_of_eight_ports_keeps_to_its_budget_of_series(tmp_path: Path, link_layer: str) -> None:
    series = series_of(node(tmp_path), link_layer, "diagnostic")
    assert len(series) == len({line.rpartition(" ")[0] for line in series})
    # the budget is 1,250 with one job; the rest is room for what is there only while something is wrong
    assert len(series) <= 1120


def test_the_docs_say_what_all_counters_of_a_port_cost(tmp_path: Path) -> None:
    snapshot = node(tmp_path, 1)
    none, diagnostic, every = (len(series_of(snapshot, "InfiniBand", which)) for which in ("none", "diagnostic", "all"))
    page = (Path(__file__).parents[2] / "docs" / "counters.md").read_text()
    assert f"`diagnostic` is {diagnostic - none} series, `all` is {every - none}" in page


def test_families_and_samples_are_found_by_name_also_in_the_registry(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    Counter("requests", "Requests.", registry=registry).inc(3)
    Histogram("duration", "Duration.", registry=registry, buckets=[1]).observe(0.5)
    snapshot = node(tmp_path, 1)

    def lines(*names: str) -> list[str]:
        return sample_lines(text_of(snapshot, *names, registry=registry))

    assert len(lines("ibpulse_port_transmit_utilization_ratio")) == len(UTILIZATION_BUCKETS) + 3
    for name in ("ibpulse_sampler_ticks", "ibpulse_sampler_ticks_total"):
        assert lines(name) == ["ibpulse_sampler_ticks_total 0"]
    found = lines("ibpulse_sampler_lateness_seconds_sum", "ibpulse_node_rails")
    assert found == ["ibpulse_node_rails 1", "ibpulse_sampler_lateness_seconds_sum 0.0"]
    # neither sums nor times of creation are added to what was asked for
    assert (lines("requests_total"), lines("duration_count")) == (["requests_total 3.0"], ["duration_count 1.0"])
    assert len(lines("duration")) == 4
    assert not [line for line in lines() if "_created" in line]
    assert (text_of(snapshot, "nonsense"), text_of(snapshot, "nonsense", accept=OPENMETRICS)) == ("", "# EOF\n")


def test_numbers() -> None:
    numbers = {2**63 + 1: "9223372036854775809", 1.0: "1.0", 5e-05: "5e-05"}
    numbers |= {math.nan: "NaN", math.inf: "+Inf", -math.inf: "-Inf"}
    assert {number: format_number(number) for number in numbers} == numbers


@pytest.mark.real("process")
@pytest.mark.needs("promtool")
def test_promtool_reports_no_problem(tmp_path: Path) -> None:
    first = snapshot_of(tmp_path, port("mlx5_0:1"), port("mlx5_1:1", active=False))
    body = text_of(replace(first, skipped_seconds=4), registry=own_registry())
    # the one name that breaks a rule of style is there only while a counter has stopped
    body = "".join(line for line in body.splitlines(keepends=True) if "ibpulse_port_counter_saturated" not in line)
    command = ["promtool", "check", "metrics"]
    checked = subprocess.run(command, input=body, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
