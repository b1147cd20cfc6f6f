"""A real Prometheus and a real Alertmanager with given rules and webhooks. They assert nothing by themselves."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.grafana.servers import ALERTMANAGER, PROMETHEUS, free_address


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
