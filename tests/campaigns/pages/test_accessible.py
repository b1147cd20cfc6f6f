"""The page without a mouse and without eyes: axe in every state and both themes, help by keyboard and touch, text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.campaigns.pages.browser import Live, live
from tests.node_packages import fetch_package
from tests.running import Running, eventually

pytestmark = pytest.mark.needs("chromium")
MODULES = Path(__file__).parent / "node"
PACKAGE, VERSION = "axe-core", "4.14.1"
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True}


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core as JavaScript."""
    directory = fetch_package(MODULES, PACKAGE, VERSION)
    return (directory / "node_modules" / PACKAGE / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Page, source: str) -> list[str]:
    """What axe finds in the page as it is now: rule and elements."""
    # the content policy refuses scripts of others, but not the debugger
    page.evaluate(f"() => {{ if (!window.axe) {{ {source} }} }}")
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations)")
    return [f"{each['id']}: {'; '.join(node['html'][:120] for node in each['nodes'][:3])}" for each in found]


@pytest.fixture(scope="module")
def phone(browser: Browser, daemon: Running) -> Iterator[Live]:
    with live(browser, daemon.url, **PHONE) as found:
        yield found


def click(shown: Live, selector: str) -> None:
    shown.page.locator(selector).first.click()


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_finds_nothing_in_any_state(shown: Live, axe: str, theme: str) -> None:
    shown.open(f"#theme={theme}")
    shown.wait("live")
    eventually(lambda: "GB/s" in shown.card("Peak"))
    assert violations(shown.page, axe) == []
    shown.press(" ", "a")
    eventually(lambda: "Missing" in shown.text("#selected"))
    for summary in (".selected summary", "#table-details summary", "#happenings summary", "#save-menu summary"):
        click(shown, summary)
    eventually(lambda: shown.page.locator("#happenings tr").count() > 1)
    assert violations(shown.page, axe) == []
    for summary in ("#look-menu summary", "#rails-menu summary"):
        click(shown, summary)
        assert violations(shown.page, axe) == []
        shown.press("Escape")
    shown.press("l", "m", "u", ".")
    click(shown, ".card .about")
    shown.page.evaluate("ibpulse.say('A message')")
    shown.settle()
    assert violations(shown.page, axe) == []
    shown.press("Escape", "?")
    assert violations(shown.page, axe) == []
    shown.press("Escape")


def test_axe_finds_nothing_on_a_phone_after_a_fault_or_in_an_old_link(phone: Live, axe: str) -> None:
    phone.open("#from=1763683200000&to=1763683210000")
    eventually(lambda: "is older than the history of" in phone.text("#notices"))
    assert violations(phone.page, axe) == []
    phone.open()
    phone.wait("live")
    phone.page.evaluate(
        "(ibpulse.store.layout.ports[1].moments.at(-1).active = false, ibpulse.changed({}), ibpulse.draw())"
    )
    eventually(lambda: "Link" in phone.text("#notices"))
    assert violations(phone.page, axe) == []


def test_a_card_explains_itself_by_keyboard_and_by_touch(shown: Live, phone: Live) -> None:
    shown.open()
    button = shown.page.locator(".card:has(h3:text-is('Peak')) .about")
    button.focus()
    shown.press("Enter")
    assert shown.page.is_visible(".explanation")
    assert "Highest single sample in the window" in shown.text(".explanation")
    eventually(lambda: button.get_attribute("aria-expanded") == "true")
    shown.press("Escape")
    eventually(lambda: not shown.page.is_visible(".explanation"))
    eventually(lambda: button.get_attribute("aria-expanded") == "false")
    phone.open()
    phone.page.locator(".card .about").nth(4).tap()
    assert "standard deviation" in phone.text(".explanation")
    assert phone.page.evaluate("document.documentElement.scrollWidth") == 390
    phone.page.locator("#no-data .about").tap()
    assert "never counted as zero" in phone.text(".explanation")
    assert phone.complaints == []


def test_the_view_is_told_in_words(shown: Live) -> None:
    shown.open()
    shown.wait("live")
    described = "document.querySelector('#described').textContent"
    assert shown.page.get_attribute("#waterfall", "aria-describedby") == "described"
    eventually(lambda: "Live view of the last" in str(shown.page.evaluate(described)))
    eventually(lambda: "8 rows. Mean of the last 10s:" in str(shown.page.evaluate(described)))
    eventually(lambda: "idle: mlx5_6:1" in str(shown.page.evaluate(described)))
    shown.press(" ", "a")
    eventually(lambda: "Held view of" in str(shown.page.evaluate(described)))
    eventually(lambda: "Selected: " in str(shown.page.evaluate(described)))


def test_every_control_is_reached_with_tab_and_motion_is_reduced(browser: Browser, daemon: Running) -> None:
    with live(browser, daemon.url, reduced_motion="reduce") as found:
        found.open()
        found.wait("live")
        wanted = "[...document.querySelectorAll('.bar button, .bar summary, .card button, #overview, #waterfall')]"
        seen = f"{wanted}.filter((each) => each.checkVisibility())"
        count = int(found.page.evaluate(f"({seen}.forEach((each) => (each.reached = false)), {seen}.length)"))
        for _ in range(count + 20):
            found.press("Tab")
            found.page.evaluate("document.activeElement.reached = true")
        missed = found.page.evaluate(f"{seen}.filter((each) => !each.reached).map((each) => each.outerHTML)")
        assert missed == []
        style = "getComputedStyle(document.querySelector('.bars .fill')).transitionDuration"
        assert found.page.evaluate(style) in ("0s", "")
        assert found.page.evaluate("ibpulse.calm.matches")
