from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fleet.hostile import Hostile, hostile
from tests.loop_clock import ClockLoop


def pytest_asyncio_loop_factories() -> dict[str, type[ClockLoop]]:
    """The event loop of every test, which waits for no timer."""
    return {"clock": ClockLoop}


@pytest.fixture
async def server() -> AsyncIterator[Hostile]:
    async with hostile() as state:
        yield state
