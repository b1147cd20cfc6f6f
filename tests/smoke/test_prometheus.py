"""A real Prometheus scrapes a daemon and evaluates the rules."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests import ROOT
from tests.programs import find
from tests.running import Running, eventually
from tests.smoke.parts import becomes, get, plain_tree, program

RULES = ("ibpulse-recording.yaml", "ibpulse-alerts.yaml")


@pytest.mark.needs("prometheus")
def test_prometheus_scrapes_a_daemon_and_evaluates_the_rules(tmp_path: Path) -> None:
    with Running(plain_tree(tmp_path / "sys"), tmp_path / "ring") as daemon:
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 5s, evaluation_interval: 1s}\n"
            f"rule_files: ['{ROOT}/dashboards/rules/{RULES[0]}', '{ROOT}/dashboards/rules/{RULES[1]}']\n"
            "scrape_configs:\n- job_name: ibpulse\n"
            f"  static_configs: [{{targets: ['{daemon.url.removeprefix('http://')}']}}]\n"
        )
        flags = (f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}")
        words = (find("prometheus"), *flags, "--web.listen-address=127.0.0.1:0")
        with program(tmp_path / "prometheus.log", *words) as prometheus:
            address = prometheus.said(r'msg="Listening on" address=(\S+)')
            eventually(lambda: httpx.get(f"http://{address}/-/ready", verify=False).status_code == 200)

            def value(query: str) -> list[str]:
                found = get(f"http://{address}/api/v1/query?query={query}")["data"]["result"]
                return [sample["value"][1] for sample in found]

            becomes(lambda: value("up"), ["1"])
            becomes(lambda: value("ibpulse_node_rails"), ["2"])
            becomes(lambda: len(value("ibpulse_port_transmit_bytes_total")), 2)

            def rules() -> list[dict[str, str]]:
                groups = get(f"http://{address}/api/v1/rules")["data"]["groups"]
                return [rule for group in groups for rule in group["rules"]]

            # an interval of a group may be minutes
            eventually(lambda: "ok" in {rule["health"] for rule in rules()})
            assert [rule for rule in rules() if rule["health"] == "err"] == []
