"""The daemon with access control: TLS, certificates and passwords, with the programs that people use."""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import httpx
import pytest

from tests import ROOT
from tests.fabrics import simulated
from tests.programs import find
from tests.running import Running, eventually
from tests.web.certificates import make_authority, sign

PASSWORD = "correct horse"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(5)).decode()


class SecuredDaemon:
    """A daemon that wants a certificate and a password, and what one needs to get in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = make_authority(directory)
        self.server = sign(self.authority, directory, "server", "DNS:localhost,IP:127.0.0.1")
        self.client = sign(self.authority, directory, "prometheus", "DNS:prometheus")
        self.path = directory / "web.yml"
        self.path.write_text(
            "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
            "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: authority.crt\n"
            "http_server_config: {headers: {Strict-Transport-Security: max-age=600}}\n"
            f"basic_auth_users: {{prometheus: {HASH}}}\n"
        )
        self.daemon: Running

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.cert)
        context.load_cert_chain(self.client.cert, self.client.key)
        return context


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with simulated(tmp_path_factory.mktemp("fabric") / "sys", "dense", ports=2) as made:
        yield made


@pytest.fixture(scope="module")
def secured(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredDaemon]:
    directory = tmp_path_factory.mktemp("secured")
    made = SecuredDaemon(directory)
    made.daemon = Running(tree, directory / "ring", f"--web.config.file={made.path}")
    made.daemon.http = {"verify": made.context(), "auth": ("prometheus", PASSWORD)}
    with made.daemon:
        yield made


class Prometheus:
    """A real one with a scrape configuration of its own, and its own front secured from one of our samples' kind."""

    def __init__(self, directory: Path, secured: SecuredDaemon, scrape: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        directory.mkdir()
        config = directory / "prometheus.yml"
        target = secured.daemon.url.removeprefix("https://")
        config.write_text(
            "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: ibpulse\n  scheme: https\n"
            f"  static_configs: [{{targets: ['{target}']}}]\n{scrape}"
        )
        self.process = subprocess.Popen(
            [
                find("prometheus") or "",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
                "--log.level=error",
            ]
        )

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(10)

    def up(self) -> float:
        try:
            answer = httpx.get(self.url + "/api/v1/query", params={"query": "up"}).json()
        except (httpx.TransportError, ValueError):
            return math.nan
        result = answer.get("data", {}).get("result", [])
        return float(result[0]["value"][1]) if result else math.nan

    def error(self) -> str:
        targets = httpx.get(self.url + "/api/v1/targets").json()["data"]["activeTargets"]
        return str(targets[0]["lastError"])


@pytest.mark.needs("prometheus", "promtool")
def test_prometheus_needs_certificate_and_password(secured: SecuredDaemon, tmp_path: Path) -> None:
    with_certificate = (
        f"  tls_config: {{ca_file: {secured.authority.cert}, cert_file: {secured.client.cert}, "
        f"key_file: {secured.client.key}}}\n"
    )
    without = f"  tls_config: {{ca_file: {secured.authority.cert}}}\n"
    login = f"  basic_auth: {{username: prometheus, password: {PASSWORD}}}\n"
    with Prometheus(tmp_path / "good", secured, with_certificate + login) as server:
        eventually(lambda: server.up() == 1.0)
    with Prometheus(tmp_path / "password", secured, with_certificate + login.replace(PASSWORD, "wrong")) as server:
        eventually(lambda: server.up() == 0.0)
        assert "401" in server.error()
    with Prometheus(tmp_path / "certificate", secured, without + login) as server:
        eventually(lambda: server.up() == 0.0)
    subprocess.run(["promtool", "check", "web-config", str(secured.path)], check=True, capture_output=True)


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


def test_the_end_comes_whatever_clients_do(secured: SecuredDaemon, tree: Path, tmp_path: Path) -> None:
    daemon = Running(tree, tmp_path / "ring", f"--web.config.file={secured.path}")
    daemon.http = secured.daemon.http
    daemon.start()
    port = int(daemon.url.rpartition(":")[2])
    basic = httpx.BasicAuth("prometheus", PASSWORD)._auth_header.encode()
    head = b" HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + basic + b"\r\n"
    with contextlib.ExitStack() as stack:
        for said in (
            b"",
            b"GET / HT",
            b"GET /api/v1/stream" + head + b"\r\n",
            b"POST /api/v1/ports" + head + b"Content-Length: 9\r\n\r\nx",
            # an answer that nobody reads
            *[b"GET /api/v1/window?last=10s" + head + b"\r\n"] * 3,
        ):
            slow = stack.enter_context(
                secured.context().wrap_socket(
                    socket.create_connection(("127.0.0.1", port)), server_hostname="localhost"
                )
            )
            slow.sendall(said)
        stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert daemon.stop() == 0
    assert "Traceback" not in daemon.log()
