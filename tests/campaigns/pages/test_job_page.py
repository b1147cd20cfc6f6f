"""The page of a job over a small real server with simulated nodes: rows, order, clocks, and the way to a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from tests.campaigns.pages.browser import Live, live
from tests.campaigns.pages.fleet import (
    AHEAD,
    DEAD,
    HOT,
    JOB,
    LATE,
    LATE_MS,
    PERIOD_MS,
    UNKNOWN,
    Fleet,
    Gateway,
    gateway,
    now_ms,
)
from tests.campaigns.pages.prefixed import prefixed
from tests.running import eventually

pytestmark = pytest.mark.needs("chromium")
PREFIX = "/fabric"
CAPTURE = "20251121T000012.000Z-rail-lost-1f6c0a2e.parquet"


class JobLive(Live):
    """The page of the job below a path prefix."""

    def open(self, view: str = "") -> None:
        super().open(f"job/{JOB}{view}")
        eventually(lambda: {*self.clocks().values()} - {"", "± ?"})

    def names(self) -> list[str]:
        """The rows from top to bottom."""
        return [str(text) for text in self.page.locator("#names .long").all_text_contents()]

    def clocks(self) -> dict[str, str]:
        return dict(zip(self.names(), self.page.locator("#names .clock").all_text_contents(), strict=True))

    def labels(self) -> dict[str, str]:
        """The rows that have a problem."""
        marks = self.page.locator("#names .mark").all_text_contents()
        return {name: text for name, text in zip(self.names(), marks, strict=True) if text}


@pytest.fixture(scope="module")
def served() -> Iterator[Gateway]:
    with gateway(Fleet(16)) as made:
        yield made


@pytest.fixture(scope="module")
def shown(browser: Browser, served: Gateway) -> Iterator[JobLive]:
    with prefixed(served.url, PREFIX) as url, live(browser, url) as found:
        yield JobLive(found.page, found.context, url, found.complaints, found.requests)


def held_view(seconds: float = 4.0) -> str:
    """The fragment of a view that ended some seconds ago."""
    end = now_ms() - 3000
    return f"#from={end - round(seconds * 1000)}&to={end}"


def test_each_node_has_a_row_with_its_clock_and_the_latest_is_first(shown: JobLive, served: Gateway) -> None:
    shown.open()
    shown.wait("live")
    eventually(lambda: shown.names()[0] == LATE)
    assert sorted(shown.names()) == served.fleet.nodes
    # what is not known comes last
    assert shown.names()[-2:] == [DEAD, UNKNOWN]
    clocks = shown.clocks()
    assert clocks[AHEAD] == "+12.10 ± 0.12 ms"
    assert (clocks[DEAD], clocks[UNKNOWN]) == ("± ?", "± ?")
    assert shown.labels() == {LATE: "38.6 ms late", DEAD: "no answer"}
    assert shown.text("#notices") == f"No answer from: {DEAD}."
    title = shown.page.get_attribute("#names li:first-child", "title")
    assert title == f"{LATE}: ACTIVE, 400 GB/s in each direction, rack r01, leaf leaf-1. " + (
        "Its clock is 0.28 ± 0.12 ms ahead of the gateway's."
    )


def test_a_stall_says_who_stopped_first_and_leads_to_the_moment(shown: JobLive, served: Gateway) -> None:
    served.fleet.hung_ms = hung_ms = now_ms() - 64_000
    try:
        shown.open()
        eventually(lambda: shown.page.is_visible(".stall"))
        words = shown.text(".stall p")
        assert words.startswith("gpu-001 sent its last byte 1.9 s or more before every other node. Last byte at ")
        assert words.split(". ")[-1].startswith("Silent for 1 min ")
        assert "gpu-001: stopped first" in shown.card("Latest node")
        assert "no rail has lost" in shown.text(".verdict")
        assert shown.text(".verdict").count("gpu-001 sent its last byte") == 1
        eventually(lambda: shown.names()[0] == "gpu-001")
        assert (shown.labels()["gpu-001"], shown.labels()["gpu-002"]) == ("stopped first", "silent")
        shown.page.click(".stall button")
        shown.wait("held")
        assert shown.span() == (hung_ms - 5020, hung_ms + 3000)
    finally:
        served.fleet.hung_ms = None


def test_it_is_live_at_the_width_of_a_batch_and_held_sample_by_sample(shown: JobLive) -> None:
    shown.open()
    shown.wait("live")
    assert "Each column is the highest 10 ms sample in 100 ms." in shown.text("#column")
    shown.press("+", "+", "+", "+", "+", "+", "+", "+", "+", "+")
    eventually(lambda: "in 100 ms" in shown.text("#column"))
    assert shown.page.evaluate("[...ibpulse.store.tiles.values()].every((tile) => tile.widthMs >= 100)")
    shown.open(held_view())
    shown.wait("held")
    shown.settle()
    assert "Each column is one 10 ms sample." in shown.text("#column")
    assert "have no order" in shown.text("#column")


def test_a_late_node_is_late_in_the_picture_and_one_that_does_not_answer_has_no_data(shown: JobLive) -> None:
    shown.open(f"{held_view()}&direction=transmit&sort=name")
    shown.wait("held")
    shown.settle()
    begin, end = shown.span()

    def edges(row: int) -> np.ndarray:
        """Times at which a row changes from no traffic to traffic."""
        pixels = shown.row(row, 16).astype(int)
        dark = np.abs(pixels - (0x44, 0x01, 0x54)).max(axis=1) < 12
        places = np.flatnonzero(dark[:-1] & ~dark[1:]) + 1
        return np.asarray(begin + places * (end - begin) / len(pixels))

    # of each edge of one row to each of the other one, as if they were of the same step
    later = (edges(2)[:, np.newaxis] - edges(5)) % PERIOD_MS
    assert np.median(later) == pytest.approx(LATE_MS, abs=12)
    grey = shown.row(4, 16)
    assert (grey.max(axis=1).astype(int) - grey.min(axis=1) < 40).mean() > 0.9


def test_the_rows_are_sorted_as_asked(shown: JobLive, served: Gateway) -> None:
    shown.open("#sort=name")
    eventually(lambda: shown.names() == served.fleet.nodes)
    shown.page.click("[data-sort=rack]")
    assert "sort=rack" in shown.page.url
    eventually(lambda: shown.names() == served.fleet.nodes)
    # also while a row is read, which otherwise keeps the order
    shown.press("ArrowDown", "s")
    eventually(lambda: shown.names()[0] == LATE)
    assert "sort" not in shown.page.url
    shown.press("s")
    assert "sort=bandwidth" in shown.page.url


ORDERED = """async ([numbers, order]) => {
  const { ordered } = await import(new URL('job_rows.js', document.querySelector('script[type=module]').src));
  const ports = Object.keys(numbers).map((port) => ({ port, labels: numbers[port].labels }));
  return ordered(ports, new Map(Object.entries(numbers)), order);
}"""


def late(ms: float | None, doubt: float) -> dict[str, float | None]:
    return {"lateness_ms": ms, "lateness_uncertainty_ms": doubt}


@pytest.mark.parametrize(
    ("order", "numbers", "expected"),
    [
        # within the uncertainty of the clocks there is no order but that of the names
        (
            "lateness",
            {"n10": late(4, 5), "n2": late(3, 5), "n1": late(9, 5), "n0": late(None, 1)},
            ["n1", "n2", "n10", "n0"],
        ),
        (
            "bandwidth",
            {"a": {"active_bytes_per_second": 1}, "b": {}, "c": {"active_bytes_per_second": 2}},
            ["c", "a", "b"],
        ),
        ("rack", {"a": {"labels": {"rack": "r10"}}, "b": {"labels": {"rack": "r9"}}, "c": {}}, ["b", "a", "c"]),
        ("name", {"n10": {}, "n9": {}}, ["n9", "n10"]),
    ],
)
def test_an_order_claims_no_more_than_is_known(
    shown: JobLive, order: str, numbers: dict[str, Any], expected: list[str]
) -> None:
    shown.open()
    assert shown.page.evaluate(ORDERED, [numbers, order]) == expected


def test_the_rails_of_chosen_nodes_have_rows_of_their_own(shown: JobLive) -> None:
    shown.open()
    shown.wait("live")
    eventually(lambda: shown.names()[0] == LATE)
    shown.press("n")
    eventually(lambda: f"{LATE} {HOT}" in shown.names())
    assert len(shown.names()) == 16
    assert f"rows=rails&nodes={LATE},gpu-001" in shown.page.url
    link = shown.page.get_attribute(f"#names .node:has-text('{LATE} {HOT}')", "href")
    assert link == f"../node/{LATE}/#ports={HOT}"
    shown.press("n")
    eventually(lambda: len(shown.names()) == 16 and LATE in shown.names())
    assert "#" not in shown.page.url


def test_events_name_their_node_and_its_clock(shown: JobLive, served: Gateway) -> None:
    at = now_ms() - 4000
    common = {"uncertainty_ms": 0, "node": AHEAD}
    down = {"time_ms": at, "kind": "link-down", "subject": "mlx5_1:1", "text": "mlx5_1:1 went down", "details": {}}
    took = {"time_ms": at + 600, "kind": "capture", "subject": "", "text": "took", "details": {"name": CAPTURE}}
    served.fleet.events = [common | down, common | took]
    try:
        shown.open(held_view())
        eventually(lambda: shown.page.locator(".mark-event").count() == 2)
        eventually(lambda: shown.clocks()[AHEAD] != "± ?")

        def card(number: int) -> str:
            # an open card keeps its text
            shown.page.locator(".mark-event").nth(number).blur()
            shown.page.locator(".mark-event").nth(number).focus()
            return shown.text("#event-card")

        # marks are drawn again once the clock of their node is known
        eventually(lambda: f"on the clock of {AHEAD}, +12.10 ± 0.12 ms" in card(0))
        assert f"{AHEAD} mlx5_1:1 went down" in card(0)
        shown.page.locator(".mark-event").nth(1).focus()
        link = shown.page.get_attribute("#event-card a", "href")
        assert link == f"../node/{AHEAD}/api/v1/captures/{CAPTURE}"
    finally:
        served.fleet.events = []


def test_sixty_four_nodes_fit_a_phone(browser: Browser) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True}
    with gateway(Fleet(64)) as made, live(browser, made.url, **phone) as found:
        page = JobLive(found.page, found.context, found.url, found.complaints, found.requests)
        page.open()
        page.wait("live")
        eventually(lambda: all(text.endswith(("ms", "± ?")) for text in page.clocks().values()))
        assert len(page.names()) == 64
        assert found.page.evaluate("document.documentElement.scrollWidth") == 390
        canvas = found.page.locator("#waterfall").bounding_box()
        assert canvas
        assert canvas["width"] > 130
        assert found.complaints == []
