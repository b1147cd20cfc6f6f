from __future__ import annotations

from tests.fleet.conftest import pytest_asyncio_loop_factories, server

__all__ = ["pytest_asyncio_loop_factories", "server"]
