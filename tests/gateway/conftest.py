from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fleet.daemons import Daemon, running, use_loop_clock
from tests.fleet.hostile import Hostile, hostile
from tests.gateway.gateways import Gateway
from tests.loop_clock import ClockLoop


def pytest_asyncio_loop_factories() -> dict[str, type[ClockLoop]]:
    """The event loop of every test, which waits for no timer."""
    return {"clock": ClockLoop}


@pytest.fixture
async def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Daemon]:
    """A node that calls itself gpu-7, with the clock of the gateway."""
    use_loop_clock(monkeypatch)
    async with running(tmp_path / "daemon", "gpu-7") as made:
        yield made


@pytest.fixture
async def server() -> AsyncIterator[Hostile]:
    async with hostile() as state:
        yield state


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    made = Gateway(tmp_path)
    yield made
    await made.close()
