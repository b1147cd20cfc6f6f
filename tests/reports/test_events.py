"""Reports of recordings in which links went down and rates changed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ibpulse.workbench.reports.formats import render_json, render_markdown, render_page, render_text
from ibpulse.workbench.reports.span import Moment, ReportOptions
from tests.reports.recordings import DOWN, LINE, SECOND_NS, UP, change, record, report_of, run_of, wave

GB = 1e9
FLAP = (change(10, UP, DOWN), change(15, DOWN, UP))


def flapped() -> np.ndarray:
    """Four rails for 20 s; the second sends nothing while its link is down."""
    rates = wave(10 * GB, 20, 30, 40, ports=4)
    rates[1, :, 1000:1500] = 0.0
    return rates


def test_a_rail_that_was_down_for_a_while_keeps_its_past_and_is_not_idle() -> None:
    found = run_of(record(flapped(), events=FLAP))
    assert found.values["idle_rails"] == ()
    assert found.values["slow_rails"] == ()
    assert found.values["mean_bytes_per_second"] == pytest.approx(30 * GB)
    assert found.values["utilization_ratio"] == pytest.approx(30 * GB / (4 * 2 * LINE))
    line = found.ports[1]
    assert (line.down_seconds, line.idle, line.slow) == (5.0, False, False)
    assert line.mean_bytes_per_second == pytest.approx(6 * GB)
    assert [port.down_seconds for port in found.ports] == [0, 5, 0, 0]


def test_without_the_events_the_same_rail_is_slow() -> None:
    assert run_of(record(flapped())).values["slow_rails"] == ()
    rates = flapped()
    rates[1, :, 500:1500] = 0.0
    assert run_of(record(rates)).values["slow_rails"] == ("mlx5_1:1",)
    known = run_of(record(rates, events=(change(5, UP, DOWN), change(15, DOWN, UP))))
    assert known.values["slow_rails"] == ()


def test_a_part_of_a_recording_has_the_states_and_events_of_that_part() -> None:
    recording = record(flapped(), events=FLAP)
    options = ReportOptions(begin=Moment(11 * SECOND_NS, True), end=Moment(14 * SECOND_NS, True))
    found = run_of(recording, options)
    assert found.events == ()
    assert found.ports[1].down_seconds == 3.0
    assert found.values["mean_bytes_per_second"] == pytest.approx(24 * GB)
    late = run_of(recording, ReportOptions(begin=Moment(11 * SECOND_NS, True)))
    assert late.events == FLAP[1:]


def test_utilisation_follows_a_rate_that_changed() -> None:
    half = replace(UP, rate_bytes_per_second=LINE / 2)
    rates = np.full((2, 2, 2000), 10 * GB)
    events = tuple(change(10, UP, half, f"mlx5_{rail}:1") for rail in range(2))
    found = run_of(record(rates, events=events)).values
    assert found["line_bytes_per_second"] == pytest.approx(4 * LINE * 0.75)
    assert found["peak_utilization_ratio"] == pytest.approx(40 * GB / (4 * LINE / 2))


def test_a_port_that_was_a_rail_for_a_while_is_one() -> None:
    other = replace(UP, rail=False)
    recording = record(wave(GB, 20, 30, 10, ports=2), events=(change(2, other, UP),))
    ports = (recording.meta.ports[0], replace(recording.meta.ports[1], rail=False))
    recording = replace(recording, meta=replace(recording.meta, ports=ports))
    assert run_of(recording).values["rails"] == 2


def test_every_format_lists_the_events_with_their_times() -> None:
    report = report_of(record(flapped(), events=FLAP), record(flapped()))
    text = render_text(report)
    line = "+10.01 s  00:00:10.010 UTC  mlx5_1:1: link-down (or up to 1.000 s earlier)"
    assert f"Events of a:\n    {line}" in text
    assert "Events of b" not in text
    assert f"\n- {line}\n".replace("_", "\\_") in render_markdown(report)
    page = render_page(report)
    assert "<h2>Events of a</h2>" in page
    assert "<li>+15.01 s  00:00:15.010 UTC  mlx5_1:1: link-up (or up to 1.000 s earlier)</li>" in page
    assert "6.000 GB/s, 20.00 %, down 5.000 s" in text
    one, other = json.loads(render_json(report))["recordings"]
    assert (other["events"], one["events_left_out"]) == ([], 0)
    assert one["events"][0] == {
        "time": "2025-11-21T00:00:10.010000000Z",
        "uncertainty_seconds": 1.0,
        "kind": "link-down",
        "subject": "mlx5_1:1",
        "text": "mlx5_1:1: link-down",
        "before": {
            "state": "ACTIVE",
            "physical": "LinkUp",
            "active": True,
            "rate_bytes_per_second": LINE,
            "rail": True,
            "stride": 1,
            "problem": "",
            "role": "compute",
        },
        "after": one["events"][1]["before"],
        "details": {"n": 1},
    }


def test_many_events_are_counted_and_not_shown() -> None:
    events = tuple(change(second / 4, None, None) for second in range(50))
    recording = record(wave(GB, 20, 30, 40), events=events)
    recording = replace(recording, meta=replace(recording.meta, events_left_out=7))
    report = report_of(recording)
    more = ("30 more events; --format=json lists them.", "left out 7 events that were too many for it.")
    for rendered in (render_text(report), render_markdown(report), render_page(report)):
        assert rendered.count("link-down") == 20
        assert all(words in " ".join(rendered.replace("\\", "").split()) for words in more)
    assert len(json.loads(render_json(report))["recordings"][0]["events"]) == 50


def test_text_of_an_event_is_not_markup() -> None:
    event = replace(change(1, None, None), text="<script>x</script> *a*")
    report = report_of(record(wave(GB, 20, 30, 40), events=(event,)))
    assert "<script>" not in render_page(report)
    assert r"\*a\*" in render_markdown(report)
