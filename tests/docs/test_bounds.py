"""Numbers of the pages: limits of the web server, measurements and the picture of README.md."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ibpulse.agent.flightrecorder.store import CaptureOptions
from ibpulse.agent.web.app import MAX_IN_LOOP
from ibpulse.agent.web.parts import WebLimits
from ibpulse.base import limits
from ibpulse.core.answers.node import MAX_EVENTS
from ibpulse.core.http import access, admission, server
from ibpulse.core.recordings.files import MAX_GROUP_ROWS, ROW_BYTES, TICK_BYTES
from ibpulse.workbench.recorder import counter_log
from tests.docs.pages import ROOT
from tools import readme_pictures

HEAD = f"{server.MAX_HEAD_BYTES >> 10} KiB, {server.HEAD_SECONDS:g} s"
BODY = f"{WebLimits().max_body_bytes >> 20} MiB, {access.BODY_SECONDS:g} s"
UNREAD = f"{server.UNREAD_SECONDS:g} s"
WIDE = str(WebLimits().max_wide_requests)
OPEN, OWN = admission.MAX_CONNECTIONS, admission.MAX_CONNECTIONS_PER_CLIENT
CROWDED = f"idle connection after a refused request, or while more than {admission.CROWD} are open"
BOUNDS = {
    "docs/security.md": {
        "request head": HEAD,
        "request body": BODY,
        "response or stream whose client takes no data": UNREAD,
        "idle connection": f"{server.KEEP_ALIVE_SECONDS} s",
        CROWDED: f"{server.SHORT_KEEP_ALIVE_SECONDS} s",
        "TLS handshake": f"{server.HANDSHAKE_SECONDS:g} s",
        "connections per address": str(OWN),
        "connections": str(OPEN),
        "queued password checks": str(access.MAX_WAITING),
        "queued wide requests of a kind": f"{admission.MAX_WAITING}, {admission.WAIT_SECONDS:g} s",
        "`report`, `render`": f"{ROW_BYTES} bytes per sample of a port, and {TICK_BYTES} per sampling time",
        "`replay`": f"one row group, at most {MAX_GROUP_ROWS:,} rows: up to 300 MB",
        "`import`": (
            f"{counter_log.COLUMN_COPIES} times the columns that are used, and {counter_log.ROW_BYTES} bytes per row; "
            f"{counter_log.SAMPLE_BYTES} bytes per sample of the result"
        ),
    },
    "docs/api.md": {
        "values in one response": f"{WebLimits().max_values:,}",
        "pending captures": str(CaptureOptions(Path(), "").max_pending),
        f"concurrent wide windows (over {WebLimits().wide_values:,} values read or returned)": WIDE,
        "concurrent summaries": WIDE,
        f"concurrent answers with more than {MAX_IN_LOOP:,} events": WIDE,
        "events in one response": f"{MAX_EVENTS:,}",
        "viewers of the stream": str(WebLimits().max_viewers),
        "a viewer whose network takes no data for this long": UNREAD,
        "length of the query string": f"{WebLimits().max_query_bytes:,} bytes",
        "number of `port=` parameters": str(WebLimits().max_ports),
    },
}


@pytest.mark.parametrize("page", BOUNDS)
def test_the_limits_are_those_of_the_server(page: str) -> None:
    rows = dict(re.findall(r"^\| ([^|]+?) \| ([^|]*?) \| [^|]* \|$", (ROOT / page).read_text(), re.MULTILINE))
    assert {limit: rows.get(limit) for limit in BOUNDS[page]} == BOUNDS[page]


def test_the_memory_of_an_hour_and_a_refusal_follow_from_the_bounds() -> None:
    page = (ROOT / "docs/security.md").read_text()
    ticks = 3600 * 100
    assert f"sampling time | {round(ticks * (8 * ROW_BYTES + TICK_BYTES), -7) // 10**6} MB |" in page
    assert f"{limits.LIBRARIES_BYTES // 10**6} MB and {limits.THREAD_BYTES // 10**6} MB per CPU" in " ".join(
        page.split()
    )
    assert limits.SHARE == 0.75
    assert f'"limit":{WebLimits().max_values},' in (ROOT / "docs/api.md").read_text()


README = (ROOT / "README.md").read_text()
COST = dict(re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", README))


def measured(page: str, row: str, column: int = 0) -> str:
    """The cell of the only table row of a page that begins so."""
    (found,) = re.findall(rf"(?m)^\| {re.escape(row)} \| (.*) \|$", (ROOT / page).read_text())
    return str(found.split(" | ")[column])


def test_the_numbers_of_the_readme_are_those_of_the_measured_pages() -> None:
    page = "docs/benchmarks.md"
    assert COST["CPU"] == f"{float(measured(page, 'scraped every 15 s, both').split()[0]):.1f} % of one core"
    assert COST["memory"] == f"{float(measured(page, 'memory, both').split()[0]):.0f} MB"
    assert COST["time series"] == measured(page, "time series")
    page = "docs/accuracy.md"
    largest = max(abs(float(text)) for text in re.findall(r"[-+][\d.]+", measured(page, "bytes", 1)))
    assert COST["error of the bytes"] == f"below {largest + 0.001:.3f} %"
    assert COST["error of peaks of the node"] == measured(page, "peak of the node", 1)
    assert COST["error of the step period"] == f"at most {measured(page, 'step period, %')} %"
    page = (ROOT / "docs/measured.md").read_text()
    assert [row for row in COST.items() if f"| {row[0]} | {row[1]} |" not in page] == []
    assert len(README.split()) <= 700


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
