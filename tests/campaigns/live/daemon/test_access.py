"""A real Prometheus scrapes a daemon with access control, and TLS is set up as the page says."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import httpx
import pytest
import yaml

from tests import ROOT
from tests.fabrics import simulated
from tests.grafana.servers import free_address
from tests.programs import find
from tests.running import Running, eventually
from tests.smoke.parts import program
from tests.web.certificates import make_authority, sign

USER, PASSWORD = "prometheus", "correct horse"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(5)).decode()


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    with simulated(tmp_path / "sys", "dense", ports=2) as made:
        yield made


@pytest.mark.needs("prometheus", "promtool")
def test_prometheus_needs_certificate_and_password(tree: Path, tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    sign(authority, tmp_path, "server", "DNS:localhost,IP:127.0.0.1")
    client = sign(authority, tmp_path, USER, "DNS:prometheus")
    web = tmp_path / "web.yml"
    web.write_text(
        "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: authority.crt\n"
        f"basic_auth_users: {{{USER}: {HASH}}}\n"
    )
    subprocess.run(["promtool", "check", "web-config", web], check=True, capture_output=True)
    daemon = Running(tree, tmp_path / "ring", f"--web.config.file={web}")
    context = ssl.create_default_context(cafile=authority.cert)
    context.load_cert_chain(client.cert, client.key)
    daemon.http = {"verify": context, "auth": (USER, PASSWORD)}
    trusted = {"ca_file": str(authority.cert)}
    certified = trusted | {"cert_file": str(client.cert), "key_file": str(client.key)}
    ways = {"good": (certified, PASSWORD), "password": (certified, "wrong"), "certificate": (trusted, PASSWORD)}
    with daemon:
        jobs = [
            {
                "job_name": name,
                "scheme": "https",
                "tls_config": tls,
                "basic_auth": {"username": USER, "password": password},
                "static_configs": [{"targets": [daemon.url.removeprefix("https://")]}],
            }
            for name, (tls, password) in ways.items()
        ]
        config = tmp_path / "prometheus.yml"
        config.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
        address = free_address()
        flags = (
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address={address}",
        )
        with program(tmp_path / "prometheus.log", find("prometheus"), *flags):
            found = eventually(lambda: all_scraped(address))
    assert {name: target["health"] for name, target in found.items()} == {
        "good": "up",
        "password": "down",
        "certificate": "down",
    }
    assert "401" in found["password"]["lastError"]


def all_scraped(address: str) -> dict[str, dict[str, Any]]:
    """The targets of a Prometheus by their jobs, once each was scraped; none before it answers."""
    try:
        listed = httpx.get(f"http://{address}/api/v1/targets").json()["data"]["activeTargets"]
    except httpx.TransportError:
        return {}
    found = {target["labels"]["job"]: target for target in listed if target["health"] != "unknown"}
    return found if len(found) == len(listed) > 0 else {}


def test_tls_is_set_up_as_the_page_says(tree: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs/security.md").read_text()
    block = page.partition("### TLS in five lines\n\n```sh\n")[2].partition("```")[0].replace("node1", "localhost")
    make, write, _, serve, ask = block.replace("\\\n", "").splitlines()
    for line in (make, write):
        subprocess.run(["sh", "-ec", line], cwd=tmp_path, check=True, capture_output=True)
    flag = serve.removeprefix("ibpulse serve ").replace("web.yml", str(tmp_path / "web.yml"))
    daemon = Running(tree, tmp_path / "ring", flag)
    context = ssl.create_default_context(cafile=str(tmp_path / "server.crt"))
    # the certificate is for the name, which curl asks for
    context.check_hostname = False
    daemon.http = {"verify": context}
    with daemon:
        words = ask.replace("localhost:10055", f"localhost:{httpx.URL(daemon.url).port}").split()
        done = subprocess.run([*words, "--ipv4"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "ibpulse_build_info" in done.stdout
