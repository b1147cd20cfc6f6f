"""A small reverse proxy that serves a daemon below a path prefix, as nginx does. It asserts nothing by itself."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

CHUNK = 65536
DROPPED = {"transfer-encoding", "connection", "content-length"}


@contextmanager
def prefixed(url: str, prefix: str) -> Iterator[str]:
    """The URL without a slash at its end below which the proxy has everything; other paths do not exist."""
    target = urlsplit(url).netloc

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            upstream = http.client.HTTPConnection(target)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            upstream.request(self.command, self.path.removeprefix(prefix), body, headers | {"Host": target})
            answer = upstream.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in DROPPED:
                    self.send_header(name, value)
            self.end_headers()
            try:
                while part := answer.read1(CHUNK):
                    self.wfile.write(part)
            except OSError:
                pass  # the browser left
            finally:
                upstream.close()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{prefix}"
    finally:
        server.shutdown()
        server.server_close()
