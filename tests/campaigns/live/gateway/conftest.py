from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.fabrics import simulated
from tests.fleet.hostile import Hostile, hostile
from tests.gateway.gateways import Gateway
from tests.running import Running


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A real node, which calls itself gpu-7."""
    directory = tmp_path_factory.mktemp("node")
    (directory / "own").mkdir()
    with (
        simulated(directory / "sys", "dense", ports=2) as tree,
        Running(tree, directory / "own" / "ring", "--capture.node=gpu-7") as running,
    ):
        yield running


@pytest.fixture
async def server() -> AsyncIterator[Hostile]:
    async with hostile() as state:
        yield state


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    made = Gateway(tmp_path)
    yield made
    await made.close()
