"""Two nodes of one job below a Prometheus with the rules, with something wrong on each, until all queries have data."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.fabrics import simulated
from tests.grafana.documents import Target, fill
from tests.grafana.servers import Servers, running_servers
from tests.running import Running, eventually

FLAGS = (
    "--analysis.traffic-window=20s",
    "--analysis.moe-saturation-hold=5s",
    "--slow.interval=1s",
    "--slow.xmit-wait-tick=8",
    "--capture.allow-unauthenticated=true",
)
FAULTS = {
    "dense": {"slow-rail": {"mlx5_1": 0.4}, "congested": ["mlx5_0"], "bit-errors": ["mlx5_2"]},
    "moe": {"link-flap": ["mlx5_3"]},
}
# conditions for the queries to return data
READY = (
    "count(instance:ibpulse_step_period_seconds:scored)",
    "count(job_le:ibpulse_node_bandwidth_utilization_ratio_bucket:rate5m)",
    "count(rate(ibpulse_node_burst_duration_seconds_count[20s]) > 0)",
    'count(ibpulse_node_burstiness_cv{timescale="1s",window="1m"}) == 2',
    "sum(ibpulse_node_moe_saturated) > 0",
    "sum(ibpulse_port_rail_slow) > 0",
    "sum(ibpulse_port_up == 0)",
    "count(ibpulse_capture_last_timestamp_seconds) == 2",
    "count(instance_device_port:ibpulse_bad_rail:state) == 2",
    "count(instance:ibpulse_effective_resolution:ratio) == 2",
    "count(job_id:ibpulse_step_period_seconds:median)",
    "count(instance_job_id:ibpulse_active_bandwidth_to_median:ratio5m) == 2",
    "count(job_id:ibpulse_rail_fairness:ratio5m)",
)
# vmalert 1.79 refuses rules with `keep_firing_for`
RULES = {"interval": "1s", "alert_interval": "1s", "keep_for": "0s", "keep_cause_for": "0s"}
JOB = {"id": "4711", "scheduler": "slurm"}
"""The job that both nodes run, as a prolog describes it."""


@dataclass(frozen=True)
class Fleet:
    """Two nodes under Prometheus; `values` are those of the boards' variables."""

    servers: Servers
    daemons: tuple[Running, Running]

    @property
    def values(self) -> dict[str, str]:
        names = ("job", "instance", "device", "job_id", "job_b", "instance_b", "job_id_b")
        anything = dict.fromkeys(names, ".+") | {"cluster": ".*"}
        return anything | {"__rate_interval": "20s", "__range": "30s", "shift": "1s"}

    def has_data(self, expr: str, instant: bool = False) -> bool:
        """Whether the query brings at least one number."""
        query, now = fill(expr, self.values), time.time()
        if instant:
            series = self.servers.ask("query", query=query, time=str(now))["result"]
            return any(math.isfinite(float(each["value"][1])) for each in series)
        span = {"start": str(now - 20), "end": str(now), "step": "2"}
        series = self.servers.ask("query_range", query=query, **span)["result"]
        return any(math.isfinite(float(value)) for each in series for _, value in each["values"])

    def ask_node(self, target: Target) -> Any:
        """The answer of a node to an Infinity query, about the last ten seconds."""
        now_ms = int(time.time() * 1000)
        url = fill(target.body["url"], {"scheme": "http", "gateway": "", "instance": self.instances[1]})
        times = {"${__timeFrom}": str(now_ms - 10_000), "${__timeTo}": str(now_ms)}
        params = {each["key"]: times.get(each["value"], each["value"]) for each in target.body["url_options"]["params"]}
        answer = httpx.get(url, params=params, timeout=20)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @property
    def instances(self) -> list[str]:
        return [daemon.url.removeprefix("http://") for daemon in self.daemons]


@contextmanager
def live_fleet(folder: Path) -> Iterator[Fleet]:
    """A dense node with a slow rail and an MoE node with a port that is down, scraped until everything has a value."""
    for name in ("dense-node", "moe-node", "jobs"):
        (folder / name).mkdir()
    (folder / "jobs" / "4711.json").write_text(json.dumps(JOB))
    flags = (*FLAGS, f"--jobs.owners-dir={folder / 'jobs'}")
    with (
        simulated(folder / "dense", "dense", ports=4) as dense,
        simulated(folder / "moe", "moe", ports=4) as moe,
        Running(dense, folder / "dense-node" / "ring", *flags) as first,
        Running(moe, folder / "moe-node" / "ring", *flags) as second,
    ):
        made = Fleet(Servers(folder, (), RULES), (first, second))
        with running_servers(folder, made.instances, RULES) as servers:
            made = Fleet(servers, (first, second))
            eventually(lambda: made.has_data("sum(ibpulse_node_moe_saturated) > 0"), 120.0, 0.5)
            for tree in (dense, moe):
                (tree / "faults.json").write_text(json.dumps(FAULTS[tree.name]))
            for daemon in (first, second):
                assert httpx.post(daemon.url + "/api/v1/captures", json={"after": "1s"}, timeout=20).status_code == 202
            for condition in READY:
                eventually(lambda condition=condition: made.has_data(condition), 120.0, 0.5)
            yield made
