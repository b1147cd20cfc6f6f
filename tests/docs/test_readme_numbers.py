"""The numbers of README.md are those that were measured, and its picture that which the program draws."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.docs.pages import ROOT
from tools import readme_pictures

README = (ROOT / "README.md").read_text()
COST = dict(re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", README))


def measured(page: str, row: str, column: int = 0) -> str:
    """The cell of the only table row of a page that begins so."""
    (found,) = re.findall(rf"(?m)^\| {re.escape(row)} \| (.*) \|$", (ROOT / page).read_text())
    return str(found.split(" | ")[column])


def test_the_cost_is_that_of_the_benchmarks() -> None:
    page = "docs/benchmarks.md"
    assert COST["CPU"] == f"{float(measured(page, 'scraped every 15 s, both').split()[0]):.1f} % of one core"
    assert COST["memory"] == f"{float(measured(page, 'memory, both').split()[0]):.0f} MB"
    assert COST["time series"] == measured(page, "time series")


def test_the_errors_are_those_of_the_accuracy_page() -> None:
    page = "docs/accuracy.md"
    largest = max(abs(float(text)) for text in re.findall(r"[-+][\d.]+", measured(page, "bytes", 1)))
    assert COST["error of the bytes"] == f"below {largest + 0.001:.3f} %"
    assert COST["error of peaks of the node"] == measured(page, "peak of the node", 1)
    assert COST["error of the step period"] == f"at most {measured(page, 'step period, %')} %"


def test_the_page_of_measured_numbers_has_them_too() -> None:
    page = (ROOT / "docs/measured.md").read_text()
    assert [row for row in COST.items() if f"| {row[0]} | {row[1]} |" not in page] == []


def test_the_flat_minute_is_the_mean_of_the_samples() -> None:
    scraped = readme_pictures.bandwidth(readme_pictures.SCRAPE_NS)
    sampled = readme_pictures.bandwidth(readme_pictures.SAMPLE_NS)
    assert (len(scraped), len(sampled)) == (4, 6000)
    assert scraped == pytest.approx(sampled.reshape(4, -1).mean(axis=1))
    said = re.search(r"flat at (\d+) GB/s, sampled every 10 ms it jumps between 0 and (\d+) GB/s", README)
    assert said
    assert [round(float(np.mean(scraped))), round(float(sampled.max()))] == [int(text) for text in said.groups()]


def test_the_picture_is_what_the_program_draws(tmp_path: Path) -> None:
    assert readme_pictures.main([str(tmp_path)]) == 0
    with Image.open(ROOT / "docs/pictures/minute.png") as committed, Image.open(tmp_path / "minute.png") as drawn:
        assert committed.size == drawn.size
        difference = np.abs(np.asarray(committed, dtype=int) - np.asarray(drawn, dtype=int))
        assert difference.mean() < 1, "run `python -m tools.readme_pictures docs/pictures`"


def test_it_is_short() -> None:
    assert len(README.split()) <= 700
