"""The page of all nodes: problems first, jobs with their nodes, and the ways to both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.campaigns.pages.browser import Live, live
from tests.campaigns.pages.fleet import AHEAD, DEAD, ENDED, JOB, UNKNOWN, Fleet, Gateway, gateway, now_ms
from tests.campaigns.pages.prefixed import prefixed
from tests.running import eventually

pytestmark = pytest.mark.needs("chromium")
DOWN = "gpu-002"


@pytest.fixture(scope="module")
def served() -> Iterator[Gateway]:
    with gateway(Fleet(16)) as made:
        yield made


@pytest.fixture(scope="module")
def shown(browser: Browser, served: Gateway) -> Iterator[Live]:
    with prefixed(served.url, "/fabric") as url, live(browser, url) as found:
        yield found


def opened(shown: Live, view: str = "") -> list[list[str]]:
    """The rows of the table of nodes."""
    shown.page.goto("about:blank")
    shown.page.goto(f"{shown.url}/{view}")
    eventually(lambda: shown.page.locator("#node-table tbody tr").count())
    return rows(shown, "node")


def rows(shown: Live, table: str) -> list[list[str]]:
    """The cells of a table's body."""
    lines = f"[...document.querySelectorAll('#{table}-table tbody tr')]"
    found: list[list[str]] = shown.page.evaluate(f"{lines}.map((tr) => [...tr.cells].map((td) => td.innerText))")
    return found


def filters(shown: Live) -> list[str]:
    """The counts above the tables."""
    return [str(text) for text in shown.page.locator("#filters button").all_text_contents()]


def test_nodes_with_problems_come_first(shown: Live, served: Gateway) -> None:
    found = opened(shown)
    assert [row[0] for row in found[:4]] == [DEAD, DOWN, AHEAD, UNKNOWN]
    assert [row[1] for row in found[:5]] == [
        "no answer",
        "1 rail down",
        "clock not synchronised",
        "clock not known",
        "ok",
    ]
    assert sorted(row[0] for row in found) == served.fleet.nodes
    assert found[1][:2] == [DOWN, "1 rail down"]
    assert found[1][3:] == ["+0.26 ± 0.12 ms", f"{JOB} (llama-70b)", "1.2.3", "leaf-1", "r01"]
    # a time of day, or a date and one
    assert found[1][2].count(":") == 2
    assert found[4][2] == ""
    assert shown.text("#counts") == "16 nodes"
    assert filters(shown) == ["1 no answer", "1 rail down", "0 rail idle", "0 silent jobs", "2 clock unsure", "12 ok"]
    assert shown.text("#simulated") == "SIMULATED"
    assert shown.page.get_attribute("#node-table tbody tr:first-child td", "title") == "no answer within 1 s"


def test_jobs_are_listed_with_what_is_wrong_on_their_nodes(shown: Live) -> None:
    opened(shown)
    running, ended = rows(shown, "job")
    assert (running[:2], running[3:]) == ([JOB, f"{DOWN}: 1 rail down"], ["15", "llama-70b", "slurm"])
    assert (ended[:2], ended[3:]) == ([ENDED["job_id"], "ended"], ["2", "llama-70b", "slurm"])
    assert ended[2].startswith("2025-11-2")


def test_a_silent_job_is_the_worst_and_says_who_stopped_first(shown: Live, served: Gateway) -> None:
    served.fleet.hung_ms = now_ms() - 258_000
    try:
        opened(shown)
        job = rows(shown, "job")[0]
        assert job[1].startswith("silent for 4 min ")
        assert job[1].endswith("s: gpu-001 sent its last byte 1.9 s or more before every other node")
        assert shown.page.get_attribute("#job-table tbody td", "class").startswith("bad")
        assert "1 silent job" in filters(shown)
        assert shown.page.title().startswith(f"▼ {JOB}: node")
    finally:
        served.fleet.hung_ms = None


def test_counts_are_filters_that_stay_in_the_address(shown: Live, served: Gateway) -> None:
    served.fleet.idle = {"gpu-010", "gpu-011"}
    try:
        opened(shown)
        shown.page.click("#filters button:has-text('rail idle')")
        assert [row[:2] for row in rows(shown, "node")] == [["gpu-010", "1 rail idle"], ["gpu-011", "1 rail idle"]]
        assert shown.page.get_attribute("#node-table tbody td", "class") == "warn"
        assert shown.text("#counts") == "2 of 16 nodes"
        assert shown.page.url.endswith("/#&state=idle")
        assert len(opened(shown, "#gpu-01&state=idle")) == 2
        shown.page.click("#filters button[aria-pressed=true]")
        assert len(rows(shown, "node")) == 7
    finally:
        served.fleet.idle = set()


def test_many_nodes_without_an_answer_are_one_line(browser: Browser) -> None:
    fleet = Fleet(60)
    fleet.dead = set(fleet.nodes[4:])
    with gateway(fleet) as made, live(browser, made.url) as found:
        assert [row[0] for row in opened(found)] == [DOWN, "gpu-001", "gpu-003", "gpu-004"]
        assert found.text("#lost-title").startswith("56 nodes do not answer · r02: 4, r03: 4, ")
        assert not found.page.is_visible("#lost-table")
        found.page.click("#filters button:has-text('no answer')")
        assert found.page.is_visible("#lost-table")
        assert len(rows(found, "lost")) == 56
        assert not found.page.is_visible("#node-table")


def test_nodes_and_jobs_are_opened(shown: Live) -> None:
    opened(shown)
    shown.page.click(f"#node-table a:text-is('{DOWN}')")
    assert shown.page.url == f"{shown.url}/node/{DOWN}/"
    shown.page.click("nav a")
    shown.page.click("#job-table a >> nth=0")
    assert shown.page.url == f"{shown.url}/job/{JOB}"
    eventually(lambda: shown.text("#host") == f"job {JOB}")
    assert shown.complaints == []


def test_a_text_finds_nodes_and_stays_in_the_address(shown: Live) -> None:
    opened(shown)
    shown.page.fill("#find", "r04")
    assert [row[0] for row in rows(shown, "node")] == ["gpu-013", "gpu-014", "gpu-015", "gpu-016"]
    assert shown.text("#counts").startswith("4 of 16 nodes")
    assert shown.page.url.endswith("/#r04")
    assert [row[0] for row in opened(shown, "#no%20answer")] == [DEAD]


def test_a_source_that_fails_and_a_change_of_a_node_are_seen(shown: Live, served: Gateway) -> None:
    opened(shown)
    served.fleet.dead.add("gpu-016")
    served.fleet.problem = "no such file"
    try:
        eventually(lambda: rows(shown, "node")[1][0] == "gpu-016")
        assert "file nodes.yml: no such file. Its last answer is 12 s old and still in use." in shown.text("#notices")
    finally:
        served.fleet.dead.remove("gpu-016")
        served.fleet.problem = ""


def test_names_are_text(browser: Browser) -> None:
    fleet = Fleet(2)
    fleet.nodes = ["<img src=x onerror=alert(1)>", "a/b c"]
    fleet.dead.clear()
    with gateway(fleet) as made, live(browser, made.url) as found:
        opened(found)
        assert found.page.locator("main img").count() == 0
        links = [found.page.locator("#node-table a[href^=node]").nth(at).get_attribute("href") for at in (0, 1)]
        assert set(links) == {"node/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E/", "node/a%2Fb%20c/"}
        assert found.complaints == []
