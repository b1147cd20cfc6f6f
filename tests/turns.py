"""Waiting in asynchronous tests without a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.running import HANG_SECONDS


async def until(check: Callable[[], object]) -> None:
    """Let others run until something is true."""
    async with asyncio.timeout(HANG_SECONDS):
        while not check():
            await asyncio.sleep(0)
