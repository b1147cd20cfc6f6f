from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from ibpulse.agent.web.app import create_app
from ibpulse.agent.web.parts import WebParts
from tests.loop_clock import ClockLoop
from tests.web.rings import Node, full_node
from tests.web.served import Files, Served

# their clock is that of the loop; others have processes, threads, or the daemon's own loop
CLOCK_LOOPS = {"test_line_rate", "test_server", "test_stream", "test_stream_states"}


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, type[asyncio.AbstractEventLoop]]:
    """The event loop of a test."""
    return {"loop": ClockLoop if item.path.stem in CLOCK_LOOPS else asyncio.SelectorEventLoop}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = full_node(tmp_path)
    yield made
    made.ring.close()


@pytest.fixture
async def client(node: Node) -> AsyncIterator[httpx.AsyncClient]:
    async with make_client(node.parts()) as made:
        yield made


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates are made once."""
    directory = tmp_path_factory.mktemp("tls")
    Files(directory)
    return directory


@pytest.fixture
def files(certificates: Path, tmp_path: Path) -> Files:
    return Files.copied(certificates, tmp_path)


@pytest.fixture
async def served(files: Files) -> AsyncIterator[Served]:
    async with Served(files) as made:
        yield made


def make_client(parts: WebParts) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=create_app(parts))
    return httpx.AsyncClient(transport=transport, base_url="http://node")
