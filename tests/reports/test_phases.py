"""Phases and events in the reports of recordings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ibpulse.core.events import Event
from ibpulse.core.model import PortState
from ibpulse.core.recordings import Recording
from ibpulse.core.statistics.steps.phases import Phase
from ibpulse.workbench.reports.formats import render_json, render_markdown, render_page, render_text
from ibpulse.workbench.reports.span import Moment, ReportOptions
from ibpulse.workbench.reports.table import phase_text
from tests.reports.recordings import (
    DOWN,
    LINE,
    SECOND_NS,
    START_NS,
    TICK_NS,
    UP,
    change,
    record,
    report_of,
    run_of,
    wave,
)

GB = 1e9
RAILS = 3
DOCS = Path(__file__).parents[2] / "docs/report-reference.md"
STORAGE = "mlx5_3:1"


def rates_of_a_job() -> np.ndarray:
    """Three rails and a storage port for 113 s: silence, steps of 0.5 s, a barrier, steps, a checkpoint, steps."""
    steps = wave(10 * GB, 35, 15, 50, ports=RAILS + 1)
    steps[RAILS] = 0.0
    start, barrier, saving = (np.zeros((RAILS + 1, 2, ticks)) for ticks in (3500, 250, 700))
    saving[RAILS, 0, 100:600] = 8 * GB
    saving[RAILS, 1, 100:600] = 0.5 * GB
    return np.concatenate((start, steps, barrier, steps, saving, steps), axis=2)


def with_storage(rates: np.ndarray, events: tuple[Event, ...] = ()) -> Recording:
    """A recording whose last port is for storage."""
    recording = record(rates, events=events)
    ports = recording.meta.ports
    ports = (*ports[:RAILS], replace(ports[RAILS], rail=False, role="storage"))
    return replace(recording, meta=replace(recording.meta, ports=ports))


def phases_in(recording: Recording, options: ReportOptions | None = None) -> list[tuple[str, bool]]:
    return [(phase.kind, phase.certain) for phase in run_of(recording, options).phases]


WHOLE = [("first-traffic", True), ("first-step", True), ("barrier", True), ("checkpoint", True)]


def test_every_format_lists_the_phases_with_their_times() -> None:
    report = report_of(with_storage(rates_of_a_job()), record(np.zeros((2, 2, 3000))))
    text = render_text(report)
    phases = text[text.index("Phases of a") : text.index("Phases of b")].rstrip()
    assert len(phases.splitlines()) == 5
    assert f"```\n{phases}\n```" in DOCS.read_text(), "the example in the documentation"
    nothing = (
        "None found.",
        "The rails carry no traffic.",
        "No port for storage was recorded, so checkpoints are not shown.",
    )
    assert "\n  ".join(("Phases of b:", *nothing)) in text
    assert "\n- +35.00 s  00:00:35.000 UTC  first regular step, 500.0 ms long\n" in render_markdown(report)
    page = render_page(report)
    assert "<h2>Phases of a</h2>" in page
    assert "<li>+59.85 s  00:00:59.850 UTC  quiet at a barrier: all rails silent for 2.650 s</li>" in page
    assert "\n".join(f"<li>{line}</li>" for line in nothing) in page
    one, other = json.loads(render_json(report))["recordings"]
    assert one["phase_remarks"] == other["phases"] == []
    assert one["phases"][3] == {
        "kind": "checkpoint",
        "begin": "2025-11-21T00:01:28.500000000Z",
        "end": "2025-11-21T00:01:33.500000000Z",
        "uncertainty_seconds": 0.01,
        "certain": True,
        "doubt": "",
        "silent_seconds": 5.0,
        "transmitted_bytes": pytest.approx(40 * GB),
        "received_bytes": pytest.approx(2.5 * GB),
    }
    assert [phase["transmitted_bytes"] for phase in one["phases"][:3]] == [None] * 3


def test_only_ports_with_a_role_and_a_link_count() -> None:
    rates = rates_of_a_job()
    recording = with_storage(rates)
    other = replace(recording.meta.ports[RAILS], role="unknown")
    found = replace(recording, meta=replace(recording.meta, ports=(*recording.meta.ports[:RAILS], other)))
    assert phases_in(found) == [*WHOLE[:3], ("barrier", True)]
    assert run_of(found).phase_remarks == ("No port for storage was recorded, so checkpoints are not shown.",)
    rates = rates_of_a_job()
    rates[1] = np.nan
    recording = with_storage(rates)
    ports = recording.meta.ports
    ports = (ports[0], replace(ports[1], active=False), *ports[2:])
    assert phases_in(replace(recording, meta=replace(recording.meta, ports=ports))) == WHOLE
    recording = with_storage(rates_of_a_job())
    unknown = replace(recording.meta.ports[RAILS], role="unknown")
    before, after = (PortState("ACTIVE", "LinkUp", True, 50 * GB, role=role) for role in ("unknown", "storage"))
    event = replace(change(80, before, after, STORAGE), kind="role-change")
    meta = replace(recording.meta, ports=(*recording.meta.ports[:RAILS], unknown), events=(event,))
    assert phases_in(replace(recording, meta=meta)) == WHOLE


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (ReportOptions(trim=True), WHOLE[2:]),
        (
            ReportOptions(begin=Moment(61 * SECOND_NS, True)),
            [("first-traffic", False), ("first-step", False), WHOLE[3]],
        ),
        (ReportOptions(ports=("mlx5_0", "mlx5_1")), WHOLE),
        (ReportOptions(ports=("mlx5_3",)), [("first-traffic", False)]),
        (ReportOptions(active_bytes_per_second=100 * GB), []),
    ],
    ids=["trimmed", "from within a silence", "two rails", "the storage port", "all of it silent"],
)
def test_phases_are_those_of_the_covered_part(options: ReportOptions, kinds: list[tuple[str, bool]]) -> None:
    recording = with_storage(rates_of_a_job())
    assert phases_in(recording, options) == kinds
    if options.trim:
        remark = "It begins in traffic, so its first traffic and first step are not in it."
        assert run_of(recording, options).phase_remarks == (remark,)


def flap(seconds: float) -> Event:
    time_ns = START_NS + TICK_NS + round(seconds * SECOND_NS)
    return Event(time_ns, "link-flap", "mlx5_1:1", "mlx5_1:1: link went down", SECOND_NS)


@pytest.mark.parametrize(
    ("events", "barrier"),
    [
        # it may have gone down in the silence: it was noticed within a second
        ((change(62.8, UP, DOWN), change(70, DOWN, UP)), False),
        ((flap(62.0),), False),
        ((flap(64.0),), True),
        ((replace(flap(62.0), subject=STORAGE),), True),
    ],
)
def test_possible_link_down_is_no_barrier(events: tuple[Event, ...], barrier: bool) -> None:
    assert (("barrier", True) in phases_in(with_storage(rates_of_a_job(), events))) == barrier


def test_guessed_phase_has_a_reason() -> None:
    phase = Phase("first-step", 100, 200, 150, "data is missing for 0.10 s")
    assert phase_text(phase, TICK_NS) == (
        "first regular step, 1.000 s long (guess: data is missing for 0.10 s; ± 1.500 s)"
    )
    assert phase_text(replace(phase, doubt="", uncertainty=1), TICK_NS) == "first regular step, 1.000 s long"


FLAP = (change(10, UP, DOWN), change(15, DOWN, UP))


def flapped() -> np.ndarray:
    """Four rails for 20 s; the second sends nothing while its link is down."""
    rates = wave(10 * GB, 20, 30, 40, ports=4)
    rates[1, :, 1000:1500] = 0.0
    return rates


def test_a_flapping_rail_is_not_idle_and_a_part_has_its_own_states() -> None:
    found = run_of(record(flapped(), events=FLAP))
    assert found.values["idle_rails"] == ()
    assert found.values["slow_rails"] == ()
    assert found.values["mean_bytes_per_second"] == pytest.approx(30 * GB)
    assert found.values["utilization_ratio"] == pytest.approx(30 * GB / (4 * 2 * LINE))
    line = found.ports[1]
    assert (line.down_seconds, line.idle, line.slow) == (5.0, False, False)
    assert line.mean_bytes_per_second == pytest.approx(6 * GB)
    assert [port.down_seconds for port in found.ports] == [0, 5, 0, 0]
    recording = record(flapped(), events=FLAP)
    options = ReportOptions(begin=Moment(11 * SECOND_NS, True), end=Moment(14 * SECOND_NS, True))
    found = run_of(recording, options)
    assert found.events == ()
    assert found.ports[1].down_seconds == 3.0
    assert found.values["mean_bytes_per_second"] == pytest.approx(24 * GB)
    late = run_of(recording, ReportOptions(begin=Moment(11 * SECOND_NS, True)))
    assert late.events == FLAP[1:]


def test_events_are_listed_with_their_times() -> None:
    report = report_of(record(flapped(), events=FLAP), record(flapped()))
    text = render_text(report)
    assert "Events of a:\n    +10.01 s  00:00:10.010 UTC  mlx5_1:1: link-down (or up to 1.000 s earlier)" in text
    assert "Events of b" not in text
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


def ending(recording: Recording) -> list[str]:
    return [text for text in run_of(recording).phase_remarks if text.startswith("It ends in a silence")]


def test_a_silence_at_the_end_has_the_verdict_of_the_node() -> None:
    silence = np.zeros((RAILS, 2, 900))
    rates = np.concatenate((wave(10 * GB, 35, 15, 50, ports=RAILS), silence), axis=2)
    assert ending(record(rates[..., :-830])) == []
    (text,) = ending(record(rates))
    assert text == "It ends in a silence of 9.2 s; verdict: unknown, the cause is not known."
    (text,) = ending(record(rates, events=(change(25.0, UP, DOWN),)))
    assert text.startswith("It ends in a silence of 9.2 s; verdict: link, ")
    assert "mlx5_1:1 lost its link " in text
    saving = np.concatenate((rates, np.zeros((1, *rates.shape[1:]))))
    saving[RAILS, 0, -500:] = 8 * GB
    assert ending(with_storage(saving)) == []
