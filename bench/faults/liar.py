"""A node of the gateway that passes on the answers of a daemon, and changes them while it is told to lie."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from bench.faults.service import Service

Lie = Callable[[str, Any], Any]
"""Changes the member of this name, wherever it stands in an answer."""
HEADERS = ("Content-Type", "X-Ibpulse-Interval")


def honest(_name: str, value: Any) -> Any:
    """The value itself."""
    return value


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Say nothing of a gateway that hangs up."""


class Liar:
    """An HTTP server on loopback inside the block."""

    def __init__(self, honest_node: Service) -> None:
        self.lie: Lie = honest
        liar = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urlsplit(honest_node.url)
                asked = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5.0)
                asked.request("GET", self.path)
                answer = asked.getresponse()
                body = liar._change(answer.read(1 << 20) if "stream" not in self.path else b"")
                self.send_response(answer.status)
                for name, text in answer.getheaders():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, text)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Liar:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _change(self, body: bytes) -> bytes:
        if self.lie is honest or not body.startswith((b"{", b"[")):
            return body
        return json.dumps(self._changed("", json.loads(body))).encode()

    def _changed(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._changed(key, member) for key, member in value.items()}
        return [self._changed(name, member) for member in value] if isinstance(value, list) else self.lie(name, value)
