"""Captures: taken on request and by a real Alertmanager, read by another program."""

from __future__ import annotations

from pathlib import Path

import duckdb
import httpx
import pytest

from ibpulse.core.recordings import load
from tests.programs import find
from tests.running import HANG_SECONDS, Running, eventually
from tests.smoke.parts import WAYS, becomes, bytes_of, later, plain_tree, program, set_counters, take_capture, totals

OPEN = "--capture.allow-unauthenticated=true"
ALERT = {"alertname": "RailLost", "device": "mlx5_1"}


def test_a_capture_on_request_is_a_file_that_duckdb_reads(tmp_path: Path) -> None:
    tree = plain_tree(tmp_path / "sys")
    with Running(tree, tmp_path / "ring", OPEN) as daemon:
        before = totals(daemon, 0)
        for steps in (1, 2, 3, 4):
            set_counters(tree, 0, steps)
            becomes(lambda: totals(daemon, 0), later(before, steps))
        path = tmp_path / "captures" / take_capture(daemon, before="2m")
        assert daemon.ask(f"/api/v1/captures/{path.name}").content == path.read_bytes()
        assert daemon.stop() == 0
    for way in WAYS:
        moved = f"CAST({way}_bytes_per_second * {way}_seconds AS BIGINT)"
        with duckdb.connect() as database:
            rows = database.execute(f"SELECT DISTINCT device, {moved} FROM '{path}' WHERE {moved} IS NOT NULL")
            # a sample has a whole step or nothing, and one that was missed has none
            assert set(rows.fetchall()) == {("mlx5_0", 0), ("mlx5_0", bytes_of(1, way)), ("mlx5_1", 0)}


@pytest.mark.needs("alertmanager")
def test_an_alert_is_captured_once(tmp_path: Path) -> None:
    """Alertmanager repeats itself every second."""
    with Running(plain_tree(tmp_path / "sys"), tmp_path / "ring", OPEN, "--capture.after=10ms") as daemon:
        (tmp_path / "alertmanager.yml").write_text(
            "route: {receiver: ibpulse, group_wait: 0s, group_interval: 1s, repeat_interval: 1s}\n"
            f"receivers: [{{name: ibpulse, webhook_configs: [{{url: '{daemon.url}/api/v1/captures/alertmanager'}}]}}]\n"
        )
        flags = (f"--config.file={tmp_path / 'alertmanager.yml'}", f"--storage.path={tmp_path / 'data'}")
        listen = ("--web.listen-address=127.0.0.1:0", "--cluster.listen-address=")
        with program(tmp_path / "alertmanager.log", find("alertmanager"), *flags, *listen) as alertmanager:
            address = alertmanager.said(r'msg="Listening on" address=(\S+)')
            eventually(lambda: httpx.get(f"http://{address}/-/ready", verify=False).status_code == 200)
            sent = httpx.post(f"http://{address}/api/v2/alerts", json=[{"labels": ALERT}], timeout=HANG_SECONDS)
            assert sent.status_code == 200, sent.text
            notified = {"code": "200", "path": "/api/v1/captures/alertmanager"}
            # there is no such series before the first request
            eventually(lambda: sum(daemon.metrics().find("ibpulse_http_requests_total", **notified).values()) >= 2)
        # captures that were begun are finished
        assert daemon.stop() == 0
    (path,) = (tmp_path / "captures").glob("*.parquet")
    assert load(path).meta.labels.items() >= {**ALERT, "trigger": "alertmanager"}.items()
