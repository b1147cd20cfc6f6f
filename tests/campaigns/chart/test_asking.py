"""The program of `helm test` against real pods' stand-ins: a daemon, a server with TLS, and nobody."""

from __future__ import annotations

import http.server
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.chart.rendering import CHART, ROOT, container, one, render
from tests.fabrics import simulated
from tests.running import Running, eventually

PROGRAM = CHART / "files" / "ask.py"


class Ready(http.server.BaseHTTPRequestHandler):
    """Answers everything well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"Ready\n")

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def secret_address(tmp_path: Path) -> Iterator[str]:
    """Address of a server that speaks TLS with a certificate of its own making."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", "/CN=a", "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate")),
        ],
        check=True,
        capture_output=True,
    )
    server = http.server.HTTPServer(("127.0.0.1", 0), Ready)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def entry_point() -> list[str]:
    """What the image runs."""
    (line,) = [line for line in (ROOT / "docker" / "Dockerfile").read_text().splitlines() if line[:10] == "ENTRYPOINT"]
    found: list[str] = json.loads(line.removeprefix("ENTRYPOINT"))
    return found


def ask(*arguments: str) -> tuple[int, str]:
    """Exit code and output of the program."""
    done = subprocess.run(
        # as the pod runs it: from its text, not from a file
        [sys.executable, "-c", PROGRAM.read_text(), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def test_it_passes_when_the_pods_are_ready(tmp_path: Path) -> None:
    with simulated(tmp_path / "sys", "dense", ports=2) as tree, Running(tree, tmp_path / "ring") as daemon:
        code, said = eventually(lambda: answer if (answer := ask(f"{daemon.url}/-/ready"))[0] == 0 else None)
    assert code == 0
    assert "127.0.0.1: 200 Ready: sampling 2 ports.\n1 of 1 pods answer\n" in said


def test_it_fails_when_a_pod_answers_anything_else(tmp_path: Path) -> None:
    with simulated(tmp_path / "sys", "dense", ports=2) as tree, Running(tree, tmp_path / "ring") as daemon:
        code, said = ask(f"{daemon.url}/-/nothing")
    assert code == 1
    assert "127.0.0.1: 404" in said
    assert "0 of 1 pods answer" in said


def test_it_fails_when_nobody_listens() -> None:
    code, said = ask("http://127.0.0.1:1/-/ready")
    assert code == 1
    assert "Connection refused" in said


def test_it_says_that_there_are_no_pods() -> None:
    # a headless Service without pods has no address
    code, said = ask("http://nobody.invalid:1/-/ready")
    assert code == 1
    assert "\nno pods: " in said
    assert "Traceback" not in said


@pytest.mark.needs("openssl")
def test_it_fails_unless_every_expected_pod_is_there(secret_address: str) -> None:
    assert ask(f"{secret_address}/-/ready", "--expect=1")[0] == 0
    assert ask(f"{secret_address}/-/ready", "--expect=2") == (1, "127.0.0.1: 200 Ready\n1 of 2 pods answer\n")


@pytest.mark.needs("openssl")
def test_it_speaks_tls_and_does_not_mind_whose_certificate_it_is(secret_address: str) -> None:
    assert ask(f"{secret_address}/-/ready") == (0, "127.0.0.1: 200 Ready\n1 of 1 pods answer\n")


@pytest.mark.needs("openssl")
def test_it_only_connects_where_everybody_needs_a_certificate(secret_address: str) -> None:
    assert ask(f"{secret_address}/-/ready", "--only-connect") == (0, "127.0.0.1: listens\n1 of 1 pods answer\n")


@pytest.mark.needs("helm")
def test_the_pod_runs_this_program_in_the_image_of_the_others() -> None:
    documents = render()
    tester = one(documents, "Pod")
    (only,) = tester["spec"]["containers"]
    assert tester["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert only["image"] == container(documents)["image"]
    assert only["command"] == [entry_point()[0], "-c"]
    assert only["args"][0].strip() == PROGRAM.read_text().strip()
    assert only["args"][1:] == ["http://r-ibpulse.monitoring.svc:10055/-/ready", "--expect=0"]
    assert tester["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    selector = one(documents, "Service")["spec"]["selector"]
    assert not selector.items() <= tester["metadata"]["labels"].items()
