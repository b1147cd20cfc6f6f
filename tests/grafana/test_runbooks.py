"""The runbooks: one form, queries over series that exist, and commands that exist in the image."""

from __future__ import annotations

import re
from pathlib import Path

import promql_parser as promql

from tests.docs.pages import commands
from tests.grafana.documents import selectors
from tests.tables import for_each
from tools.grafana.alerts import ALERTS
from tools.grafana.series_names import TARGET_LABELS, labels_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "runbooks"
PAGES = sorted(FOLDER.glob("IBPulse*.md"))
SECTIONS = ["First two minutes", "Drain?", "What it means", "How certain it is"]
MAX_LINES = 45
"""A screen."""

by_page = for_each({page.stem: page for page in PAGES})


def queries(page: Path) -> list[str]:
    """The queries of a page, each without its comment."""
    (block,) = re.findall(r"(?s)```promql\n(.*?)```", page.read_text())
    return [part.partition("\n")[2].strip() for part in block.split("\n\n")]


@by_page
def test_every_runbook_has_the_same_form_and_fits_a_screen(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert re.findall(r"(?m)^## (.*)$", text) == SECTIONS
    assert len(text.splitlines()) <= MAX_LINES
    for section in re.split(r"(?m)^## .*$", text)[1:]:
        assert section.strip()


@by_page
def test_every_query_names_existing_series_and_labels(page: Path) -> None:
    found = queries(page)
    assert found
    for query in found:
        promql.parse(query)
        for selector in selectors(query):
            known = {*labels_of(selector.name), *TARGET_LABELS}
            assert {matcher.name for matcher in selector.matchers.matchers} <= known, query


@by_page
def test_what_runs_in_a_pod_is_in_the_image(page: Path) -> None:
    entry = re.search(r"ENTRYPOINT \[(.*)\]", (ROOT / "docker/Dockerfile").read_text())
    assert entry
    program = " ".join(re.findall(r'"([^"]+)"', entry[1]))
    for line in re.findall(r"(?m)^kubectl .* exec .*$", page.read_text()):
        assert re.search(rf"exec \$POD -- {re.escape(program)} \w+ ", line), line
        # no shell, and the settings of the daemon
        assert "--config.file=/etc/ibpulse/config/ibpulse.yaml" in line
    assert list(commands(page)) or "exec" not in page.read_text()
    directories = (ROOT / "helm/ibpulse/templates/_config.tpl").read_text()
    assert "config: /etc/ibpulse/config" in directories


def test_no_runbook_is_left_of_an_alert_that_is_gone() -> None:
    assert {page.stem for page in PAGES} == {alert.name for alert in ALERTS}
