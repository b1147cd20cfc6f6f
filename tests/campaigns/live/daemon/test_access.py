"""The daemon with access control: TLS, certificates and passwords, with the programs that people use."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import httpx
import pytest

from ibpulse.metrics import web
from tests import ROOT
from tests.fabrics import simulated
from tests.metrics.exported import exported_names
from tests.running import Running, eventually
from tests.web.certificates import Pair, make_authority, sign

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
needs_prometheus = [
    pytest.mark.needs("prometheus", "promtool"),
]
PASSWORD = "correct horse"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(5)).decode()
BROKEN_OFF = (35, 52, 55, 56)


class SecuredDaemon:
    """A daemon that wants a certificate and a password, and what one needs to get in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = make_authority(directory)
        self.server = sign(self.authority, directory, "server", "DNS:localhost,IP:127.0.0.1")
        self.client = sign(self.authority, directory, "prometheus", "DNS:prometheus")
        self.stranger = sign(make_authority(directory, "elsewhere"), directory, "stranger", "DNS:prometheus")
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

    def curl(self, path: str, *flags: str, client: Pair | None = None, url: str = "") -> tuple[int, int]:
        """Exit status of curl and the HTTP status."""
        words = ["curl", "--silent", "--max-time", "20", "--cacert", str(self.authority.cert), "--path-as-is"]
        certificate = (client or self.client).curl()
        written = ["--output", "/dev/null", "--write-out", "%{http_code}"]
        done = subprocess.run(
            [*words, *certificate, *written, *flags, (url or self.daemon.url) + path],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, int(done.stdout[-3:])


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


LOGIN = ("--user", f"prometheus:{PASSWORD}")


def test_the_log_says_where_to_connect_with_tls(secured: SecuredDaemon) -> None:
    assert secured.daemon.url.startswith("https://127.0.0.1:")


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/ports", "/api/v1/window?last=1s", "/api/docs"])
def test_curl_gets_in_with_certificate_and_password(secured: SecuredDaemon, path: str) -> None:
    assert secured.curl(path, *LOGIN) == (0, 200)


@pytest.mark.parametrize(
    "flags", [(), ("--user", "prometheus:wrong"), ("--user", "nobody:x"), ("--oauth2-bearer", "x"), ("--user", ":")]
)
def test_wrong_credentials_do_not_open(secured: SecuredDaemon, flags: tuple[str, ...]) -> None:
    assert secured.curl("/metrics", *flags) == (0, 401)


@pytest.mark.parametrize("path", ["/-/healthy", "/-/ready"])
def test_the_probes_need_no_password(secured: SecuredDaemon, path: str) -> None:
    assert secured.curl(path) == (0, 200)


@pytest.mark.parametrize(("path", "status"), [("/metrics", 421), ("/api/v1/ports", 421), ("/-/healthy", 200)])
def test_a_daemon_on_a_loopback_address_serves_no_rebound_name(secured: SecuredDaemon, path: str, status: int) -> None:
    assert secured.curl(path, *LOGIN, "--header", "Host: evil.example") == (0, status)


def test_a_certificate_of_another_authority_does_not_get_in(secured: SecuredDaemon) -> None:
    assert secured.curl("/metrics", *LOGIN, client=secured.stranger)[0] in BROKEN_OFF


def test_plain_http_does_not_get_in(secured: SecuredDaemon) -> None:
    status, code = secured.curl("/metrics", *LOGIN, url=secured.daemon.url.replace("https", "http"))
    assert (status in BROKEN_OFF, code) == (True, 0)


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/ready", "/nothing"])
def test_security_headers_stand_on_every_answer(secured: SecuredDaemon, path: str) -> None:
    answer = secured.daemon.ask(path)
    assert answer.headers["strict-transport-security"] == "max-age=600"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/..%2f..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/../../../../etc/passwd",
        "/static/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/api/v1/captures/../../../../etc/passwd",
        "/api/v1/captures/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/api/v1/captures/%2e%2e%2fring",
        "/api/v1/captures/%00",
        "/api/v1/captures//etc/passwd",
        "/api/v1/captures/C:%5cwindows",
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_no_path_leads_out(secured: SecuredDaemon, path: str, method: str) -> None:
    status, code = secured.curl(path, *LOGIN, "--request", method)
    assert status == 0
    assert 400 <= code < 500


def test_an_oversized_body_is_refused(secured: SecuredDaemon, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"x" * 3_000_000)
    assert secured.curl("/api/v1/ports", *LOGIN, "--data-binary", f"@{tmp_path / 'body'}")[1] == 413
    chunked = ("--header", "Transfer-Encoding: chunked", "--data-binary", f"@{tmp_path / 'body'}")
    assert secured.curl("/api/v1/ports", *LOGIN, *chunked)[1] in (0, 413)
    assert secured.curl("/-/healthy") == (0, 200)


def shown(secured: SecuredDaemon) -> str:
    """Serial number of the certificate that a new connection is shown."""
    port = int(secured.daemon.url.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        secured.context().wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        return str((tls.getpeercert() or {})["serialNumber"])


def test_a_renewed_certificate_is_shown_within_seconds_and_old_connections_live_on(secured: SecuredDaemon) -> None:
    with httpx.Client(base_url=secured.daemon.url, **secured.daemon.http) as kept:
        assert kept.get("/-/ready").status_code == 200
        before = shown(secured)
        sign(secured.authority, secured.directory, "server", "DNS:localhost,IP:127.0.0.1")
        eventually(lambda: shown(secured) != before)
        assert kept.get("/-/ready").status_code == 200
        assert "reloaded the web configuration" in secured.daemon.log()


def test_a_broken_certificate_shows_in_the_metrics_and_the_old_one_serves_on(secured: SecuredDaemon) -> None:
    name = "ibpulse_web_config_last_reload_successful"
    good = secured.server.cert.read_bytes()
    try:
        secured.server.cert.write_text("half")
        eventually(lambda: secured.daemon.metrics().value(name) == 0.0)
        assert secured.daemon.log().count("web configuration not reloaded") == 1
    finally:
        secured.server.cert.write_bytes(good)
    eventually(lambda: secured.daemon.metrics().value(name) == 1.0)


def test_every_family_of_the_running_daemon_is_in_the_table_and_in_the_docs(secured: SecuredDaemon) -> None:
    answers = [secured.daemon.ask("/metrics").text for _ in range(2)]
    # the second one has the request of the first
    scraped = [line.split()[2] for line in answers[1].splitlines() if line.startswith("# TYPE")]
    assert scraped == [name for name in exported_names() if name in scraped]
    assert {row.name for row in web.ROWS} <= set(scraped)
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert [name for name in scraped if f"| `{name}` |" not in page] == []


def test_slow_clients_and_guessers_hold_up_no_scrape_and_no_tick(secured: SecuredDaemon) -> None:
    port = int(secured.daemon.url.rpartition(":")[2])
    before = secured.daemon.metrics()
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        for number in range(30):
            slow = stack.enter_context(
                secured.context().wrap_socket(
                    socket.create_connection(("127.0.0.1", port)), server_hostname="localhost"
                )
            )
            slow.sendall(b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\nx" if number % 2 else b"GET /metr")
        begun = time.monotonic()
        refused = [secured.curl("/metrics", "--user", f"prometheus:{number}")[1] for number in range(5)]
        answers = [secured.daemon.ask("/metrics").status_code for _ in range(5)]
        assert time.monotonic() - begun < 10
    assert (set(refused), set(answers)) == ({401}, {200})
    eventually(
        lambda: (
            secured.daemon.metrics().value("ibpulse_sampler_ticks_total") > before.value("ibpulse_sampler_ticks_total")
        )
    )


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
        assert PROMETHEUS
        self.process = subprocess.Popen(
            [
                PROMETHEUS,
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


TLS = "  tls_config: {{ca_file: {ca}, cert_file: {cert}, key_file: {key}}}\n"
BASIC = "  basic_auth: {{username: prometheus, password: {password}}}\n"


@pytest.fixture(scope="module")
def tls(secured: SecuredDaemon) -> str:
    return TLS.format(ca=secured.authority.cert, cert=secured.client.cert, key=secured.client.key)


class TestPrometheus:
    pytestmark = needs_prometheus

    def test_prometheus_scrapes_with_certificate_and_password(
        self, secured: SecuredDaemon, tls: str, tmp_path: Path
    ) -> None:
        with Prometheus(tmp_path / "prometheus", secured, tls + BASIC.format(password=PASSWORD)) as server:
            eventually(lambda: server.up() == 1.0)

    def test_prometheus_with_a_wrong_password_is_told_401(
        self, secured: SecuredDaemon, tls: str, tmp_path: Path
    ) -> None:
        with Prometheus(tmp_path / "prometheus", secured, tls + BASIC.format(password="wrong")) as server:
            eventually(lambda: server.up() == 0.0)
            assert "401" in server.error()

    def test_prometheus_without_a_certificate_does_not_get_in(self, secured: SecuredDaemon, tmp_path: Path) -> None:
        scrape = f"  tls_config: {{ca_file: {secured.authority.cert}}}\n" + BASIC.format(password=PASSWORD)
        with Prometheus(tmp_path / "prometheus", secured, scrape) as server:
            eventually(lambda: server.up() == 0.0)

    def test_promtool_accepts_the_file_that_the_daemon_runs_with(self, secured: SecuredDaemon) -> None:
        assert PROMTOOL
        subprocess.run([PROMTOOL, "check", "web-config", str(secured.path)], check=True, capture_output=True)


def run_ibpulse(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ibpulse", *words], capture_output=True, text=True, check=False)


def test_the_faults_of_the_file_are_told_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text("tls_server_config: {cert_file: a, key_file: b}\nbasic_auth_users: {x: y}\n")
    for verb in (("config", "check"), ("serve", f"--ring.dir={tmp_path / 'ring'}")):
        done = run_ibpulse(*verb, f"--web.config.file={path}")
        assert done.returncode == 2
        assert done.stderr.startswith(f"ibpulse: {path}:2: basic_auth_users.x: is not a bcrypt hash; ")
    path.write_text("[" * 5000)
    for flag in ("web.config.file", "config.file", "topology.file"):
        for verb in (("config", "check"), ("serve", f"--ring.dir={tmp_path / 'ring'}")):
            done = run_ibpulse(*verb, f"--{flag}={path}")
            assert (done.returncode, done.stderr.count("\n")) == (2, 1)
            assert f"{path}:1: more than 20 levels deep; correct the brackets or the indentation" in done.stderr
    path.write_text("tls_server_config: {cert_file: a, key_file: b}\n")
    assert run_ibpulse("config", "check", f"--web.config.file={path}").stderr.count("cannot be read: No such file") == 2


def test_unequal_costs_are_told_when_the_configuration_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    other = bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode()
    path.write_text(f"basic_auth_users: {{alice: {HASH}, bob: {other}}}\n")
    done = run_ibpulse("config", "check", f"--web.config.file={path}")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "the hashes have costs of 4 and 5, so the time of a refusal tells" in done.stderr


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


def test_a_configuration_without_faults_is_checked_and_printed(secured: SecuredDaemon) -> None:
    done = run_ibpulse("config", "print", "--format=json", f"--web.config.file={secured.path}")
    assert json.loads(done.stdout)["web"]["config.file"] == str(secured.path)


def test_the_end_comes_within_five_seconds_whatever_clients_do(
    secured: SecuredDaemon, tree: Path, tmp_path: Path
) -> None:
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
        time.sleep(0.5)
        begun = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - begun < 5.0
    assert "Traceback" not in daemon.log()
