"""Every alert fires in real time: the pages of five nodes, a Prometheus with short thresholds and an Alertmanager."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.grafana.servers import Servers, running_servers
from tests.running import eventually
from tools.grafana.alerts import ALERTS

pytestmark = [
    pytest.mark.needs("prometheus", "alertmanager"),
    pytest.mark.timeout(600),
]

HEALTHY_SECONDS = 45
"""How long the nodes are well: as long as the memory of a step."""
SHORT = {
    **dict.fromkeys(("down_window", "drop_window", "ack_window", "symbol_window", "symbol_recent"), "15s"),
    **dict.fromkeys(("moe_window", "step_recent"), "10s"),
    **dict.fromkeys(("moe_for", "step_for", "behind_for", "symbol_for", "pcie_for"), "2s"),
    **dict.fromkeys(("rail_idle_for", "rail_slow_for", "rail_missing_for", "trained_down_for"), "2s"),
    "unreliable_for": "2s",
    "step_memory": "30s",
    "job_silent": "5",
    "stall_memory": "20s",
    "step_grid": "1s",
    "step_known": "10",
    "behind_settled": "10s",
}


class Page(BaseHTTPRequestHandler):
    """The metrics of the node whose address is asked; all faults begin at the same time."""

    begin = 0.0

    def do_GET(self) -> None:
        """Answer a scrape."""
        node = int(str(self.headers["Host"]).partition(":")[0].rpartition(".")[2])
        body = "".join(f"{line}\n" for line in lines(node, time.time() - self.begin)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


def lines(node: int, seconds: float) -> Iterator[str]:
    """The metrics of a node, some seconds after the faults began. Faults of ports are those of the first node."""
    bad, since = seconds > 0, max(0.0, seconds)
    first = int(bad and node == 1)
    yield f"ibpulse_build_info 1\nibpulse_node_jobs 1\nibpulse_node_expected_rails 3\nibpulse_node_rails {3 - first}"
    for device in ("mlx5_0", "mlx5_1", "mlx5_2"):
        port = f'device="{device}",port="1"'
        yield f'ibpulse_port_info{{{port},rail="true"}} 1\nibpulse_port_up{{{port}}} {1 - first * (device == "mlx5_0")}'
        yield f"ibpulse_port_rate_bytes_per_second{{{port}}} 5e10"
        yield f"ibpulse_port_down_seconds_total{{{port}}} {first * since * (device == 'mlx5_0')}"
        yield f"ibpulse_port_state_changes_total{{{port}}} {2 * first * (device == 'mlx5_1')}"
        for name in ("symbol_error", "local_ack_timeout_errors"):
            yield f"ibpulse_{name}_total{{{port}}} {first * since * (device == 'mlx5_1')}"
        for name, where in (("rail_idle", "mlx5_1"), ("rail_slow", "mlx5_2"), ("trained_down", "mlx5_2")):
            yield f"ibpulse_port_{name}{{{port}}} {first * (device == where)}"
    yield f'ibpulse_device_pcie_bytes_per_second{{device="mlx5_2"}} {63e9 / (1 + first)}'
    yield 'ibpulse_device_pcie_max_bytes_per_second{device="mlx5_2"} 63e9'
    # nodes 1 to 5 have a job in which the last one is behind; three have one more
    yield from job("even", 80e9 - 30e9 * (bad and node == 5), 0.8, time.time())
    if node == 2:
        yield from job("hung", 80e9, 0.8, time.time() - since)
        yield f'ibpulse_job_stall{{job_id="hung"}} {int(bad)}'
    elif node == 3:
        yield from job("slow", 80e9, 0.8 + 0.2 * bad, time.time())
    elif node == 4:
        yield f'ibpulse_job_moe_saturated{{job_id="moe"}} {int(bad)}'
        if bad:
            yield 'ibpulse_unreliable{reason="hung-device",device="mlx5_0"} 1'


def job(name: str, bandwidth: float, step: float, last: float) -> Iterator[str]:
    """The statistics of a job on a node."""
    own = f'job_id="{name}"'
    yield f'ibpulse_port_job_info{{device="mlx5_0",port="1",{own},scheduler="slurm",source="file"}} 1'
    yield f"ibpulse_job_active_bandwidth_bytes_per_second{{{own}}} {bandwidth}"
    yield f"ibpulse_job_step_period_seconds{{{own}}} {step}"
    yield f"ibpulse_job_last_traffic_timestamp_seconds{{{own}}} {last}"


@contextmanager
def fleet(directory: Path) -> Iterator[Servers]:
    """The pages of five nodes below both servers."""
    Page.begin = time.time() + HEALTHY_SECONDS
    with ThreadingHTTPServer(("0.0.0.0", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        targets = [f"127.0.0.{node}:{server.server_port}" for node in range(1, 6)]
        with running_servers(directory, targets, SHORT, window="10s") as servers:
            yield servers
        server.shutdown()


def test_alertmanager_receives_every_alert_with_its_texts(tmp_path: Path) -> None:
    received: dict[str, str] = {}
    with fleet(tmp_path) as servers:

        def all_received() -> bool:
            alerts = httpx.get(f"http://{servers.alertmanager}/api/v2/alerts", timeout=20).json()
            if time.time() < Page.begin:
                assert [alert["labels"]["alertname"] for alert in alerts] == []
            received.update({alert["labels"]["alertname"]: alert["annotations"]["description"] for alert in alerts})
            return set(received) == {alert.name for alert in ALERTS}

        try:
            eventually(all_received, 240.0, 1.0)
        finally:
            print("\n".join(f"{name}: {text}" for name, text in sorted(received.items())))
    for name, text in received.items():
        assert "First step: " in text, name
        assert "<no value>" not in text
