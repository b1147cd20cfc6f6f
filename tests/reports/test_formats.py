"""The same report in every format, and what stands in it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base.document import _load
from ibpulse.base.errors import RecordingError
from ibpulse.core.events import Event
from ibpulse.workbench.reports import formats
from ibpulse.workbench.reports.comparison import Report, assemble
from ibpulse.workbench.reports.formats import render_json, render_markdown, render_page, render_text
from ibpulse.workbench.reports.rows import Unit
from ibpulse.workbench.reports.span import ReportOptions
from ibpulse.workbench.reports.table import plain_text
from ibpulse.workbench.simulate.workloads import DENSE, MOE
from tests.perfetto_reader import read_trace
from tests.reports.recordings import SECOND_NS, play, record, report_of, run_of, wave
from tests.reports.test_jobs import job, record_of

DOCS = Path(__file__).parents[2] / "docs/report-reference.md"
HOSTILE = '<script>alert("x")</script>'
RENDERERS = {"text": render_text, "markdown": render_markdown, "json": render_json, "html": render_page}


@pytest.fixture(scope="module")
def report() -> Report:
    made = play(DENSE, 60), play(MOE, 60)
    for recording in made:
        recording.bytes_per_second[6] = 0
    return report_of(*made)


class Reader(HTMLParser):
    """The cells of a page's table, its tags, and whether every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.rows: list[list[str]] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta",):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


@pytest.mark.parametrize("count", [1, 3, 8])
def test_text_fits_a_terminal_of_120_columns(count: int) -> None:
    made = [play(DENSE, 20, seed) for seed in range(count)]
    text = render_text(report_of(*made))
    assert max(map(len, text.splitlines())) <= 120
    # each of them stands in the head of a table, the first in all of them
    heads = [line.split() for line in text.splitlines() if line.startswith(" " * 20)]
    assert {name for head in heads for name in head} - {"change"} == set("abcdefgh"[:count])
    assert all(head[0] == "a" for head in heads)


def test_long_names_are_cut_equal_names_numbered() -> None:
    options = ReportOptions()
    recording = play(DENSE, 20)
    long = [run_of(recording, options, f"{'x' * 60}-{number}") for number in range(2)]
    text = render_text(assemble(long, options))
    assert f"…{'x' * 21}-1" in text
    assert assemble([long[0], long[0]], options).names == (f"{'x' * 60}-0 (1)", f"{'x' * 60}-0 (2)")


def test_the_page_stands_alone_and_is_well_formed(report: Report) -> None:
    reader = read(render_page(report))
    assert reader.open == []
    assert not {"script", "link", "img", "iframe"} & reader.tags
    assert reader.links == []
    cells = {row[0]: row[1:] for row in reader.rows if len(row) == 4}
    assert cells["peak"][0].endswith("GB/s")
    assert cells["step time"][2].endswith("] *")


def test_the_page_has_short_recordings_for_perfetto(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = play(DENSE, 20)
    report = report_of(recording)
    page = render_page(report, None, [recording])
    (encoded,) = re.findall(r'href="data:application/gzip;base64,([^"]+)" download="[^"]+\.perfetto\.gz"', page)
    tracks = read_trace(gzip.decompress(base64.b64decode(encoded)))
    port = recording.meta.ports[0].id
    values = [value for _, value in tracks[recording.meta.host, str(port), f"{port} receive"].samples[:-1]]
    np.testing.assert_allclose(np.array(values) * 1e9, recording.bytes_per_second[0, 1], rtol=0, atol=1)
    monkeypatch.setattr(formats, "MAX_TRACED", recording.bytes_per_second.size - 1)
    assert "Perfetto" not in render_page(report, None, [recording])


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_hostile_names_are_escaped(form: str) -> None:
    recording = play(DENSE, 20)
    meta = replace(recording.meta, host=HOSTILE, reason=f"| {HOSTILE} `x`", source="capture")
    ports = (replace(meta.ports[0], device=HOSTILE), *meta.ports[1:])
    hostile = replace(recording, meta=replace(meta, ports=ports, jobs=(record_of(job("1", "mlx5_1", title=HOSTILE)),)))
    text = RENDERERS[form](assemble([run_of(hostile, name=HOSTILE.replace("/", "."))], ReportOptions()))
    assert "<script" not in text.replace("\\<", "")
    if form == "html":
        assert "script" not in read(text).tags
    else:
        assert {line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("|")} == {3}


def test_a_page_without_jinja_says_what_to_install(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    _load.cache_clear()
    with pytest.raises(RecordingError, match=r"reports as HTML need jinja2; install with `"):
        render_page(report)


def test_unknown_values_are_null_and_incomplete_recordings_remarked() -> None:
    document = json.loads(render_json(report_of(record(np.full((1, 2, 50), np.nan)), play(DENSE, 20))))
    nothing = document["recordings"][0]
    assert nothing["values"]["mean_bytes_per_second"] is None
    assert nothing["resampled"]["unit"] is None
    assert nothing["intervals"] == {}
    recording = play(DENSE, 4)
    recording.bytes_per_second[:, 1], recording.seconds[:, 1] = np.nan, 0.0
    text = " ".join(render_text(report_of(replace(recording, meta=replace(recording.meta, complete=False)))).split())
    assert "a: the recording was cut off before it was finished." in text
    assert "a: receive was not recorded; sums are those of the other direction." in text
    assert "a: too short for intervals: fewer than 20 steps or seconds; record at least 60 s to compare runs." in text


def test_documentation_names_every_json_member(report: Report) -> None:
    text = DOCS.read_text()
    document = json.loads(render_json(report))
    members = {*document, *document["options"], *document["rows"][0], *document["changes"][0]}
    members |= {
        *document["recordings"][0],
        *document["recordings"][0]["ports"][0],
        *document["recordings"][0]["resampled"],
    }
    members |= set(document["changes"][0]["values"]["step_seconds"])
    missing = {member for member in members if f"`{member}`" not in text}
    assert not missing


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "rate", "-"),
        (201.46e9, "rate", "201.5 GB/s"),
        (0.7471, "ratio", "74.71 %"),
        ((), "names", "none"),
        (("a", "b"), "names", "a, b"),
        ("dense_like", "word", "dense_like"),
    ],
)
def test_values_have_four_digits_and_fitting_unit(
    value: float | str | tuple[str, ...] | None, unit: Unit, text: str
) -> None:
    assert plain_text(value, unit) == text


def test_every_format_starts_with_simulated() -> None:
    real = play(DENSE, 20)
    simulated = replace(real, meta=replace(real.meta, simulated=True))
    said = "SIMULATED: recorded from a simulator or a replay, not from hardware."
    forms = (render_text, render_markdown, render_page)
    for form in forms:
        assert "SIMULATED" not in form(report_of(real))
    both = report_of(simulated, simulated)
    assert render_text(both).splitlines()[0] == said
    assert render_markdown(both).splitlines()[2] == f"**{said}**"
    assert f"<p><strong>{said}</strong></p>" in render_page(both)
    mixed = report_of(real, simulated)
    assert render_text(mixed).splitlines()[0].startswith(f"SIMULATED ({mixed.names[1]}): recorded from a simulator")
    documents = json.loads(render_json(mixed))["recordings"]
    assert [document["simulated"] for document in documents] == [False, True]


CONTROLS = "x\nFORGED \x1b[31m\x9b\u202e\u2028"


@pytest.mark.parametrize("form", RENDERERS)
def test_control_characters_are_escaped(form: str) -> None:
    recording = record(wave(1e9, 20, 12, 200, 2))
    ports = (replace(recording.meta.ports[0], device=CONTROLS), recording.meta.ports[1])
    event = Event(recording.start_ns + SECOND_NS, "link-up", f"{CONTROLS}:1", CONTROLS, SECOND_NS)
    texts = dict.fromkeys(("reason", "host", "source"), CONTROLS)
    jobs = (record_of(job("1", "mlx5_1", title=CONTROLS)),)
    meta = replace(recording.meta, ports=ports, events=(event,), jobs=jobs, **texts)
    found = RENDERERS[form](report_of(replace(recording, meta=meta), options=ReportOptions()))
    assert all(line.isprintable() for line in found.split("\n"))
    assert r"x\nFORGED" in found.replace(r"\\n", r"\n")
    assert not re.search(r"^\s*FORGED", found, re.MULTILINE)
