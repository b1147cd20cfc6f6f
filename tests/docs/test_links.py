"""What the pages name is there: files, headings, targets of the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

from tests.campaigns.__main__ import CAMPAIGNS
from tests.docs.pages import PAGES, ROOT, anchors, blocks, links, name, spans
from tests.tables import for_each

FOLDERS = tuple(sorted(path.name for path in ROOT.iterdir() if path.is_dir()))
# what the project's programs write appears on a machine only after they ran
OUTPUTS = tuple(f"{path}/" for path in re.findall(r"(?m)^/(.*?)/?$", (ROOT / ".gitignore").read_text()))
every_page = for_each({name(page): page for page in PAGES})


@every_page
def test_every_link_leads_to_a_heading(page: Path) -> None:
    for link in links(page):
        assert link.target.exists(), f"{name(page)}: {link.text}: there is no such file"
        assert not link.anchor or link.anchor in anchors(link.target), f"{name(page)}: {link.text}: no such heading"


@every_page
def test_every_path_of_the_project_that_is_named_is_there(page: Path) -> None:
    for span in spans(page):
        path = span.rstrip("/")
        if path.partition("/")[0] in FOLDERS and re.fullmatch(r"[\w.*-]+(/[\w.*<>-]+)+", path):
            there = f"{path}/".startswith(OUTPUTS) or list(ROOT.glob(path))
            assert there, f"{name(page)}: {span}: there is no such file"


@every_page
def test_every_target_of_make_that_is_named_is_there(page: Path) -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    targets |= {f"campaign-{name}" for name in (*CAMPAIGNS, "NAME")}
    lines = [line for block in blocks(page) for line in block.splitlines()]
    for text in [*lines, *spans(page)]:
        for target in re.findall(r"^make ([a-zA-Z-]+)", text):
            assert target in targets, f"{name(page)}: make {target}: there is no such target"


def test_no_page_is_without_a_link_that_leads_to_it() -> None:
    linked = {link.target.resolve() for page in PAGES for link in links(page)}
    roots = {
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "helm/ibpulse/README.md",
        ROOT / "tests/campaigns/vm/README.md",
    }
    assert [name(page) for page in PAGES if page not in linked | roots] == []


def test_generated_pages_come_last_in_the_search_of_the_site() -> None:
    (names,) = re.findall(r"(?s)GENERATED =\s+/\^\((.*?)\)\$/", (ROOT / "docs/search_scores.js").read_text())
    written = {
        page.stem for page in (ROOT / "docs").glob("*.md") if "Written by" in page.read_text().partition("\n")[0]
    }
    assert set(names.split("|")) == written
