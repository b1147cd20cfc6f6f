"""The live page while its daemon dies and comes back."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from tests.campaigns.pages.browser import Live, live
from tests.grafana.servers import free_address
from tests.running import Running, eventually

pytestmark = pytest.mark.needs("chromium")


def coloured(found: Live, begin_ms: float, end_ms: float) -> float:
    """Part of a stretch of the first row that is drawn in colours, as values are; holes are grey."""
    row = found.row(0)
    begin, end = found.span()
    first, last = (int((ms - begin) / (end - begin) * len(row)) for ms in (begin_ms, end_ms))
    spread = row.max(axis=1).astype(int) - row.min(axis=1)
    return float(np.mean(spread[first + 1 : last] > 40))


def test_a_lost_connection_is_said_and_recovers(browser: Browser, tree: Path, tmp_path: Path) -> None:
    daemon = Running(tree, tmp_path / "ring", f"--web.listen-address={free_address()}")
    daemon.start()
    try:
        with live(browser, daemon.url) as found:
            found.open("#direction=transmit&span=30000")
            found.wait("live")
            newest = found.page.evaluate("ibpulse.store.streamedMs")
            daemon.stop(signal.SIGKILL)
            # the stream is a batch behind the samples
            killed = time.time() * 1000
            found.wait("lost")
            eventually(lambda: "trying again in" in found.text("#message"))
            daemon.launch()
            found.wait("live")
            eventually(lambda: not found.page.is_visible("#message"))
            eventually(lambda: coloured(found, found.span()[1] - 1000, found.span()[1] - 200) > 0.3)
            found.press(" ")
            found.settle()
            assert coloured(found, newest - 1000, newest) > 0.3
            # nobody sampled: a hole, neither forgotten nor filled
            assert coloured(found, killed + 100, killed + 400) == 0
    finally:
        daemon.stop()
