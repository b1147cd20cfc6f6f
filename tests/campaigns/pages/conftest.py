from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.campaigns.pages.browser import Live, chromium, live
from tests.fabrics import simulated
from tests.programs import missing
from tests.running import Running, eventually


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if name := missing("chromium"):
        pytest.skip(f"no {name}")
    with chromium() as running:
        yield running


@pytest.fixture(scope="package")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A dense run on eight rails, of which `mlx5_6` is idle."""
    with simulated(tmp_path_factory.mktemp("fabric") / "sys", "dense") as directory:
        (directory / "faults.json").write_text('{"idle-rail": ["mlx5_6"]}')
        yield directory


@pytest.fixture(scope="package")
def daemon(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon with some seconds of history."""
    with Running(tree, tmp_path_factory.mktemp("daemon") / "ring") as running:
        eventually(lambda: running.metrics().find("ibpulse_node_step_period_seconds"))
        yield running


@pytest.fixture(scope="package")
def shown(browser: Browser, daemon: Running) -> Iterator[Live]:
    """One page for all tests that leave the daemon alone."""
    with live(browser, daemon.url) as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def rest(browser: Browser) -> Iterator[None]:
    """A page that stays open does not go on drawing while the tests of another file have pages of their own."""
    yield
    for page in (page for context in browser.contexts for page in context.pages):
        page.goto("about:blank")


@pytest.fixture(autouse=True)
def no_complaint(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test may leave an error on the console."""
    yield
    if "shown" in request.fixturenames:
        found: Live = request.getfixturevalue("shown")
        assert found.complaints == []
