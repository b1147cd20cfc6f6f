"""The page of a node without a gateway: what the node knows of a job that fell silent, on a card and in the title."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.campaigns.pages.browser import live
from tests.fabrics import simulated
from tests.running import Running, eventually

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Path]:
    """Two rails with a job."""
    with simulated(tmp_path / "sys", "dense", ports=2, jobs=1) as tree:
        yield tree


@pytest.fixture
def alone(fabric: Path, tmp_path: Path) -> Iterator[Running]:
    """A daemon that knows how long the job is silent in each step."""
    with Running(fabric, tmp_path / "ring", f"--jobs.owners-dir={fabric / 'jobs'}") as daemon:
        eventually(lambda: [job["regular_ms"] or 0 for job in daemon.ask("/api/v1/silences").json()["jobs"]] > [0])
        yield daemon


def tell(fabric: Path, faults: Mapping[str, object]) -> None:
    fresh = fabric / "faults.new"
    fresh.write_text(json.dumps(faults))
    fresh.rename(fabric / "faults.json")


def test_a_node_without_a_gateway_has_a_card_of_its_own_verdict(browser: Browser, fabric: Path, alone: Running) -> None:
    with live(browser, alone.url) as shown:
        shown.open()
        node, card = shown.text("#host"), shown.page.get_by_role("region", name="Verdict")
        assert (shown.page.title(), card.count()) == (f"{node} · ibpulse", 0)
        tell(fabric, {"workload": "idle", "link-flap": ["mlx5_1"]})
        eventually(lambda: shown.page.title() == f"▼ Job 1001: link · {node} · ibpulse")
        words = card.inner_text()
        assert words.startswith(f"Job 1001: {node} mlx5_1:1 lost its link ")
        assert "Silent for " in words
        assert "what the other nodes of the job did" in words
        card.get_by_role("button", name="Show the moment").click()
        shown.wait("held")
        (job,) = alone.ask("/api/v1/verdicts").json()["jobs"]
        begin, end = shown.span()
        assert begin < job["stalls"][0]["since_ms"] < end
        tell(fabric, {})
        # the card goes on while the view is held, and stays
        eventually(lambda: "Traffic returned after " in card.inner_text())
        assert shown.page.title() == f"{node} · ibpulse"
        assert shown.complaints == []
