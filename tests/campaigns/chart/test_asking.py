"""The program of `helm test`: where pods answer, it is run by tests/campaigns/cluster; here is where they do not."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.campaigns.chart.rendering import CHART
from tests.tables import for_each

PROGRAM = (CHART / "files" / "ask.py").read_text()


class Ready(http.server.BaseHTTPRequestHandler):
    """Answers one path well, and everything else badly."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/-/ready" else 404)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"Ready\n")

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ready) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@for_each(
    [
        (("/-/ready", "--expect=1"), 0, "127.0.0.1: 200 Ready\n1 of 1 pods answer\n"),
        (("/-/ready", "--expect=2"), 1, "127.0.0.1: 200 Ready\n1 of 2 pods answer\n"),
        (("/-/ready", "--only-connect"), 0, "127.0.0.1: listens\n1 of 1 pods answer\n"),
        (("/nothing",), 1, "0 of 1 pods answer"),
        (("http://127.0.0.1:1/-/ready",), 1, "Connection refused"),
        # a headless Service without pods has no address
        (("http://nobody.invalid:1/-/ready",), 1, "\nno pods: "),
    ]
)
def test_it_passes_only_when_every_pod_answers(words: tuple[str, ...], code: int, said: str, address: str) -> None:
    place, *more = words
    # as the pod runs it: from its text, not from a file
    command = [sys.executable, "-c", PROGRAM, address + place if place[0] == "/" else place, *more]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
