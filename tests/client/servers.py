"""A real HTTP server with canned answers, for what a daemon of ibpulse never says."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import numpy.typing as npt

WINDOW = {
    "interval_ms": 10,
    "resolution_ms": 10,
    "statistic": "mean",
    "unit": "bytes_per_second",
    "start_ms": 1000,
    "end_ms": 2000,
    "holes": 0,
    "implausible": {"merged": 0, "unexplained": 0, "places": []},
    "history": {"oldest_ms": 0, "newest_ms": 2000},
    "coverage": "",
    "series": ["mlx5_0:1 transmit", "mlx5_0:1 receive"],
}
NO_SIGNALS = (
    200,
    json.dumps({**WINDOW, "series": [], "points": 0, "signals": []}).encode(),
    {"Content-Type": "application/json"},
)


def npy(values: npt.NDArray[Any]) -> bytes:
    """An array in the format of NumPy."""
    body = io.BytesIO()
    np.save(body, values)
    return body.getvalue()


@dataclass
class Canned:
    """What is answered at each path, and what was asked: request lines and headers."""

    answers: dict[str, tuple[int, bytes, Mapping[str, str]]] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)
    hang_up: bool = False
    url: str = ""

    def answer(self, path: str, body: bytes, status: int = 200, **headers: str) -> None:
        kind = "application/json" if status < 400 else "application/problem+json"
        given = {"Content_Type": "application/x-npy" if "X_Ibpulse_Window" in headers else kind, **headers}
        self.answers[path] = (status, body, {name.replace("_", "-"): value for name, value in given.items()})

    def answer_window(self, values: npt.NDArray[Any], **head: Any) -> None:
        """From now on, the window has these values, (series, points)."""
        about = {**WINDOW, "points": values.shape[1], **head}
        self.answer("/api/v1/window", npy(values.astype(np.float32)), X_Ibpulse_Window=json.dumps(about))


@contextmanager
def canned() -> Iterator[Canned]:
    """The server on a free loopback port."""
    state = Canned()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            state.asked.append((self.path, dict(self.headers)))
            state.connections.add(self.client_address)
            path, _, query = self.path.partition("?")
            # no port has signals, unless a test answers otherwise
            path, otherwise = ("signals", NO_SIGNALS) if "signals=true" in query else (path, (404, b"", {}))
            status, body, headers = state.answers.get(path, otherwise)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            # closes the kept connection without a word, as a server may
            self.close_connection = state.hang_up

        do_POST = do_GET  # noqa: N815 (the name is the base class's)

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
