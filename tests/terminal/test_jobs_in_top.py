"""The screen names the jobs of the rails: once if all have the same, otherwise in a column."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ibpulse.client.connection import DaemonConnection
from ibpulse.terminal.daemon_watcher import ask_owners
from ibpulse.terminal.screen import lay_out, spark_width
from ibpulse.terminal.styled_text import BLOCKS
from ibpulse.terminal.view import View
from tests.client.servers import canned
from tests.fleet.small_answers import jobs_of
from tests.terminal.test_screen import texts
from tests.terminal.views import rail, summary, view

LONG = "1234567890123_42"


def view_of(*jobs: tuple[str, ...]) -> View:
    """A rail for each of these, with its jobs."""
    rails = tuple(replace(rail(f"mlx5_{number}:1"), jobs=each) for number, each in enumerate(jobs))
    return view(len(jobs), rails=rails)


def rows(found: View, columns: int) -> list[str]:
    lines = texts(lay_out(found, columns, 24, BLOCKS))
    return [line for line in lines if line.startswith(("rail ", "mlx5_"))]


def test_one_job_of_all_rails_is_named_once() -> None:
    alone = view_of(("4711",), ("4711",))
    lines = texts(lay_out(alone, 80, 24, BLOCKS))
    assert "rails     2 of 2 rails active  fairness 1.000  job 4711  other ports: 1" in lines
    assert rows(alone, 80) == rows(view(2), 80)


def test_several_jobs_have_a_column() -> None:
    shared = view_of(("4711",), ("4711", "4712"), (), (LONG,))
    heading, *lines = rows(shared, 80)
    assert heading.startswith("rail      job        last")
    assert [line[10:20].strip() for line in lines] == ["4711", "4711 +1", "", LONG[-10:]]
    assert all("25.0" in line for line in lines)
    assert "3 jobs" in "".join(texts(lay_out(shared, 80, 24, BLOCKS)))
    assert spark_width(shared, 80) == spark_width(view(4), 80) - 11


@pytest.mark.parametrize("columns", [60, 79, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal_and_the_rates_stay(columns: int) -> None:
    shared = view_of(("4711",), ("x" * 128,), ("a", "b"))
    shared = replace(shared, summary=summary(3, idle=(1,)))
    for line in lay_out(shared, columns, 24, BLOCKS):
        assert sum(len(span.text) for span in line) <= columns
    heading, *lines = rows(shared, columns)
    assert ("job" in heading) is (columns >= 80)
    assert all(line.endswith("12.5") for line in lines)


def test_a_rail_in_trouble_keeps_its_job() -> None:
    down = replace(rail("mlx5_0:1", active=False, state="DOWN"), jobs=("4711",))
    found = view(2, rails=(down, rail("mlx5_1:1")))
    assert rows(found, 80)[1].startswith("mlx5_0:1  4711")


def test_the_owners_are_the_running_jobs_of_the_daemon() -> None:
    with canned() as server:
        ended = {"job_id": "6", "ended_ms": 9}
        both = {"job_id": "8", "ports": ["mlx5_0:1", "mlx5_1:1"]}
        server.answer("/api/v1/jobs", jobs_of({}, ended, both))
        assert ask_owners(DaemonConnection(server.url)) == {"mlx5_0:1": ("7", "8"), "mlx5_1:1": ("8",)}
