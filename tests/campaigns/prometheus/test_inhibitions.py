"""The inhibitions: Alertmanager takes them, and silences the effects of a fault and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import yaml

from tests import ROOT
from tests.grafana.servers import free_address
from tests.programs import find
from tests.running import eventually
from tests.smoke.parts import program
from tools.grafana.alerts import ALERTS
from tools.grafana.inhibitions import INHIBITIONS, Inhibition

FILE = ROOT / "dashboards" / "rules" / "ibpulse-inhibitions.yaml"
NAMES = {alert.name for alert in ALERTS}
LABELS = {
    "cluster": "east",
    "job": "ibpulse",
    "instance": "n1",
    "node": "n1",
    "device": "d",
    "port": "1",
    "job_id": "7",
}


def configuration() -> dict[str, Any]:
    """A whole configuration of Alertmanager around the committed rules."""
    rules = yaml.safe_load(FILE.read_text())
    return {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}], **rules}


def test_causes_and_effects_are_alerts() -> None:
    for row in INHIBITIONS:
        assert {name for name in row.causes if not name.startswith("KubeNode")} <= NAMES
        assert {name for name in row.effects if name != "IBPulse.+"} <= NAMES
        assert not set(row.causes) & set(row.effects)


def test_no_alert_silences_one_that_matters_more() -> None:
    rank = {"info": 0, "warning": 1, "critical": 2}
    most = {alert.name: rank[alert.severity] for alert in ALERTS}
    for row in INHIBITIONS:
        causes = [most[name] for name in row.causes if name in most]
        effects = [most[name] for name in row.effects if name in most]
        assert not causes or not effects or min(causes) >= max(effects), row


def table() -> str:
    """The inhibitions, as the page has them."""

    def cell(names: tuple[str, ...]) -> str:
        return ", ".join(f"`{name}`" for name in names)

    lines = ["| while it fires | these notify nobody | on the same | because |", "|---|---|---|---|"]
    lines += [
        f"| {cell(row.causes)} | {cell(row.effects)}{', except critical ones' * row.spares_critical} "
        f"| {cell(row.equal)} | {row.reason} |"
        for row in INHIBITIONS
    ]
    return "\n".join(lines) + "\n"


def test_the_page_lists_every_inhibition() -> None:
    page = (FILE.parents[2] / "docs" / "alerts.md").read_text()
    assert table() in page, "docs/alerts.md: the table of inhibitions differs; it is:\n" + table()


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Alertmanager with the rules."""
    directory = tmp_path_factory.mktemp("alertmanager")
    (directory / "alertmanager.yml").write_text(yaml.safe_dump(configuration()))
    address = free_address()
    path = find("alertmanager")
    assert path
    command = [
        *(path, f"--config.file={directory / 'alertmanager.yml'}", "--cluster.listen-address="),
        *(f"--storage.path={directory / 'data'}", f"--web.listen-address={address}", "--log.level=warn"),
    ]
    with program(directory / "log", *command):
        eventually(lambda: ready(address), 60.0)
        yield f"http://{address}/api/v2/alerts"


def ready(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/-/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def silenced(url: str, alerts: list[dict[str, str]]) -> list[bool]:
    """Whether each alert is inhibited while all of them fire."""
    ends = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    httpx.post(url, json=[{"labels": labels, "endsAt": ends} for labels in alerts], timeout=10).raise_for_status()

    def state() -> list[Any] | None:
        known = {frozenset(alert["labels"].items()): alert for alert in httpx.get(url, timeout=10).json()}
        found = [known.get(frozenset(labels.items())) for labels in alerts]
        return found if all(found) else None

    found = eventually(state, 30.0)
    gone = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    httpx.post(url, json=[{"labels": labels, "endsAt": gone} for labels in alerts], timeout=10).raise_for_status()
    return [bool(alert["status"]["inhibitedBy"]) for alert in found]


@pytest.mark.needs("alertmanager")
@pytest.mark.parametrize("row", INHIBITIONS, ids=lambda row: f"{row.causes[0]}-{row.effects[0]}")
def test_a_fault_silences_its_effects_on_the_same_subject_only(row: Inhibition, alertmanager: str) -> None:
    cause, effect = row.causes[0], row.effects[0].replace(".+", "PortDown")
    # every row has labels of its own, so that no alert of another one is near
    labels = LABELS | {"cluster": f"{cause}-{effect}"}
    subject = {name: labels[name] for name in (*row.equal, "job")}
    last = row.equal[-1]
    others = [{"alertname": effect, **subject, last: "another"}]
    if "node" in row.equal:
        # alerts without the label are not about this node
        others.append({"alertname": effect, **{name: value for name, value in subject.items() if name != "node"}})
    alerts = [{"alertname": cause, **subject}, {"alertname": effect, **subject}, *others]
    assert silenced(alertmanager, alerts) == [False, True] + [False] * len(others)
