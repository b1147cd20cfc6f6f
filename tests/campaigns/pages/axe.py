"""axe-core in a page of the browser. It asserts nothing by itself."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

from tests.node_packages import fetch_package

MODULES = Path(__file__).parent / "node"
PACKAGE, VERSION = "axe-core", "4.14.1"


def axe_source() -> str:
    """The library as JavaScript."""
    directory = fetch_package(MODULES, PACKAGE, VERSION)
    return (directory / "node_modules" / PACKAGE / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Page, source: str) -> list[str]:
    """What axe finds in the page as it is now: rule and elements."""
    # the content policy refuses scripts of others, but not the debugger
    page.evaluate(f"() => {{ if (!window.axe) {{ {source} }} }}")
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations)")
    return [f"{each['id']}: {'; '.join(node['html'][:120] for node in each['nodes'][:3])}" for each in found]
