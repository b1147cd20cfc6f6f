"""`python -m tests.grafana.other_engines`: every query of boards and rules on VictoriaMetrics, next to Prometheus.

Both scrape the same daemons; vmalert evaluates the rules for VictoriaMetrics. Each query is asked of both for one
instant, with the values with which its board opens: give `--seconds=1900`, because one board compares the last quarter
of an hour with the one before. Prints what fails, what differs and by how much, and what the queries of each board cost
Prometheus.
"""

from __future__ import annotations

import argparse
import math
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.grafana.documents import BOARDS, defaults, fill, targets
from tests.grafana.live_fleet import Fleet, live_fleet
from tests.grafana.servers import free_address
from tests.running import eventually
from tools.grafana.rule_files import ALERT_FILE, RECORDING_FILE

VICTORIA, VMALERT = shutil.which("victoria-metrics"), shutil.which("vmalert")
# both servers scrape at moments of their own
NEAR = 0.05
# so long ago that both have stored it
SETTLED_SECONDS = 5
Key = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and where it is from."""

    place: str
    expr: str


def queries(folder: Path) -> Iterator[Query]:
    """Those of all panels, with the default values of the board's variables, and of all rules."""
    for target in targets():
        values = defaults(BOARDS[target.board])
        # where nothing has this label, a board about one cluster opens without a value
        values["cluster"] = values["cluster"].replace(".+", "")
        yield Query(str(target), fill(target.expr, values))
    for name in (RECORDING_FILE, ALERT_FILE):
        for group in yaml.safe_load((folder / name).read_text())["groups"]:
            for rule in group["rules"]:
                yield Query(f"rule: {rule.get('record', rule.get('alert'))}", rule["expr"])


@contextmanager
def victoria(folder: Path, instances: list[str]) -> Iterator[str]:
    """The address of a VictoriaMetrics that scrapes these, with vmalert for the rules."""
    assert VICTORIA
    assert VMALERT
    server, alerts = free_address(), free_address()
    scrape = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "ibpulse", "static_configs": [{"targets": instances}]}],
    }
    (folder / "scrape.yml").write_text(yaml.safe_dump(scrape))
    store = [VICTORIA, f"-storageDataPath={folder / 'victoria'}", f"-httpListenAddr={server}"]
    rules = [f"-rule={folder / name}" for name in (RECORDING_FILE, ALERT_FILE)]
    addresses = [f"-{role}.url=http://{server}" for role in ("datasource", "remoteWrite", "remoteRead")]
    with (folder / "victoria.log").open("wb") as log, ExitStack() as stack:
        for command in (
            [*store, f"-promscrape.config={folder / 'scrape.yml'}", "-search.latencyOffset=0s"],
            [VMALERT, *rules, *addresses, "-notifier.url=http://127.0.0.1:1", f"-httpListenAddr={alerts}"],
        ):
            process = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(process.wait, 20)
            stack.callback(process.terminate)
            eventually(lambda: _answers(f"http://{server}/health"), 30)
        yield server


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def ask(server: str, expr: str, at: float, **params: str) -> tuple[dict[Key, float], dict[str, Any]] | str:
    """The numbers by their labels, and the statistics of the query; or why it is refused."""
    answer = httpx.get(f"http://{server}/api/v1/query", params={"query": expr, "time": str(at), **params}, timeout=30)
    if answer.status_code != 200:
        return str(answer.json().get("error", answer.text))
    data = answer.json()["data"]
    if data["resultType"] == "scalar":
        return {frozenset(): float(data["result"][1])}, data.get("stats", {})
    found = {}
    for series in data["result"]:
        labels = {name: text for name, text in series["metric"].items() if name not in ("__name__", "alertgroup")}
        value = float(series["value"][1])
        if not math.isnan(value):
            found[frozenset(labels.items())] = value
    return found, data.get("stats", {})


def judge(expected: Mapping[Key, float], found: Mapping[Key, float]) -> str:
    """How two answers compare, in words."""
    if expected.keys() != found.keys():
        return f"other series: {len(expected)} against {len(found)}"
    if not expected:
        return "empty on both"
    worst = max(abs(found[key] - value) / max(abs(value), abs(found[key]), 1e-12) for key, value in expected.items())
    return "agrees" if worst <= NEAR else f"differs by {100 * worst:.0f} %"


def compare(fleet: Fleet, server: str, folder: Path) -> Counter[str]:
    """Print every difference, and the cost of each board; the number of queries by outcome."""
    outcomes: Counter[str] = Counter()
    samples: Counter[str] = Counter()
    for query in queries(folder):
        at = time.time() - SETTLED_SECONDS
        usual = ask(fleet.servers.prometheus, query.expr, at, stats="all")
        other = ask(server, query.expr, at)
        if isinstance(usual, str) or isinstance(other, str):
            word = f"refused by {'Prometheus' if isinstance(usual, str) else 'VictoriaMetrics'}"
            say(f"{query.place}: {word}: {usual if isinstance(usual, str) else other}")
        else:
            verdict = judge(usual[0], other[0])
            word = verdict.partition(" by ")[0].partition(":")[0]
            samples[query.place.partition(":")[0]] += usual[1].get("samples", {}).get("totalQueryableSamples", 0)
            if word not in ("agrees", "empty on both"):
                say(f"{query.place}: {verdict}\n    {' '.join(query.expr.split())[:200]}")
        outcomes[word] += 1
    for place, count in samples.items():
        say(f"{place}: {count} samples read by Prometheus for one instant")
    return outcomes


def main() -> int:
    """Run both, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=120, help="how long both scrape before the comparison")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ibpulse-engines-", dir="/dev/shm") as scratch:
        folder = Path(scratch)
        with live_fleet(folder) as fleet, victoria(folder, fleet.instances) as server:
            time.sleep(arguments.seconds)
            outcomes = compare(fleet, server, folder)
            log = (folder / "victoria.log").read_text(errors="replace")
    errors = [
        line for line in log.splitlines() if re.search("\t(error|fatal|panic)\t", line) and "127.0.0.1:1/" not in line
    ]
    say(f"{sum(outcomes.values())} queries: {', '.join(f'{count} {word}' for word, count in outcomes.most_common())}")
    say("\n".join([f"{len(errors)} errors in the logs", *errors[:20]]))
    return 1 if any(word.startswith("refused") for word in outcomes) else 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
