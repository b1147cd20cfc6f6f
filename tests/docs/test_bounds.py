"""The tables of limits in the documentation hold the limits of the web server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ibpulse.agent.flightrecorder.store import CaptureOptions
from ibpulse.agent.web.node import MAX_IN_LOOP
from ibpulse.agent.web.parts import WebLimits
from ibpulse.base import limits
from ibpulse.core.answers.events import MAX_EVENTS
from ibpulse.core.http import access, admission, server
from ibpulse.core.recordings.reading import MAX_GROUP_ROWS, ROW_BYTES, TICK_BYTES
from ibpulse.workbench.recorder import counter_log
from tests.docs.pages import ROOT

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


def test_the_memory_of_an_hour_follows_from_the_bounds() -> None:
    page = (ROOT / "docs/security.md").read_text()
    ticks = 3600 * 100
    assert f"sampling time | {round(ticks * (8 * ROW_BYTES + TICK_BYTES), -7) // 10**6} MB |" in page
    assert f"{limits.LIBRARIES_BYTES // 10**6} MB and {limits.THREAD_BYTES // 10**6} MB per CPU" in " ".join(
        page.split()
    )
    assert limits.SHARE == 0.75


def test_the_example_of_a_refusal_has_the_default_bound() -> None:
    assert f'"limit":{WebLimits().max_values},' in (ROOT / "docs/api.md").read_text()
