"""The commands `fleet report` and `fleet render`: their formats, and what they refuse."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ibpulse.base import memory
from ibpulse.cli import main
from ibpulse.workbench.fleet.dataset_schema import MAX_ROWS
from tests.datasets.fleets import busy_dataset, dataset, plan


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["fleet", *words])
    return status, *capsys.readouterr()


def test_the_text_begins_with_sentences_and_ends_with_tables(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "report", str(busy_dataset()))
    assert status == 0
    lines = out.splitlines()
    assert lines[1].startswith("SIMULATED")
    first = next(line for line in lines if line.startswith("- "))
    assert first.startswith("- node3 begins each step ")
    assert out.index("Evidence:") < out.index("Limit:") < out.index("\nNodes:\n") < out.index("\nLateness")
    row = next(line for line in lines if line.startswith("  node3") and line.endswith("late"))
    assert "± " in row


def test_json_has_the_same_findings_and_unknown_values_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "report", str(busy_dataset()), "--format=json")
    document = json.loads(out)
    assert [one["subjects"] for one in document["findings"] if one["kind"] == "late"] == [["node3"]]
    late = {row["node"]: row for row in document["steps"] if len(row["ports"]) > 1}
    assert late["node3"]["late"] is True
    assert late["node3"]["start"]["ms"] == pytest.approx(20, abs=late["node3"]["start"]["uncertainty_ms"])
    assert document["changes"] is None
    assert {node["node"] for node in document["nodes"]} == {f"node{number}" for number in range(1, 7)}


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_escapes_names_and_loads_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"node1": {"leaf": "<script>alert(1)</script>"}}
    folder = dataset("hostile", [plan(nodes=2, steps=6)], labels=labels)
    _, out, _ = run(capsys, "report", str(folder), "--format=html")
    page = _Texts()
    page.feed(out)
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert not {"link", "img", "iframe"} & {*page.tags}
    assert page.tags.count("table") == 4


@pytest.mark.parametrize(("kind", "order"), [("waterfall", "rack"), ("rails", "name"), ("lateness", "lateness")])
def test_pictures_are_as_wide_as_asked(
    kind: str, order: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["render", str(busy_dataset()), "-o", str(tmp_path / "a.png"), f"--picture={kind}", "--width=800"]
    status, out, _ = run(capsys, *words, "--dpi=80", f"--sort={order}")
    assert (status, kind in out) == (0, True)
    picture = Image.open(tmp_path / "a.png")
    assert picture.width == 800
    colours = np.asarray(picture.convert("RGB").resize((80, 40))).reshape(-1, 3)
    assert len(np.unique(colours, axis=0)) > 5


def test_an_svg_names_the_late_node_and_by_how_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "render", str(busy_dataset()), "-o", str(tmp_path / "a.svg"), "--theme=dark")
    text = (tmp_path / "a.svg").read_text()
    assert "node3" in text
    assert "◂ " in text
    assert "SIMULATED" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "{dataset}", "--job=9"], "has no job '9'; it has "),
        (["report", "{dataset}", "--from=yesterday"], "'yesterday' is not a time"),
        (["report", "{dataset}", "--from=2025-11-21T00:00:02Z", "--to=2025-11-21T00:00:01Z"], "ends before it begins"),
        (["report", "{dataset}", "--from=2030-01-01T00:00:00Z"], "has no complete part of all jobs in this span"),
        (["report", "/nonexistent"], "is not a dataset"),
        (["render", "{dataset}", "-o", "a.gif"], "can only be written as .png or .svg"),
        (["render", "{dataset}", "-o", "a.png", "--width=10"], "too few for the labels"),
    ],
)
def test_faults_are_one_sentence(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, error = run(capsys, *(word.format(dataset=busy_dataset()) for word in words))
    assert status != 0
    assert out == ""
    assert message in error


def test_a_damaged_tier_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = dataset("damaged", [plan(nodes=2, steps=6)])
    path = next(folder.glob("tier=node10ms/**/*.parquet"))
    path.write_bytes(path.read_bytes()[:200])
    status, _, error = run(capsys, "report", str(folder))
    assert status != 0
    assert "cannot be read" in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("tier", ["files", "node10ms", "rails1s", "steps"])
def test_a_part_with_too_many_rows_is_refused_before_it_is_read(
    tier: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAX_ROWS, tier, 0)
    status, _, error = run(capsys, "report", str(busy_dataset()))
    assert status == 1
    assert f"rows in the tier {tier}, more than the 0 of an hour; collect this part again" in error


def test_a_span_that_takes_more_memory_than_there_is_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "spare_bytes", lambda: 10_000)
    status, _, error = run(capsys, "report", str(busy_dataset()))
    assert status == 1
    assert re.search(r"takes \d+ kB of memory for one node, more than the 10 kB that can be spared; choose", error), (
        error
    )


def test_a_part_of_the_time_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--from=2025-11-21T00:00:03Z", "--to=2025-11-21T00:00:06Z", "--format=json"]
    _, out, _ = run(capsys, "report", str(busy_dataset()), *words)
    steps = {row["steps"] for row in json.loads(out)["steps"] if len(row["ports"]) > 1}
    assert steps <= {9, 10}


@pytest.mark.real("process")
def test_help_imports_neither_duckdb_nor_pyarrow() -> None:
    code = (
        "import sys; from ibpulse.cli import main\n"
        "try: main(['fleet', 'report', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit(bool({'duckdb', 'pyarrow', 'numpy'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0
