"""The page names the jobs of the rails at the time that it shows, and whatever a job is called stays text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from ibpulse.core.jobs import Claim, PlacedJob
from ibpulse.core.model import PortId
from tests.campaigns.pages.browser import Live, live
from tests.campaigns.pages.staged import FLAPPED, GONE, PORTS, UNREADABLE, WELL, Stage, at_ms, tick_of
from tests.running import eventually
from tests.web.event_logs import job_event

pytestmark = pytest.mark.needs("chromium")
HOSTILE = "<img src=x onerror=alert(1)>"


def job(name: str, *ports: str, title: str = "") -> PlacedJob:
    """A job on ports by their names."""
    return PlacedJob(Claim(name, "slurm", "file", title), tuple(PortId(port[:-2], 1) for port in ports), "gpus")


EARLY, LATE, LONG = job("early", FLAPPED, UNREADABLE), job("late", WELL, title=HOSTILE), job("x" * 128, WELL, GONE)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Job early has two rails from 3 to 12 s; two jobs share another rail from 14 s on."""
    stage = Stage(tmp_path_factory.mktemp("stage"))
    changes = [(3, "job-began", EARLY), (12, "job-ended", EARLY), (14, "job-began", LATE), (14, "job-began", LONG)]
    for seconds, kind, placed in changes:
        stage.log.add(job_event(stage.node, tick_of(seconds), kind, placed))
    stage.running = (LATE, LONG)
    stage.start()
    yield stage
    stage.stop()


@pytest.fixture(scope="module")
def shown(browser: Browser, story: Stage) -> Iterator[Live]:
    with live(browser, story.url) as found:
        yield found


def labels(shown: Live) -> dict[str, str]:
    """The label of each rail that has one."""
    items = "[...document.querySelectorAll('#names li')].map((li) => [li.querySelector('.long').textContent, "
    found = shown.page.evaluate(items + "li.querySelector('.job').innerText])")
    return {port: text for port, text in found if text}


def test_the_labels_are_the_jobs_of_now(shown: Live) -> None:
    shown.open()
    assert eventually(lambda: labels(shown)) == {WELL: "late +1", GONE: f"…{'x' * 11}"}
    assert shown.text("#jobs") == f"Jobs {'x' * 128}, late ({HOSTILE})"
    # the line is too short for it
    assert shown.page.get_attribute("#jobs", "title") == shown.text("#jobs")
    title = shown.page.get_attribute(f"#names li:nth-child({PORTS.index(WELL) + 1})", "title")
    assert title is not None
    assert title.endswith(f", job late ({HOSTILE}), {'x' * 128}")


def test_a_held_view_has_the_jobs_of_its_time(shown: Live) -> None:
    for begin, end, expected, said in (
        (5, 10, {FLAPPED: "early", UNREADABLE: "early"}, "Job early"),
        (12.5, 13.5, {}, ""),
        (15, 18, {WELL: "late +1", GONE: f"…{'x' * 11}"}, None),
    ):
        shown.open(f"#from={at_ms(begin)}&to={at_ms(end)}")
        shown.wait("held")
        shown.settle()
        assert labels(shown) == expected
        assert said is None or shown.text("#jobs") == said


def test_the_reading_of_a_sample_has_its_job(shown: Live) -> None:
    shown.open(f"#from={at_ms(8)}&to={at_ms(16)}")
    shown.wait("held")
    shown.settle()
    box = shown.page.locator("#waterfall").bounding_box()
    assert box is not None
    # a quarter of the view is at 10 s, three quarters at 14 s
    for part, port, expected in ((0.25, FLAPPED, "job early"), (0.95, FLAPPED, ""), (0.95, WELL, "job late")):
        height = (box["height"] - 28) / len(PORTS)
        shown.page.mouse.move(box["x"] + part * box["width"], box["y"] + (PORTS.index(port) + 0.5) * height)
        eventually(lambda port=port: shown.page.evaluate("document.querySelector('#reading b')?.textContent") == port)
        said = shown.page.evaluate("document.querySelector('#reading .job')?.textContent ?? ''")
        assert said.startswith(expected) if expected else said == ""


def test_names_of_jobs_make_no_elements_and_do_not_widen_the_page(shown: Live) -> None:
    for size in ({"width": 1366, "height": 768}, {"width": 390, "height": 844}):
        shown.page.set_viewport_size(size)
        shown.open()
        eventually(lambda: labels(shown))
        assert shown.page.evaluate("document.querySelectorAll('main img').length") == 0
        width = shown.page.evaluate("document.documentElement.scrollWidth")
        assert width <= size["width"]
        # an id is shortened, but no label is cut off with the number of jobs at its end
        fits = "[...document.querySelectorAll('.names .job')].every((job) => job.scrollWidth <= job.clientWidth)"
        assert shown.page.evaluate(fits)
        assert labels(shown)[WELL] == "late +1"
        column = shown.page.locator("#names").bounding_box()
        assert column is not None
        assert column["width"] < size["width"] / 4
    shown.page.set_viewport_size({"width": 1366, "height": 768})
    assert shown.complaints == []
