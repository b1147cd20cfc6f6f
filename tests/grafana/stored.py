"""A Prometheus over series that were computed or recorded before, asked at fixed times. Asserts nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.grafana.documents import asked_for, selectors
from tests.programs import find
from tests.running import HANG_SECONDS, eventually
from tests.smoke.parts import program
from tools.grafana.rule_files import RECORDING_FILE, resolve, rule_files


class Stored:
    """The blocks of a Prometheus. It runs while it is asked, because it finds new blocks when it starts."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.address = directory, ""
        self._blocks = directory / "tsdb"
        self._config = directory / "prometheus.yml"
        self._config.write_text("{}\n")

    def store(self, path: Path) -> None:
        """Add series with times in the format OpenMetrics."""
        self._create("openmetrics", path, self._blocks)

    def record(self, begin: float, end: float) -> None:
        """Add what the recording rules of the dashboards give from one time to another, at their own intervals.

        Rules that read others follow them, each level with a Prometheus that has the blocks of the level below.
        """
        # the name of the file decides when in its interval a group is evaluated, at each level the same
        path = Path(RECORDING_FILE)
        for groups in levels():
            (self.directory / path).write_text(yaml.safe_dump({"groups": groups}))
            span = (f"--start={begin:.0f}", f"--end={end:.0f}")
            with self.running():
                self._create("rules", *span, f"--url=http://{self.address}", f"--output-dir={self._blocks}", path)

    def _create(self, *words: object) -> None:
        command = ["promtool", "tsdb", "create-blocks-from", *map(str, words)]
        done = subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, check=False, timeout=HANG_SECONDS
        )
        assert done.returncode == 0, done.stdout + done.stderr

    @contextmanager
    def running(self) -> Iterator[None]:
        """The server over all blocks so far."""
        words = (find("prometheus"), f"--config.file={self._config}", f"--storage.tsdb.path={self._blocks}")
        flags = ("--storage.tsdb.retention.time=100y", "--web.listen-address=127.0.0.1:0")
        with program(self.directory / "prometheus.log", *words, *flags) as server:
            self.address = server.said(r'msg="Listening on" address=(\S+)')
            eventually(lambda: httpx.get(f"http://{self.address}/-/ready", verify=False).status_code == 200)
            yield

    def ask(self, path: str, **params: str) -> Any:
        """The data in an answer."""
        answer = httpx.get(f"http://{self.address}/api/v1/{path}", params=params, timeout=HANG_SECONDS)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def value(self, query: str, at: float) -> float:
        """The one number of a query at a time."""
        (found,) = self.ask("query", query=query, time=str(at))["result"]
        return float(found["value"][1])


def levels() -> Iterator[list[Mapping[str, Any]]]:
    """The groups of recording rules without those that read what is not yet recorded, level by level."""
    groups = yaml.safe_load(rule_files(resolve())[RECORDING_FILE])["groups"]
    reads: dict[str, set[str]] = {}
    for rule in (rule for group in groups for rule in group["rules"]):
        found = reads.setdefault(rule["record"], set())
        found |= {name for selector in selectors(rule["expr"]) for name in asked_for(selector)}
    left = set(reads)
    while left:
        ready = {name for name in left if not reads[name] & left}
        assert ready, f"rules that read each other: {sorted(left)}"
        yield [{**group, "rules": [rule for rule in group["rules"] if rule["record"] in ready]} for group in groups]
        left -= ready
