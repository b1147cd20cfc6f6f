"""The OpenAPI document and the server say the same: schemathesis asks for whatever the document allows, and forbids."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from ibpulse.agent.web.app import create_app
from ibpulse.core.http.server import serve
from tests.running import HANG_SECONDS
from tests.web.event_logs import make_log
from tests.web.rings import full_node

POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
    unsupported_method,
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    node = full_node(tmp_path_factory.mktemp("ring"))
    told: list[str] = []
    ready, done = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        server = await serve(create_app(node.parts(events=make_log(60))), "127.0.0.1", 0)
        told.append(f"http://127.0.0.1:{server.port}")
        ready.set()
        await done.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert ready.wait(HANG_SECONDS)
    yield told[0]
    loop.call_soon_threadsafe(done.set)
    thread.join(HANG_SECONDS)
    loop.close()
    node.ring.close()


PATHS = [
    "/metrics",
    "/api/v1/ports",
    "/api/v1/topology",
    "/api/v1/window",
    "/api/v1/summary",
    "/api/v1/events",
    "/api/v1/jobs",
    "/api/v1/clock",
    "/-/healthy",
    "/-/ready",
]


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        *((path, POSITIVE) for path in PATHS),
        *((path, NEGATIVE) for path in ("/metrics", "/api/v1/window", "/api/v1/summary", "/api/v1/events")),
    ],
)
def test_the_server_keeps_its_document(address: str, path: str, mode: schemathesis.GenerationMode) -> None:
    operation = schemathesis.openapi.from_url(f"{address}/api/openapi.json")[path]["GET"]

    @settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    ask()
