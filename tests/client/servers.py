"""A real HTTP server with canned answers, for what a daemon of ibpulse never says."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Canned:
    """What is answered at each path, and what was asked: request lines and headers."""

    answers: dict[str, tuple[int, bytes, Mapping[str, str]]] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)
    hang_up: bool = False
    url: str = ""

    def answer(self, path: str, body: bytes, status: int = 200, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = (status, body, named)


@contextmanager
def canned() -> Iterator[Canned]:
    """The server on a free loopback port."""
    state = Canned()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            state.asked.append((self.path, dict(self.headers)))
            state.connections.add(self.client_address)
            status, body, headers = state.answers.get(self.path.partition("?")[0], (404, b"nothing", {}))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            # closes the kept connection without a word, as a server may
            self.close_connection = state.hang_up

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
