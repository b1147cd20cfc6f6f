"""A real Prometheus and a real Alertmanager with one rule and one webhook. They assert nothing by themselves."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROMETHEUS = shutil.which("prometheus")
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


@contextmanager
def alerting(directory: Path, url: str, expression: str, user: str, password: str) -> Iterator[None]:
    """The rule `Lost` is evaluated every second over the daemon at `url`, and told to its webhook at once."""
    prometheus, alertmanager = free_address(), free_address()
    password_file = directory / "password"
    password_file.write_text(password)
    login = f"basic_auth: {{username: {user}, password_file: {password_file}}}"
    (directory / "rules.yml").write_text(
        "groups: [{name: rails, rules: [{alert: Lost, labels: {severity: page}, "
        f"annotations: {{summary: a rail is lost}}, expr: '{expression}'}}]}}]\n"
    )
    (directory / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{directory / 'rules.yml'}]\n"
        f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alertmanager}']}}]}}]}}\n"
        f"scrape_configs: [{{job_name: ibpulse, {login}, "
        f"static_configs: [{{targets: ['{url.removeprefix('http://')}']}}]}}]\n"
    )
    (directory / "alertmanager.yml").write_text(
        "route: {receiver: ibpulse, group_wait: 0s, group_interval: 1s, repeat_interval: 1s}\n"
        f"receivers: [{{name: ibpulse, webhook_configs: [{{url: '{url}/api/v1/captures/alertmanager', "
        f"http_config: {{{login}}}}}]}}]\n"
    )
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
        yield


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
