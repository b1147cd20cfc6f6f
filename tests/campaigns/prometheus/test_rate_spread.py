"""How far rate() of a constant flow spreads in a real Prometheus, whose scrapes are late as they happen to be.

The flow is simulated, and slips on a busy machine, as its log says; that is in the spread.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fabrics import simulated
from tests.grafana.servers import running_servers
from tests.running import Running

pytestmark = [
    pytest.mark.needs("prometheus", "alertmanager"),
    pytest.mark.timeout(600),
]
SECONDS = 60


def test_the_spread_of_rates_of_a_constant_flow_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        simulated(tmp_path / "sys", "constant", ports=4) as tree,
        Running(tree, tmp_path / "ring") as daemon,
        running_servers(tmp_path, [daemon.url.removeprefix("http://")], {}) as servers,
    ):
        time.sleep(SECONDS + 20)
        now = time.time()
        for window in ("15s", "5s"):
            query = f'rate(ibpulse_port_transmit_bytes_total{{device="mlx5_0"}}[{window}])'
            span = {"start": str(now - SECONDS), "end": str(now), "step": "0.7"}
            (found,) = servers.ask("query_range", query=query, **span)["result"]
            rates = sorted(float(value) for _, value in found["values"])
            middle = rates[len(rates) // 2]
            with capsys.disabled():
                least, most = (100 * (rate / middle - 1) for rate in (rates[0], rates[-1]))
                print(f"\nrate() over {window}: median {middle / 1e9:.3f} GB/s, {least:+.2f} % to {most:+.2f} %")
