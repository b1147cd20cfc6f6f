"""The demo's compose file and what it mounts, read by the programs that will read it, where they are here."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner

from ibpulse.commands.gateway import LISTEN_ADDRESS
from ibpulse.gateway.nodes.discovery import FileSource, parse_source
from tests.tables import for_each

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
NODES = ("dense", "moe", "idle-rail", "idle")
MOUNTS = [(name, volume) for name, service in SERVICES.items() for volume in service.get("volumes", ())]


def _mount(service: str, target: str) -> Path:
    """The file or directory of the checkout that a service finds at a place."""
    for volume in SERVICES[service]["volumes"]:
        source, place, *_ = volume.split(":")
        if target == place or target.startswith(place + "/"):
            return (FOLDER / source).resolve() / target.removeprefix(place).lstrip("/")
    raise AssertionError(f"{service} has nothing at {target}")


def test_the_file_is_valid_against_the_schema_of_compose() -> None:
    words = ["--builtin-schema", "vendor.compose-spec", str(FOLDER / "compose.yaml")]
    answer = CliRunner().invoke(check_jsonschema.main, words)
    assert answer.exit_code == 0, answer.output


@for_each(MOUNTS)
def test_every_mount_is_a_file_that_exists_or_a_volume_that_is_declared(service: str, volume: str) -> None:
    source, _, *mode = volume.split(":")
    if source.startswith("."):
        assert (FOLDER / source).exists()
        assert mode == ["ro"]
    else:
        assert source in COMPOSE["volumes"]


def test_every_port_is_on_loopback_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == len(set(ports)) == 8
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)


def test_no_service_has_a_privilege() -> None:
    for service in SERVICES.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not {"privileged", "cap_add", "devices", "pid", "ipc"} & service.keys()


def test_all_that_listens_has_a_health_check() -> None:
    assert all("healthcheck" in service for service in SERVICES.values() if "ports" in service)


def test_images_of_others_are_pinned_by_tag_and_digest() -> None:
    images = {service["image"] for service in SERVICES.values()} - {"ibpulse:demo"}
    assert len(images) == 3
    assert all(re.fullmatch(r"[\w./-]+:v?[\d.]+@sha256:[0-9a-f]{64}", image) for image in images)


def test_there_is_a_fabric_for_each_of_the_four_nodes_and_faults_only_on_request() -> None:
    for node in NODES:
        assert f"/fabric/{node}" in SERVICES[f"{node}-fabric"]["command"]
        assert f"--path.sysfs=/fabric/{node}" in SERVICES[node]["command"]
        assert "fabric:/fabric:ro" in SERVICES[node]["volumes"]
    assert [name for name, service in SERVICES.items() if "profiles" in service] == ["faults"]


def _lay_out(service: str, target: str, directory: Path) -> Path:
    """The files of a service below a directory, in the places where it finds them; the one at `target`."""
    for volume in SERVICES[service]["volumes"]:
        source, place, *_ = volume.split(":")
        if source.startswith("."):
            (directory / place.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (directory / place.lstrip("/")).symlink_to((FOLDER / source).resolve())
    return directory / target.lstrip("/")


@pytest.mark.needs("promtool")
@pytest.mark.real("process")
def test_prometheus_accepts_its_configuration_and_the_rules(tmp_path: Path) -> None:
    path = _lay_out("prometheus", "/etc/prometheus/prometheus.yml", tmp_path)
    done = subprocess.run(["promtool", "check", "config", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 rule files found" in done.stdout


def test_prometheus_scrapes_the_four_nodes_and_the_gateway_under_a_job_of_its_own() -> None:
    config = yaml.safe_load(_mount("prometheus", "/etc/prometheus/prometheus.yml").read_text())
    jobs = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    assert jobs["ibpulse"] == [f"{node}:10055" for node in NODES]
    assert jobs["ibpulse-gateway"] == ["gateway:10056"]


def test_the_gateway_knows_the_four_nodes_by_name_and_listens_where_it_is_published() -> None:
    (source,) = [word.partition("=")[2] for word in SERVICES["gateway"]["command"] if word.startswith("--nodes.")]
    targets = parse_source(str(_mount("gateway", source)))
    assert isinstance(targets, FileSource)
    assert {each.name: each.url for each in targets.read()} == {node: f"http://{node}:10055" for node in NODES}
    assert SERVICES["gateway"]["ports"][0].endswith(LISTEN_ADDRESS)


@pytest.mark.needs("amtool")
@pytest.mark.real("process")
def test_alertmanager_accepts_its_configuration() -> None:
    path = _mount("alertmanager", "/etc/alertmanager/alertmanager.yml")
    subprocess.run(["amtool", "check-config", path], capture_output=True, text=True, check=True)


@pytest.mark.needs("amtool")
@pytest.mark.real("process")
@pytest.mark.parametrize("node", NODES)
def test_an_alert_of_a_node_reaches_the_flight_recorder_of_that_node(node: str) -> None:
    path = _mount("alertmanager", "/etc/alertmanager/alertmanager.yml")
    route = ["amtool", "config", "routes", "test", f"--config.file={path}", "alertname=A", f"instance={node}:10055"]
    assert subprocess.run(route, capture_output=True, text=True, check=True).stdout.strip() == node
    receivers = {receiver["name"]: receiver for receiver in yaml.safe_load(path.read_text())["receivers"]}
    (webhook,) = receivers[node]["webhook_configs"]
    assert webhook["url"] == f"http://{node}:10055/api/v1/captures/alertmanager"


def test_grafana_has_both_data_sources_and_shows_the_fleet_first() -> None:
    folder = _mount("grafana", "/etc/grafana/provisioning")
    sources = yaml.safe_load((folder / "datasources/ibpulse.yaml").read_text())["datasources"]
    assert {source["uid"]: source["type"] for source in sources} == {
        "prometheus": "prometheus",
        "infinity": "yesoreyeram-infinity-datasource",
    }
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    home = _mount("grafana", environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    (provider,) = yaml.safe_load((folder / "dashboards/ibpulse.yaml").read_text())["providers"]
    assert _mount("grafana", provider["options"]["path"]) == home.parent == ROOT / "dashboards"
    if list(home.parent.glob("*.json")):
        assert json.loads(home.read_text())["uid"] == "ibpulse-fleet"
