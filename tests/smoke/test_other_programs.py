"""What ibpulse gives to other programs, judged by them: Prometheus and systemd."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import httpx
import pytest

from tests import ROOT
from tests.programs import find
from tests.running import HANG_SECONDS, Running, eventually
from tests.smoke.parts import becomes, get, plain_tree, program

UNITS = sorted((ROOT / "docker/systemd").glob("*.service"))
RULES = ("ibpulse-recording.yaml", "ibpulse-alerts.yaml")


def run(*words: object, given: bytes = b"") -> str:
    """What a program prints; it must end with 0."""
    command = [*map(str, words)]
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=HANG_SECONDS, cwd=ROOT)
    printed = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, printed
    return printed


@pytest.mark.needs("promtool")
def test_promtool_accepts_metrics_rules_and_the_scrape_configuration(tmp_path: Path) -> None:
    with Running(plain_tree(tmp_path / "sys"), tmp_path / "ring") as daemon:
        assert run("promtool", "check", "metrics", given=daemon.ask("/metrics").content) == ""
    assert run("promtool", "check", "rules", *(f"dashboards/rules/{name}" for name in RULES)).count("SUCCESS") == 2
    (block,) = re.findall(r"(?ms)^```yaml\n(.*?)^```", (ROOT / "README.md").read_text())
    (tmp_path / "prometheus.yml").write_text(block)
    (tmp_path / "dashboards").symlink_to(ROOT / "dashboards")
    assert "2 rule files found" in run("promtool", "check", "config", tmp_path / "prometheus.yml")


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


@pytest.mark.needs("systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for source in UNITS:
        unit = tmp_path / source.name
        # systemd checks that the program exists
        unit.write_text(source.read_text().replace("/opt/ibpulse/bin/ibpulse", "/bin/true"))
        assert unit.name not in run("systemd-analyze", "verify", unit)
        judged = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
        (exposure,) = re.findall(rf"Overall exposure level for {unit.name}: ([\d.]+) OK", judged)
        assert float(exposure) < 2
