"""The screen as lines: their content and order at any size of the terminal, marks, and the jobs of rails."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ibpulse.core.client.connection import DaemonConnection
from ibpulse.workbench.top import screen
from ibpulse.workbench.top.daemon import ask_owners
from ibpulse.workbench.top.view import View
from tests.client.servers import canned
from tests.fleet.small_answers import jobs_of
from tests.tables import for_each
from tests.terminal.views import event, rail, summary, view

WHOLE = """\
ibpulse  http://node7:10055                            every 10 ms  00:00:00 UTC
node      231.4 GB/s  transmit 115.0  receive 116.4  last 10 s
          active mean 310.1  peak 615.2 (76.90 % of 800.0)  duty cycle 74.68 %
CV        0.20 (10ms)  0.30 (50ms)  0.39 (100ms)
step      314.9 ms (score 1.00)  signature dense_like (confidence 0.59)
rails     2 of 2 rails active  fairness 1.000  other ports: 1
rail      last 3.9 s, peaks of 100 ms              transmit GB/s   receive GB/s
mlx5_0:1  ▁▁·▂▂▃▃▃▄▄▅▅▅▆▆▇▇██ ▁▁▁▂▂▃▃▃▄▄▅▅▅▆▆▇▇██ ████      25.0 ██        12.5
mlx5_1:1  ▁▁·▂▂▃▃▃▄▄▅▅▅▆▆▇▇██ ▁▁▁▂▂▃▃▃▄▄▅▅▅▆▆▇▇██ ████      25.0 ██        12.5
sampler   99.98 % captured  wake-up delay 0.12 ms  0 read errors  1 restarts
q quits  ? help  + - time scale  blank: no traffic  · missing  × link down"""


def texts(lines: list) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in lines]


def test_whole_screen_of_two_rails() -> None:
    assert texts(screen.lay_out(view(2), 80, 24, screen.BLOCKS)) == WHOLE.splitlines()
    known = texts(screen.lay_out(view(2, limits=(("path", 0.31), ("unknown", 0.69))), 80, 24, screen.BLOCKS))
    assert known[5] == "limits    path 31 %  unknown 69 %"
    assert texts(screen.lay_out(view(2, limits=(("unknown", 1.0),)), 80, 24, screen.BLOCKS)) == WHOLE.splitlines()


def test_narrow_screens_mark_idle_slow_and_simulated() -> None:
    lines = texts(
        screen.lay_out(view(3, summary=summary(3, idle=(1,), slow=(2,))), screen.MIN_COLUMNS, 24, screen.BLOCKS)
    )
    assert [line[:15].split() for line in lines if line.startswith("mlx5_")] == [
        ["mlx5_0:1"],
        ["mlx5_1:1", "idle"],
        ["mlx5_2:1", "slow"],
    ]
    wide, narrow = (
        texts(screen.lay_out(view(2, simulated=True), columns, 24, screen.BLOCKS))[0] for columns in (80, 60)
    )
    assert wide == "ibpulse  http://node7:10055                 SIMULATED  every 10 ms  00:00:00 UTC"
    assert narrow == "ibpulse  http://node7:1 SIMULATED  every 10 ms  00:00:00 UTC"


@pytest.mark.parametrize("marks", [screen.BLOCKS, screen.ASCII])
def test_help_fits_the_smallest_terminal(marks: screen.Marks) -> None:
    narrow, wide = (texts(screen.lay_out_help(columns, 24, marks)) for columns in (screen.MIN_COLUMNS, 200))
    # nothing is cut off
    assert narrow[1:] == wide[1:]
    assert len(screen.lay_out_help(screen.MIN_COLUMNS, screen.MIN_ROWS, marks)) <= screen.MIN_ROWS
    text = "\n".join(narrow)
    assert all(
        word in text for word in ("q, Ctrl-C", "?, h", "+, -", "Ctrl-L", f" {marks.unknown} ", f" {marks.down} ")
    )


def test_long_note_takes_two_lines() -> None:
    note = "12 s old: http://127.0.0.1:10055 does not answer: Connection refused; is `ibpulse serve` running there?"
    lines = texts(screen.lay_out(view(8), 80, 24, screen.BLOCKS, note))
    assert lines[-2:] == [
        "q quits   12 s old: http://127.0.0.1:10055 does not answer: Connection refused;",
        "          is `ibpulse serve` running there?",
    ]
    lines = texts(screen.lay_out(view(8, summary=summary(8, idle=(6,))), 80, screen.MIN_ROWS, screen.BLOCKS, note))
    assert len(lines) == screen.MIN_ROWS
    assert lines[-1] == "q quits   12 s old: http://127.0.0.1:10055 does not answer: Connection refused;"
    assert lines[-3] == "rails 1 to 1 of 8; arrow keys show the others"


@for_each(itertools.product((screen.MIN_COLUMNS, 61, 80, 119, 300), (screen.MIN_ROWS, 12, 24, 60), (0, 1, 8, 64)))
def test_nothing_is_wider_or_longer_than_the_terminal(columns: int, rows: int, rails: int) -> None:
    for marks in (screen.BLOCKS, screen.ASCII):
        lines = screen.lay_out(view(rails), columns, rows, marks, "a note " * 50)
        assert len(lines) <= rows
        assert all(sum(len(span.text) for span in line) <= columns for line in lines)


def test_rails_scroll_without_room() -> None:
    def shown(first: int) -> tuple[str, list[str]]:
        lines = texts(screen.lay_out(view(8), 80, 13, screen.BLOCKS, first=first))
        assert len(lines) == 13
        return lines[-3], [line[:8] for line in lines if line.startswith("mlx5_")]

    assert shown(0) == ("rails 1 to 3 of 8; arrow keys show the others", ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"])
    end = screen.last_first(view(8), 80, 13, screen.BLOCKS)
    assert end == 5
    for first in (end, 1000):
        assert shown(first) == ("rails 6 to 8 of 8; arrow keys show the others", ["mlx5_5:1", "mlx5_6:1", "mlx5_7:1"])
    assert shown(-1) == shown(0)
    assert screen.last_first(view(8), 80, 24, screen.BLOCKS) == 0


def test_small_terminal_shows_required_size() -> None:
    for columns, rows in ((59, 24), (80, 11), (1, 1)):
        lines = texts(screen.lay_out(view(8), columns, rows, screen.BLOCKS))
        sentence = (
            f"{columns} x {rows} is too small: ibpulse top needs {screen.MIN_COLUMNS} x {screen.MIN_ROWS}; q quits"
        )
        assert lines == [sentence[:columns].rstrip()]


def test_what_is_not_known_has_words_or_dashes() -> None:
    lines = texts(screen.lay_out(view(1, summary=None, sampler=None), 80, 24, screen.BLOCKS))
    assert lines[1:3] == ["node      no second is complete yet", "rails     1  other ports: 1"]
    assert lines[-2] == "sampler   no data yet"
    unknown = summary(
        2,
        transmit_bytes_per_second=None,
        duty_cycle_ratio=None,
        burstiness_cv={"10ms": None},
        step_period_seconds=None,
        rail_fairness_ratio=None,
        bandwidth_peak_bytes_per_second=None,
        bandwidth_peak_utilization_ratio=None,
    )
    lines = texts(screen.lay_out(view(2, summary=unknown), 80, 24, screen.BLOCKS))
    assert lines[1:6] == [
        "node      - GB/s  transmit -  receive 116.4  last 10 s",
        "          active mean 310.1  peak -  duty cycle -",
        "CV        -",
        "step      - (score 1.00)  signature dense_like (confidence 0.59)",
        "rails     2 of 2 rails active  other ports: 1",
    ]


def incident(count: int = 8, **changes: Any) -> View:
    """Rails 1 to 3 are down, unreadable and gone, 4 is slow, 6 is idle."""
    rails = [rail(f"mlx5_{number}:1") for number in range(count)]
    rails[1] = rail("mlx5_1:1", active=False, state="DOWN", down=tuple(range(30, 40)), since=12)
    rails[2] = replace(rail("mlx5_2:1", state="unreadable", since=40), means=(None, None))
    rails[3] = replace(rail("mlx5_3:1", active=False, state="disappeared", since=90_000), means=(None, None))
    for gone in rails[2:4]:
        gone.peaks[:, 25:] = np.nan
    events = (event(90_000, "first"), event(12, "mlx5_1:1: link went down"))
    told = {"summary": summary(count, idle=(6, 1), slow=(4,)), "events": events, **changes}
    return view(count, rails=tuple(rails), **told)


def test_rails_in_trouble_keep_their_past() -> None:
    lines = screen.lay_out(incident(), 80, 24, screen.BLOCKS)
    said = texts(lines)
    past = "▃▃▃▄▄▅▅▅▆▆▇▇██ ▁▁▁▂"
    assert said[8].startswith(f"mlx5_0:1       {past}▂▃▃▃▄▄▅▅▅▆▆▇▇██ ████")
    assert said[9] == f"mlx5_1:1       {past}▂▃▃▃▄×××××××××× DOWN since 23:59:48"
    assert said[10] == f"mlx5_2:1       {past}··············· unreadable since 23:59:20"
    assert said[11] == f"mlx5_3:1       {past}··············· disappeared since 2025-11-19"
    assert said[12].startswith(f"mlx5_4:1  slow {past}")
    assert said[14].startswith(f"mlx5_6:1  idle {past}")
    for row in (9, 10, 11):
        assert lines[row][0].style is lines[row][-1].style is screen.Style.ALARM
    styles = {span.text[0]: span.style for row in (9, 10) for span in lines[row][1:-1]}
    assert styles == {" ": screen.Style.RATE, "×": screen.Style.ALARM, "·": screen.Style.DIM}
    assert said[-1].endswith("blank: no traffic  · missing  × link down")


def test_head_counts_active_rails_names_others() -> None:
    said = texts(screen.lay_out(incident(), 80, 24, screen.BLOCKS))
    assert said[5] == "rails     4 of 8 rails active  fairness 1.000  other ports: 1"
    # a rail that is down is not reported as idle too
    assert said[6] == "          1 down  1 unreadable  1 disappeared  1 idle  1 slow"
    wide = screen.lay_out(incident(), 130, 24, screen.BLOCKS)[6]
    assert wide[-1].text == (
        "1 down: mlx5_1:1  1 unreadable: mlx5_2:1  1 disappeared: mlx5_3:1  1 idle: mlx5_6:1  1 slow: mlx5_4:1"
    )
    assert wide[-1].style is screen.Style.WARNING


@pytest.mark.parametrize(
    ("rails", "columns", "rows", "events"), [(8, 60, 14, 0), (4, 60, 14, 0), (8, 80, 24, 2), (16, 80, 24, 1)]
)
def test_newest_events_are_shown(rails: int, columns: int, rows: int, events: int) -> None:
    said = texts(screen.lay_out(incident(max(rails, 7)) if rails > 4 else view(4), columns, rows, screen.BLOCKS))
    expected = ["events    23:59:48  mlx5_1:1: link went down", "          2025-11-19  first"]
    assert [line for line in said if line in expected] == expected[:events]
    assert len(said) <= rows
    assert sum(line.startswith("mlx5_") for line in said) >= min(rails, 3)


@for_each(range(screen.MIN_COLUMNS, 90))
def test_no_word_is_cut_at_any_width(columns: int) -> None:
    whole = {word for line in texts(screen.lay_out(incident(), 300, 40, screen.BLOCKS)) for word in line.split()}
    short = {"last", "1.4", "(0.59)", "scale", "none", "down", "+", "-"}
    for line in texts(screen.lay_out(incident(events=()), columns, 24, screen.BLOCKS)):
        words = [word.rstrip(",") for word in line.split() if not set(word) <= set("▁▂▃▄▅▆▇█▏▎▍▌▋▊▉·× ")]
        assert {word for word in words if word not in whole and not word.replace(".", "").isdigit()} <= short


def test_unknown_rate_scales_to_highest_rail() -> None:
    quiet = replace(rail("mlx5_1:1", rate=None), peaks=np.full((2, 40), 25e9, dtype=np.float32))
    blind = replace(rail("mlx5_2:1", rate=None), peaks=np.full((2, 40), np.nan, dtype=np.float32), means=(None, None))
    lines = texts(screen.lay_out(view(3, rails=(rail("mlx5_0:1", rate=None), quiet, blind)), 80, 24, screen.BLOCKS))
    assert lines[6].strip() == "1 not read: mlx5_2:1"
    assert lines[8][10:49] == texts(screen.lay_out(view(1), 80, 24, screen.BLOCKS))[7][10:49]
    assert set(lines[9][10:49]) == {"▄"}
    assert lines[10].split() == ["mlx5_2:1", "·" * 39, "·", "-", "·", "-"]


def test_sparkline_takes_remaining_width_and_rises_with_values() -> None:
    assert [screen.spark_width(view(8), columns) for columns in (60, 80, 200)] == [19, 39, 159]
    long = view(1, rails=(rail("a-very-long-name-of-a-device:1"),))
    assert screen.spark_width(long, 60) == 8
    assert all(sum(len(span.text) for span in line) <= 60 for line in screen.lay_out(long, 60, 24, screen.BLOCKS))
    shares = [0, 1e-9, 0.125, 0.5, 0.94, 1.0, 3.0, -1.0, math.nan]
    assert screen.sparkline(shares, screen.BLOCKS) == " ▁▁▄███ ·"
    assert screen.sparkline(shares, screen.ASCII) == " ..=@@@ ?"
    for marks in (screen.BLOCKS, screen.ASCII):
        signs = [*marks.levels, marks.unknown, marks.down]
        assert len(set(signs)) == len(signs)


def test_bar_resolves_eighths_of_a_cell() -> None:
    bars = {-1: "    ", 0: "    ", 1e-6: "▏   ", 0.5: "██  ", 0.53125: "██▏ ", 1: "████", 2: "████", math.nan: "·   "}
    assert {share: screen.bar(share, 4, screen.BLOCKS) for share in bars} == bars


LONG = "1234567890123_42"


def view_of(*jobs: tuple[str, ...]) -> View:
    """A rail for each of these, with its jobs."""
    rails = tuple(replace(rail(f"mlx5_{number}:1"), jobs=each) for number, each in enumerate(jobs))
    return view(len(jobs), rails=rails)


def rows(found: View, columns: int) -> list[str]:
    lines = texts(screen.lay_out(found, columns, 24, screen.BLOCKS))
    return [line for line in lines if line.startswith(("rail ", "mlx5_"))]


def test_jobs_have_a_column_if_there_are_several() -> None:
    alone = view_of(("4711",), ("4711",))
    lines = texts(screen.lay_out(alone, 80, 24, screen.BLOCKS))
    assert "rails     2 of 2 rails active  fairness 1.000  job 4711  other ports: 1" in lines
    assert rows(alone, 80) == rows(view(2), 80)
    shared = view_of(("4711",), ("4711", "4712"), (), (LONG,))
    heading, *lines = rows(shared, 80)
    assert heading.startswith("rail      job        last")
    assert [line[10:20].strip() for line in lines] == ["4711", "4711 +1", "", LONG[-10:]]
    assert all("25.0" in line for line in lines)
    assert "3 jobs" in "".join(texts(screen.lay_out(shared, 80, 24, screen.BLOCKS)))
    assert screen.spark_width(shared, 80) == screen.spark_width(view(4), 80) - 11


def test_owners_are_the_running_jobs() -> None:
    with canned() as server:
        ended = {"job_id": "6", "ended_ms": 9}
        both = {"job_id": "8", "ports": ["mlx5_0:1", "mlx5_1:1"]}
        server.answer("/api/v1/jobs", jobs_of({}, ended, both))
        assert ask_owners(DaemonConnection(server.url)) == {"mlx5_0:1": ("7", "8"), "mlx5_1:1": ("8",)}
