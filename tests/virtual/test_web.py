"""The web application of a whole node: paths that lead out, and the families of its metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tables import for_each
from tests.virtual.node import Node

OUT = (
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
    "/api/v1/captures/passwd",
    "/api/v1/captures/a.parquet",
    "/static/",
    "/static/live.html",
    "/static/.%00.js",
    "/static/x/y.js",
)


@pytest.fixture(scope="module")
def node(shared_folder: Path) -> Iterator[Node]:
    config = shared_folder / "web.yml"
    config.write_text("http_server_config: {http2: false}\n")
    with Node(shared_folder, "--capture.allow-unauthenticated=true", f"--web.config.file={config}", rails=2) as node:
        node.run(3)
        yield node


@for_each([(method, path) for path in OUT for method in ("GET", "DELETE")])
def test_no_path_leads_out(method: str, path: str, node: Node) -> None:
    answer = node.send(method, "/", extensions={"target": path.encode()})
    assert answer.status_code in ((404,) if method == "GET" else (404, 405))
    assert answer.headers["content-type"] == "application/problem+json"
    assert str(node.path) not in answer.text
