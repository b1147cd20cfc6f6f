"""One loopback address for the page, the boards, Prometheus, and the API of the nodes, as the page needs them."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANSWER_SECONDS = 60


@contextmanager
def serving(page: Path, boards: Path, prometheus: str) -> Iterator[str]:
    """The address of a server of the page in a folder, the boards in another one, and a Prometheus."""
    handler = type("Handler", (_Handler,), {"page": page, "boards": boards, "prometheus": prometheus.rstrip("/")})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    page: Path
    boards: Path
    prometheus: str

    def do_GET(self) -> None:
        address = urllib.parse.urlsplit(self.path)
        if address.path.startswith("/prom/"):
            self._forward(f"{self.prometheus}{address.path.removeprefix('/prom')}?{address.query}")
        elif address.path == "/infinity":
            (target,) = urllib.parse.parse_qs(address.query)["url"]
            if urllib.parse.urlsplit(target).hostname in LOOPBACK:
                self._forward(target)
            else:
                self._answer(403, "application/json", b'{"error": "only nodes on loopback addresses are asked"}')
        else:
            self._file(urllib.parse.unquote(address.path))

    def log_message(self, *_: object) -> None:
        """No line per request."""

    def _forward(self, url: str) -> None:
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
                self._answer(answer.status, answer.headers.get_content_type(), answer.read())
        except urllib.error.HTTPError as error:
            self._answer(error.code, error.headers.get_content_type(), error.read())
        except OSError as error:
            self._answer(502, "application/json", json.dumps({"status": "error", "error": str(error)}).encode())

    def _file(self, path: str) -> None:
        root, name = (self.boards, path.removeprefix("/boards/")) if path.startswith("/boards/") else (self.page, path)
        file = (root / (name.lstrip("/") or "index.html")).resolve()
        if file.is_relative_to(root.resolve()) and file.is_file():
            self._answer(200, TYPES.get(file.suffix, "application/octet-stream"), file.read_bytes())
        else:
            self._answer(404, "text/plain", b"no such file")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
