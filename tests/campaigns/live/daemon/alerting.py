"""A real Prometheus and a real Alertmanager with given rules and webhooks. They assert nothing by themselves."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

PROMETHEUS = shutil.which("prometheus")
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


@contextmanager
def alerting(directory: Path, url: str, expression: str, user: str, password: str) -> Iterator[None]:
    """The rule `Lost` is evaluated every second over the daemon at `url`, and told to its webhook at once."""
    password_file = directory / "password"
    password_file.write_text(password)
    login = {"basic_auth": {"username": user, "password_file": str(password_file)}}
    rule = {"alert": "Lost", "labels": {"severity": "page"}, "annotations": {"summary": "a rail"}, "expr": expression}
    rules = {"groups": [{"name": "rails", "rules": [rule]}]}
    scrape = {"job_name": "ibpulse", **login, "static_configs": [{"targets": [url.removeprefix("http://")]}]}
    webhook = {"url": f"{url}/api/v1/captures/alertmanager", "http_config": login}
    route = {"receiver": "ibpulse", "group_wait": "0s", "group_interval": "1s", "repeat_interval": "1s"}
    receivers = [{"name": "ibpulse", "webhook_configs": [webhook]}]
    with alert_servers(directory, rules, scrape, {"route": route, "receivers": receivers}):
        yield


@contextmanager
def alert_servers(
    directory: Path, rules: Mapping[str, Any], scrape: Mapping[str, Any], notifications: Mapping[str, Any]
) -> Iterator[str]:
    """Prometheus with one scrape job and rules that it evaluates every second, and an Alertmanager; yields its URL."""
    prometheus, alertmanager = free_address(), free_address()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(directory / "rules.yml")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [scrape],
    }
    for name, document in (("rules", rules), ("prometheus", config), ("alertmanager", notifications)):
        (directory / f"{name}.yml").write_text(yaml.safe_dump(document))
    assert PROMETHEUS
    assert ALERTMANAGER
    with ExitStack() as running:
        running.enter_context(
            program(
                [
                    *(ALERTMANAGER, f"--config.file={directory / 'alertmanager.yml'}", "--cluster.listen-address="),
                    *(f"--storage.path={directory / 'am'}", f"--web.listen-address={alertmanager}"),
                ],
                directory / "alertmanager.log",
            )
        )
        running.enter_context(
            program(
                [
                    *(PROMETHEUS, f"--config.file={directory / 'prometheus.yml'}"),
                    *(f"--storage.tsdb.path={directory / 'tsdb'}", f"--web.listen-address={prometheus}"),
                ],
                directory / "prometheus.log",
            )
        )
        yield f"http://{alertmanager}"


@contextmanager
def program(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(15)


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
