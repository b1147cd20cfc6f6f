"""Alertmanager's notifications to a real gateway over real daemons, with the configuration of docs/gateway.md."""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bcrypt
import httpx
import pytest
import yaml

from tests.gateway.gateways import documented, program, running_gateway
from tests.grafana.servers import ALERTMANAGER, PROMETHEUS, free_address
from tests.running import eventually
from tests.smoke.parts import program as server
from tests.web.certificates import make_authority, sign

NODES = ("node1", "node2", "node3")
PATH = "/api/v1/captures/alertmanager"
USER, PASSWORD = "alertmanager", "correct horse"


@dataclass(frozen=True)
class Fleet:
    """Three nodes with one job, and the gateway; `client` asks it as a user."""

    client: httpx.Client
    job: str
    directory: Path
    scratch: Path
    targets: Mapping[str, str]

    def captures(self, reason: str) -> list[dict[str, Any]]:
        """Those of the job with this reason."""
        listed = self.client.get(f"/api/v1/jobs/{self.job}/captures").json()
        return [each for each in listed["captures"] if each["reason"] == reason]

    def tell(self, node: str, **faults: object) -> None:
        """Set exactly these faults on a node."""
        path = self.scratch / "sys" / node / "faults.json"
        fresh = path.with_name("faults.new")
        fresh.write_text(json.dumps({name.replace("_", "-"): value for name, value in faults.items()}))
        fresh.rename(path)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Nodes that want a password, and a gateway that wants one too, over TLS."""
    directory = tmp_path_factory.mktemp("fleet")
    sign(make_authority(directory), directory, "server", "IP:127.0.0.1")
    users = f"basic_auth_users: {{{USER}: {bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}}}\n"
    for name, text in {
        "password": PASSWORD,
        "node.yml": users,
        "gateway.yml": f"{users}tls_server_config: {{cert_file: server.crt, key_file: server.key}}\n",
        "access.yml": f"basic_auth: {{username: {USER}, password_file: password}}\n",
    }.items():
        (directory / name).write_text(text)
    demo = ("demo", "--nodes=3", "--ports=2", "--slow.interval=1s", "--capture.min-free=0B")
    demo += ("--web.listen-address=127.0.0.1:0", f"--web.config.file={directory / 'node.yml'}")
    with program(directory / "demo.log", *demo):
        text = eventually(lambda: found[1] if (found := re.search(r"listed in (\S+)", log(directory))) else "", 60)
        eventually(lambda: "node3: http" in log(directory), 60)
        flags = [f"--nodes.sources={text}", f"--nodes.config.file={directory / 'access.yml'}"]
        flags += [f"--web.config.file={directory / 'gateway.yml'}", "--capture.before=4s", "--capture.after=1s"]
        with running_gateway(directory, *flags) as url:
            tls = ssl.create_default_context(cafile=directory / "authority.crt")
            with httpx.Client(base_url=url, auth=(USER, PASSWORD), verify=tls, timeout=20) as client:
                job = eventually(lambda: whole_job(client), 60)
                entries = json.loads(Path(text).read_text())
                targets = {entry["labels"]["node"]: entry["targets"][0] for entry in entries}
                yield Fleet(client, job, directory, Path(text).parent, targets)


def log(directory: Path) -> str:
    return (directory / "demo.log").read_text()


def whole_job(client: httpx.Client) -> str:
    """The job of all nodes, once all are known to have it."""
    jobs = client.get("/api/v1/jobs").json()["jobs"]
    return next((str(job["job_id"]) for job in jobs if len(job["nodes"]) == len(NODES)), "")


def configuration(fleet: Fleet) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rules and the notifications of the page, for these servers, without delays."""
    rules, notifications = documented("groups"), documented("receivers")
    for rule in rules["groups"][0]["rules"]:
        rule["for"] = "0s"
    (webhook,) = next(each for each in notifications["receivers"] if each["name"] == "captures")["webhook_configs"]
    assert webhook["url"] == f"https://gateway:10056{PATH}"
    webhook["url"] = f"{str(fleet.client.base_url).rstrip('/')}{PATH}"
    webhook["http_config"]["basic_auth"]["password_file"] = str(fleet.directory / "password")
    webhook["http_config"]["tls_config"]["ca_file"] = str(fleet.directory / "authority.crt")
    # the page leaves out resolved alerts; here they come, to show that they do nothing
    webhook["send_resolved"] = True
    notifications["route"] |= {"group_wait": "0s", "group_interval": "1s", "repeat_interval": "1s"}
    return rules, notifications


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
    alerts = (ALERTMANAGER, f"--config.file={directory / 'alertmanager.yml'}", "--cluster.listen-address=")
    alerts += (f"--storage.path={directory / 'am'}", f"--web.listen-address={alertmanager}")
    series = (PROMETHEUS, f"--config.file={directory / 'prometheus.yml'}", f"--storage.tsdb.path={directory / 'tsdb'}")
    series += (f"--web.listen-address={prometheus}",)
    with server(directory / "alertmanager.log", *alerts), server(directory / "prometheus.log", *series):
        yield f"http://{alertmanager}"


@pytest.mark.needs("prometheus", "alertmanager")
def test_an_alert_about_a_job_takes_one_capture_on_all_its_nodes(fleet: Fleet, tmp_path: Path) -> None:
    rules, notifications = configuration(fleet)
    login = {"basic_auth": {"username": USER, "password_file": str(fleet.directory / "password")}}
    scrape = {"job_name": "ibpulse", **login, "static_configs": [{"targets": list(fleet.targets.values())}]}
    with alert_servers(tmp_path, rules, scrape, notifications) as alertmanager:
        time.sleep(5)
        fleet.tell("node2", link_flap=["mlx5_1"])
        try:
            taken = eventually(lambda: complete(fleet.captures("JobRailDown")), 60, 0.5)
            # Alertmanager repeats itself every second
            time.sleep(3)
        finally:
            fleet.tell("node2")
        eventually(lambda: httpx.get(f"{alertmanager}/api/v2/alerts").json() == [], 60)
        time.sleep(2)
    assert fleet.captures("JobRailDown") == [taken]
    assert [each["node"] for each in taken["nodes"]] == list(NODES)


def complete(captures: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The first of these captures once all of its files are there."""
    return next((each for each in captures if all(node["size_bytes"] for node in each["nodes"])), None)
