from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.fleet.daemons import LOOP_CLOCK, Daemon, running
from tests.fleet.hostile import Hostile, hostile
from tests.gateway.gateways import Gateway
from tests.loop_clock import ClockLoop


def pytest_asyncio_loop_factories() -> dict[str, type[ClockLoop]]:
    """The event loop of every test, which waits for no timer."""
    return {"clock": ClockLoop}


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    """A node that calls itself gpu-7, with the clock of the gateway."""
    async with running(tmp_path / "daemon", "gpu-7") as made:
        yield made


@pytest.fixture
async def server() -> AsyncIterator[Hostile]:
    async with hostile() as state:
        yield state


@pytest.fixture
async def gateway(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Gateway]:
    clock = LOOP_CLOCK if "daemon" in request.fixturenames else time
    async with aclosing(Gateway(tmp_path, clock=clock)) as made:
        yield made


@pytest.fixture
async def writable(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway that takes captures for anyone."""
    async with aclosing(Gateway(tmp_path, allow_unauthenticated=True)) as made:
        yield made
