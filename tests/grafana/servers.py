"""Debian's Prometheus and Alertmanager over several daemons, with rules of short duration. Asserts nothing."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.running import eventually
from tools.grafana.rule_files import ALERT_FILE, INHIBITION_FILE, RECORDING_FILE, resolve, rule_files

PROMETHEUS = shutil.which("prometheus")
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


def free_address() -> str:
    """A loopback address without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Servers:
    """One Prometheus with the rules and one Alertmanager.

    `scrapes` are scrape jobs besides that of the targets. `window` is that of the rules which have 5 minutes.
    """

    def __init__(
        self,
        directory: Path,
        targets: Sequence[str],
        overrides: Mapping[str, str],
        scrapes: Sequence[Mapping[str, Any]] = (),
        window: str = "5m",
    ) -> None:
        self.prometheus, self.alertmanager = free_address(), free_address()
        self._directory = directory
        for name, text in rule_files(resolve({"interval": "1s", "alert_interval": "1s", **overrides})).items():
            (directory / name).write_text(text.replace("[5m]", f"[{window}]").replace("interval: 5m", "interval: 1s"))
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(directory / name) for name in (RECORDING_FILE, ALERT_FILE)],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [self.alertmanager]}]}]},
            "scrape_configs": [{"job_name": "ibpulse", "static_configs": [{"targets": list(targets)}]}, *scrapes],
        }
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        (directory / "alertmanager.yml").write_text(
            yaml.safe_dump(
                {
                    "route": {"receiver": "nobody", "group_by": ["..."], "group_wait": "1s"},
                    "receivers": [{"name": "nobody"}],
                    **yaml.safe_load((directory / INHIBITION_FILE).read_text()),
                }
            )
        )

    def commands(self) -> list[list[str]]:
        """The commands that start the two."""
        assert PROMETHEUS
        assert ALERTMANAGER
        directory = self._directory
        return [
            [
                PROMETHEUS,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address={self.prometheus}",
                "--log.level=warn",
            ],
            [
                ALERTMANAGER,
                f"--config.file={directory / 'alertmanager.yml'}",
                f"--storage.path={directory / 'alertmanager'}",
                f"--web.listen-address={self.alertmanager}",
                "--cluster.listen-address=",
                "--log.level=warn",
            ],
        ]

    def ask(self, path: str, **params: str) -> Any:
        """The data in an answer of Prometheus."""
        answer = httpx.get(f"http://{self.prometheus}/api/v1/{path}", params=params, timeout=20)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def received(self, name: str, instance: str) -> list[dict[str, Any]]:
        """The alerts of this name, about this instance, that Alertmanager has."""
        alerts: list[dict[str, Any]] = httpx.get(f"http://{self.alertmanager}/api/v2/alerts", timeout=20).json()
        wanted = {"alertname": name, "instance": instance}
        return [alert for alert in alerts if wanted.items() <= alert["labels"].items()]


@contextmanager
def running_servers(
    directory: Path,
    targets: Sequence[str],
    overrides: Mapping[str, str],
    scrapes: Sequence[Mapping[str, Any]] = (),
    window: str = "5m",
) -> Iterator[Servers]:
    """Both servers, ready."""
    servers = Servers(directory, targets, overrides, scrapes, window)
    processes = [subprocess.Popen(command) for command in servers.commands()]
    try:
        eventually(lambda: _answers(f"http://{servers.prometheus}/-/ready"), 60.0)
        eventually(lambda: _answers(f"http://{servers.alertmanager}/-/ready"), 60.0)
        yield servers
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(15)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        time.sleep(0.1)
        return False
