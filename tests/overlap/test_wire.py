"""A simulated node plays the communication of a trace with known delays: waiting and moving come out again."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ibpulse.core.recordings import Recording
from ibpulse.workbench.overlap.exposed import (
    DeviceOverlap,
    ExposedOnWire,
    WireActivity,
    match_clocks,
    measure_overlap,
    split_exposed,
    wire_activity,
)
from ibpulse.workbench.overlap.intervals import union
from ibpulse.workbench.overlap.kernels import CommunicationNames
from ibpulse.workbench.overlap.trace import read_trace
from ibpulse.workbench.simulate.fabric import SimulatedFabric
from ibpulse.workbench.simulate.timeline import Schedule
from tests.overlap.played_traces import BEGIN_NS, INSIDE, MS, PlayedTrace, collective, compute, record, write_trace

THRESHOLD = 1e8
PLAYED = PlayedTrace()


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(PLAYED)


@pytest.fixture(scope="module")
def wire(recording: Recording) -> WireActivity:
    return wire_activity(recording, [0, 1], THRESHOLD)


def overlap_of(folder: Path, events: list[dict[str, object]]) -> DeviceOverlap:
    trace = read_trace(write_trace(folder / "trace.json", events), CommunicationNames())
    return measure_overlap(trace.devices[0], trace.steps)


@pytest.fixture(scope="module")
def overlap(tmp_path_factory: pytest.TempPathFactory) -> DeviceOverlap:
    return overlap_of(tmp_path_factory.mktemp("trace"), PLAYED.timeline()[0])


def check_sums(found: ExposedOnWire, overlap: DeviceOverlap) -> None:
    """Every nanosecond of exposed time is in one part, and every estimate within its range."""
    assert found.whole
    whole = found.whole
    parts = whole.moving_ns + whole.waiting_ns + whole.inside_node_ns + whole.unmeasured_ns
    assert parts == overlap.whole.exposed_ns
    for split in (whole, *found.steps):
        assert split.moving_low_ns <= split.moving_ns <= split.moving_high_ns
        assert 0 <= split.waiting_low_ns <= split.waiting_ns <= split.waiting_high_ns


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_waiting_and_moving_are_right_within_two_percent(tmp_path: Path, seed: int) -> None:
    played = PlayedTrace(seed=seed)
    events, _, moving, waiting = played.timeline()
    overlap = overlap_of(tmp_path, events)
    found = split_exposed(overlap, wire_activity(record(played), [0, 1], THRESHOLD), 4)
    check_sums(found, overlap)
    assert found.whole
    assert found.whole.moving_ns == pytest.approx(moving, rel=0.02)
    assert found.whole.waiting_ns == pytest.approx(waiting, rel=0.02)
    assert found.whole.moving_low_ns <= moving <= found.whole.moving_high_ns
    assert found.match.correlation > 0.95
    assert abs(found.match.lag_ns) < MS
    assert found.explained_ratio == pytest.approx(1.0, abs=0.01)


def test_counters_of_a_simulated_node_give_the_same(tmp_path: Path) -> None:
    """Counters are read from the files of a simulated fabric, 0.1 ms late, at instants that the test chooses."""
    played = PlayedTrace(seed=2)
    events, spans, moving, waiting = played.timeline()
    root, rng = tmp_path / "sys", np.random.default_rng(1)
    fabric = SimulatedFabric(root, Schedule(played, rails=2, start_ns=BEGIN_NS), 10 * MS)
    fabric.build(BEGIN_NS)
    names = ("port_xmit_data", "port_rcv_data")
    ports = sorted((root / "class/infiniband").glob("mlx5_*/ports/1/counters"))[:2]
    read_ns = BEGIN_NS + 10 * MS * np.arange(int(spans[-1][1] * 100) + 20)
    read_ns += rng.integers(0, 200_000, read_ns.size)
    counted = []
    for at_ns in read_ns.tolist():
        fabric.write(at_ns)
        counted.append([[4 * int((port / name).read_text()) for name in names] for port in ports])
    fabric.close()
    seconds = np.broadcast_to(np.diff(read_ns) / 1e9, (2, 2, read_ns.size - 1)).copy()
    rates = np.diff(np.moveaxis(np.array(counted, dtype=np.float64), 0, -1), axis=-1) / seconds
    recording = Recording(record(replace(played, steps=1)).meta, BEGIN_NS + 10 * MS, rates, seconds)
    found = split_exposed(overlap_of(tmp_path, events), wire_activity(recording, [0, 1], THRESHOLD), 4)
    assert found.whole
    assert found.whole.moving_ns == pytest.approx(moving, rel=0.02)
    assert found.whole.waiting_ns == pytest.approx(waiting, rel=0.02)


@pytest.mark.parametrize("shift_ns", [4 * MS, -4 * MS, 10 * MS, -10 * MS])
def test_a_small_clock_offset_is_corrected(overlap: DeviceOverlap, shift_ns: int) -> None:
    found = split_exposed(overlap, wire_activity(record(PLAYED, shift_ns=shift_ns), [0, 1], THRESHOLD), 4)
    assert found.match.lag_ns == pytest.approx(shift_ns, abs=0.2 * MS)
    check_sums(found, overlap)
    assert found.whole
    assert found.whole.waiting_ns == pytest.approx(PLAYED.timeline()[3], rel=0.02)


@pytest.mark.parametrize(
    ("shift_ns", "problem"),
    [
        (18 * MS, r"the wire trails the trace by 1[78]\.\d ms, beyond 15 ms"),
        (-40 * MS, r"the wire leads the trace by 40\.\d ms, beyond 15 ms"),
        (1700 * MS, r"the correlation of communication with the wire is 0\.\d\d, below 0\.5"),
    ],
)
def test_another_clock_is_refused(overlap: DeviceOverlap, shift_ns: int, problem: str) -> None:
    found = split_exposed(overlap, wire_activity(record(PLAYED, shift_ns=shift_ns), [0, 1], THRESHOLD), 4)
    assert found.whole is None
    assert re.match(problem, found.match.problem), found.match.problem


def test_regular_communication_is_not_aligned(tmp_path: Path, wire: WireActivity) -> None:
    """Every 20 ms a burst of 8 ms: shifted by 20 ms, it looks the same."""
    events = [compute(0, MS), *(collective(n * 20 * MS, 8 * MS) for n in range(100))]
    overlap = overlap_of(tmp_path, events)
    covered = overlap.device.communication.lengths_ns(wire.edges_ns[:-1], wire.edges_ns[1:]) / wire.interval_ns
    regular = replace(wire, shares=covered)
    assert "not clear, communication is too regular" in match_clocks(overlap.device.communication, regular).problem


def test_reasons_for_unaligned_clocks(overlap: DeviceOverlap, wire: WireActivity) -> None:
    busy = overlap.device.communication
    silent = replace(wire, shares=np.zeros_like(wire.shares))
    assert "no communication kernel uses the wire" in match_clocks(busy - busy, wire).problem
    assert "only 0 bursts end on the wire" in match_clocks(busy, silent).problem
    assert "less than 20 samples of the time of the trace" in match_clocks(busy.shift(10**13), wire).problem


def test_missing_samples_are_not_waiting(overlap: DeviceOverlap, recording: Recording) -> None:
    half = recording.cut(0, recording.ticks // 2)
    rates = half.bytes_per_second.copy()
    rates[:, :, 40:60], seconds = np.nan, half.seconds.copy()
    seconds[:, :, 40:60] = 0.0
    found = split_exposed(
        overlap, wire_activity(replace(half, bytes_per_second=rates, seconds=seconds), [0, 1], 1e8), 4
    )
    check_sums(found, overlap)
    assert found.whole
    after = overlap.exposed.length_ns(half.end_ns - 10 * MS, 2**62)
    assert found.whole.unmeasured_ns >= after - 10 * MS > overlap.whole.exposed_ns // 3
    assert found.whole.waiting_ns < PLAYED.timeline()[3]
    # the times of waiting, as a picture shows them
    assert found.waiting.total_ns == found.whole.waiting_ns


def test_communication_inside_the_node_is_separate(tmp_path: Path, wire: WireActivity) -> None:
    """Kernels of a group on one node run while the wire is silent; they do not wait."""
    events = PLAYED.timeline()[0]
    quiet = [collective(20 * MS, 30 * MS, INSIDE, 24), collective(60 * MS, 10 * MS, INSIDE, 24)]
    overlap = overlap_of(tmp_path, [*events, *quiet])
    found = split_exposed(overlap, wire, 4)
    check_sums(found, overlap)
    assert found.whole
    assert found.whole.inside_node_ns == 40 * MS
    assert found.whole.waiting_ns == pytest.approx(PLAYED.timeline()[3], rel=0.02)
    assert [split is None for split in found.communicators] == [False, True]
    # nobody knows that it is one node
    unknown = split_exposed(overlap, wire, None)
    assert unknown.whole
    assert unknown.whole.inside_node_ns == 0
    assert unknown.whole.waiting_ns == pytest.approx(PLAYED.timeline()[3] + 40 * MS, rel=0.02)


def rates_of(values: list[float]) -> WireActivity:
    """The activity of one port whose samples have these rates in GB/s, transmit only."""
    base = record(replace(PLAYED, steps=1), rails=1)
    rates = np.zeros((1, 2, len(values)))
    rates[0, 0] = np.array(values) * 1e9
    seconds = np.where(np.isnan(rates), 0.0, 0.01)
    return wire_activity(Recording(base.meta, BEGIN_NS, rates, seconds), [0], THRESHOLD)


def spans_of(found: WireActivity) -> list[tuple[float, float]]:
    """Active times in milliseconds from the first sample on."""
    first = found.edges_ns[0]
    return [((a - first) / MS, (b - first) / MS) for a, b in zip(found.active.starts, found.active.ends, strict=True)]


def test_edges_of_a_burst_are_found_within_samples() -> None:
    found = rates_of([0, 10, 40, 40, 40, 20, 0])
    assert spans_of(found) == [(17.5, 55.0)]
    assert (found.certain.total_ns, found.possible.total_ns) == (30 * MS, 50 * MS)


def test_a_pause_within_a_burst_is_not_traffic() -> None:
    assert spans_of(rates_of([0, 40, 40, 10, 40, 40, 0])) == [(10.0, 31.25), (38.75, 60.0)]
    # a lower rate that lasts is no pause
    assert spans_of(rates_of([0, 40, 40, 20, 20, 20, 0])) == [(10.0, 60.0)]


def test_a_short_burst_lies_in_the_middle() -> None:
    found = rates_of([0, 40, 40, 40, 0, 10, 0])
    assert spans_of(found) == [(10.0, 40.0), (53.75, 56.25)]
    assert found.certain.total_ns == 30 * MS


def test_missing_samples_are_neither_active_nor_silent() -> None:
    nan = float("nan")
    found = rates_of([nan, 40, 40, nan, 0, 0])
    assert spans_of(found) == [(10.0, 30.0)]
    assert found.missing.total_ns == 20 * MS
    assert np.isnan(found.shares).tolist() == [True, False, False, True, False, False]


def test_a_partly_missing_sample_can_be_active() -> None:
    base = record(replace(PLAYED, steps=1))
    rates = np.zeros((2, 2, 6))
    rates[0, 0] = [0, 40e9, 40e9, 40e9, 0, 0]
    rates[1, :, [2, 4]] = np.nan
    seconds = np.where(np.isnan(rates), 0.0, 0.01)
    found = wire_activity(Recording(base.meta, BEGIN_NS, rates, seconds), [0, 1], THRESHOLD)
    assert spans_of(found) == [(10.0, 40.0)]
    assert np.isnan(found.rates).tolist() == [False, False, False, False, True, False]


def test_traffic_outside_the_trace_is_not_unexplained(overlap: DeviceOverlap, wire: WireActivity) -> None:
    end = overlap.device.end_ns
    later = union(np.array([end + 20 * MS]), np.array([end + 900 * MS]))
    found = split_exposed(overlap, replace(wire, active=wire.active | later), 4)
    assert found.explained_ratio == pytest.approx(1.0, abs=0.01)
