"""Exposed communication of traces with known overlap, exactly; waiting and moving of a played trace come out again."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ibpulse.base.errors import TraceError
from ibpulse.core.recordings import Recording
from ibpulse.workbench.overlap import trace as reading
from ibpulse.workbench.overlap.exposed import (
    DeviceOverlap,
    ExposedOnWire,
    WireActivity,
    match_clocks,
    measure_overlap,
    split_exposed,
    wire_activity,
)
from ibpulse.workbench.overlap.intervals import EMPTY, IntervalSet, union
from ibpulse.workbench.overlap.kernels import CommunicationNames
from ibpulse.workbench.overlap.trace import KinetoTrace, read_traces
from tests.overlap.played_traces import (
    BEGIN_NS,
    GROUP,
    INSIDE,
    MS,
    PlayedTrace,
    collective,
    compute,
    event,
    record,
    step,
    write_trace,
)
from tests.statistics.test_public_data import find_file

# computation 10 to 20 and 40 to 45 ms; communication 15 to 30, 28 to 35 and 41 to 43 ms
EVENTS = [
    step(5, 9 * MS, 20 * MS),
    step(6, 29 * MS, 10 * MS),
    compute(10 * MS, 4 * MS),
    compute(13 * MS, 7 * MS),
    collective(15 * MS, 15 * MS),
    collective(28 * MS, 7 * MS, INSIDE, 24),
    compute(40 * MS, 5 * MS),
    collective(41 * MS, 2 * MS),
    event("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", 34 * MS, 3 * MS),
    event("Memset (Device)", "gpu_memset", 11 * MS, 1 * MS),
]


def read(path: Path, events: list[dict[str, Any]], added: tuple[str, ...] = (), **changes: Any) -> KinetoTrace:
    return read_traces(write_trace(path / "trace.json", events, **changes), CommunicationNames(added))[0]


def measure(path: Path, events: list[dict[str, Any]], added: tuple[str, ...] = (), **changes: Any) -> DeviceOverlap:
    trace = read(path, events, added, **changes)
    (device,) = trace.devices
    return measure_overlap(device, trace.steps)


def test_parts_of_the_time_and_of_steps_are_exact(tmp_path: Path) -> None:
    found = measure(tmp_path, EVENTS)
    whole = found.whole
    assert whole.length_ns == 35 * MS
    assert whole.computation_ns == 15 * MS
    assert whole.communication_ns == 22 * MS
    assert whole.exposed_ns == 15 * MS
    assert whole.overlap_ns == 7 * MS
    assert whole.overlap_ratio == 7 / 22
    assert whole.idle_ns == 5 * MS
    assert whole.copying_ns == 2 * MS
    assert found.outside_ns == 2 * MS
    steps = measure(tmp_path, EVENTS).steps
    assert [one.number for one, _ in steps] == [5, 6]
    first, second = (time for _, time in steps)
    assert (first.length_ns, first.communication_ns, first.exposed_ns) == (20 * MS, 14 * MS, 9 * MS)
    assert (second.length_ns, second.communication_ns, second.exposed_ns) == (10 * MS, 6 * MS, 6 * MS)
    assert (first.idle_ns, second.idle_ns) == (1 * MS, 4 * MS)
    others = [step(4, 2 * MS, 8 * MS), step(7, 45 * MS, 5 * MS), step(8, 60 * MS, 5 * MS)]
    assert [one.number for one, _ in measure(tmp_path, [*EVENTS, *others]).steps] == [5, 6]
    # as when two threads of a process are profiled
    found = measure(tmp_path, [*EVENTS, step(5, 19 * MS, 10 * MS)])
    assert len(found.steps) == 3
    assert found.outside_ns == 2 * MS


def test_each_communicator_has_its_own_times(tmp_path: Path) -> None:
    inside, data = sorted(measure(tmp_path, EVENTS).communicators, key=lambda one: one.work.kernels)
    assert (inside.work.communicator.label, data.work.communicator.label) == ("TP 3", "EXPERT_DATA_PARALLEL_GROUP 7")
    assert (data.work.kernels, data.work.active.total_ns, data.exposed.total_ns) == (2, 17 * MS, 10 * MS)
    assert (inside.work.kernels, inside.work.active.total_ns, inside.exposed.total_ns) == (1, 7 * MS, 7 * MS)
    assert data.step_exposed_ns == (9 * MS, 1 * MS)
    assert inside.step_communication_ns == (1 * MS, 6 * MS)
    # AllGather of bfloat16: the larger side, two bytes each
    assert (data.work.payload_bytes, inside.work.payload_bytes) == (16_000, 8_000)
    assert data.work.communicator.ranks == (0, 4, 8, 12)
    assert [each.work.communicator.inside_node(4) for each in (inside, data)] == [True, False]
    assert not inside.work.communicator.inside_node(None)


@pytest.mark.parametrize(
    ("changes", "begin_ns", "absolute"),
    [({}, BEGIN_NS + 10 * MS, True), ({"baseTimeNanoseconds": 0}, 10 * MS, False)],
)
def test_wall_time_is_base_plus_ts(tmp_path: Path, changes: dict[str, Any], begin_ns: int, absolute: bool) -> None:
    trace = read(tmp_path, EVENTS, **changes)
    assert (trace.devices[0].begin_ns, trace.absolute) == (begin_ns, absolute)


def test_times_of_any_form_are_exact(tmp_path: Path) -> None:
    """Traces of early 2024 have no base, and times with three decimals that a float of 64 bits cannot hold."""
    path = tmp_path / "trace.json"
    kernel = '{"ph": "X", "cat": "kernel", "name": "%s", "pid": 0, "tid": 7, "ts": %s, "dur": %s}'
    events = ", ".join(
        [
            kernel % ("gemm", "1712345678901234.001", "0.999"),
            kernel % ("ncclKernel_AllReduce", "1712345678901234.567", "1.433"),
        ]
    )
    path.write_text(f'{{"traceEvents": [{events}]}}')
    [trace] = read_traces(path, CommunicationNames())
    found = measure_overlap(trace.devices[0], trace.steps)
    assert trace.absolute
    assert found.device.begin_ns == 1_712_345_678_901_234_001
    assert (found.whole.length_ns, found.whole.overlap_ns, found.whole.exposed_ns) == (1_999, 433, 1_000)
    kernel = {**compute(0, 0), "ts": "10000.5", "dur": "4000.25"}
    device = read(tmp_path, [kernel, {**kernel, "ts": "20000", "dur": "7.0019"}]).devices[0]
    starts, ends = device.computation.starts - BEGIN_NS, device.computation.ends - BEGIN_NS
    assert starts.tolist() == [10_000_500, 20_000_000]
    assert ends.tolist() == [14_000_750, 20_007_001]


def test_old_categories_and_added_names_are_communication(tmp_path: Path) -> None:
    old = [
        event("sgemm", "Kernel", 0, 2 * MS),
        event("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "Kernel", MS, 3 * MS, 21),
        event("Memcpy HtoD", "Memcpy", 0, MS),
        step(1, 0, 4 * MS),
    ]
    found = measure(tmp_path, old)
    assert (found.whole.communication_ns, found.whole.exposed_ns) == (3 * MS, 2 * MS)
    group = found.communicators[0].work
    assert (group.communicator.label, group.payload_bytes, group.communicator.size) == ("NCCL on stream 21", None, 0)
    own = [compute(0, MS), event("my_ring_exchange<float>", "kernel", MS, MS)]
    assert measure(tmp_path, own).whole.communication_ns == 0
    assert measure(tmp_path, own, ("ring_exchange",)).whole.exposed_ns == MS


@pytest.mark.parametrize("as_text", [False, True])
def test_group_members_come_from_pg_config(tmp_path: Path, as_text: bool) -> None:
    groups: Any = [{"pg_name": "7", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3], "pg_size": 4}]
    about = {"rank": 2, "world_size": 4, "pg_config": repr(groups) if as_text else groups}
    shortened = {**GROUP, "Process Group Ranks": "[0, 1, ..., 3]"}
    trace = read(tmp_path, [compute(0, MS), collective(0, MS, shortened)], distributedInfo=about)
    assert trace.devices[0].communicators[0].communicator.ranks == (0, 1, 2, 3)
    assert (trace.rank, trace.world_size, trace.gpus) == (2, 4, 4)


def test_annotations_and_cpu_events_are_ignored(tmp_path: Path) -> None:
    noise = [
        event("ProfilerStep#5", "gpu_user_annotation", 0, 900 * MS),
        event("nccl:all_gather", "user_annotation", 0, 900 * MS),
        event("ncclDevKernel_AllGather", "cuda_runtime", 0, 900 * MS),
        {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "ts": 1},
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 2, "id": 1},
        {"name": "process_name", "ph": "M", "ts": 0, "args": {}},
    ]
    assert measure(tmp_path, [*noise, *EVENTS]).whole == measure(tmp_path, EVENTS).whole


def test_gpus_of_one_process_are_separate(tmp_path: Path) -> None:
    other = [{**one, "pid": 1} for one in EVENTS]
    trace = read(tmp_path, [*EVENTS, *other])
    assert [device.device for device in trace.devices] == ["0", "1"]
    assert len({measure_overlap(device, trace.steps).whole for device in trace.devices}) == 1


def test_merging_on_the_way_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = PlayedTrace(steps=3)
    before = measure(tmp_path, played.timeline()[0])
    monkeypatch.setattr(reading, "MERGED_AT", 2)
    after = measure(tmp_path, played.timeline()[0])
    assert (after.whole, after.device.kernels) == (before.whole, before.device.kernels)
    _, _, moving, waiting = played.timeline()
    assert after.whole.exposed_ns == moving + waiting


def test_empty_and_excessive_traces_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = event("cudaLaunchKernel", "cuda_runtime", 0, MS)
    for events, problem in (
        (
            [event("aten::mm", "cpu_op", 0, MS)],
            r"has no GPU kernel \(categories: cpu_op\); profile with ProfilerActivity",
        ),
        ([{**compute(MS, MS), "dur": -1}], r"has no GPU kernel with times: 1 are without sensible ones"),
        ([launch], "has no GPU kernel, but 1 call of the GPU's runtime: .*; look for its warnings about CUPTI or ROCm"),
    ):
        with pytest.raises(TraceError, match=problem):
            read(tmp_path, events)
    for limit, events, problem in (
        ("MAX_DEVICES", [{**compute(0, MS), "pid": n} for n in range(3)], "kernels of more than 2 devices"),
        ("MAX_COMMUNICATORS", [collective(0, MS, {}, n) for n in range(3)], "more than 2 communicators"),
        ("MAX_STEPS", [step(n, 0, MS) for n in range(3)], "more than 2 steps"),
        ("MAX_INTERVALS", [compute(2 * n * MS, MS) for n in range(3)], "more than 2 separate spans"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(reading, limit, 2)
            with pytest.raises(TraceError, match=problem):
                read(tmp_path, events)


# from the events of kernels alone, counted independently of this project: communication kernels, then microseconds of
# the span, of the union of communication, of the union of computation, of the overlap, and exposed
KNOWN = {
    "kineto_two_streams.json.gz": (60, 463_441, 163_535, 281_336, 75_614, 87_921),
    "kineto_no_overlap.json.gz": (2_020, 1_732_965, 357_343, 620_516, 0, 357_343),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_public_trace_has_its_known_times(name: str) -> None:
    [trace] = read_traces(find_file(name), CommunicationNames())
    (device,) = trace.devices
    found = measure_overlap(device, trace.steps)
    whole = found.whole
    times = (whole.length_ns, whole.communication_ns, whole.computation_ns, whole.overlap_ns, whole.exposed_ns)
    assert times == tuple(1000 * known for known in KNOWN[name][1:])
    assert sum(one.work.kernels for one in found.communicators) == KNOWN[name][0]
    inside = sum(time.communication_ns for _, time in found.steps)
    # consecutive steps are a few microseconds apart
    assert inside + found.outside_ns == whole.communication_ns


THRESHOLD = 1e8
PLAYED = PlayedTrace()


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(PLAYED)


@pytest.fixture(scope="module")
def wire(recording: Recording) -> WireActivity:
    return wire_activity(recording, [0, 1], THRESHOLD)


@pytest.fixture(scope="module")
def overlap(tmp_path_factory: pytest.TempPathFactory) -> DeviceOverlap:
    return measure(tmp_path_factory.mktemp("trace"), PLAYED.timeline()[0])


def check_sums(found: ExposedOnWire, overlap: DeviceOverlap) -> None:
    """Every nanosecond of exposed time is in one part, and every estimate within its range."""
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
    overlap = measure(tmp_path, events)
    found = split_exposed(overlap, wire_activity(record(played), [0, 1], THRESHOLD), 4)
    check_sums(found, overlap)
    assert found.whole.moving_ns == pytest.approx(moving, rel=0.02)
    assert found.whole.waiting_ns == pytest.approx(waiting, rel=0.02)
    assert found.whole.moving_low_ns <= moving <= found.whole.moving_high_ns
    assert found.match.correlation > 0.95
    assert abs(found.match.lag_ns) < MS
    assert found.explained_ratio == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("shift_ns", [-10 * MS, 18 * MS])
def test_a_clock_offset_is_corrected(overlap: DeviceOverlap, shift_ns: int) -> None:
    found = split_exposed(overlap, wire_activity(record(PLAYED, shift_ns=shift_ns), [0, 1], THRESHOLD), 4)
    assert found.match.lag_ns == pytest.approx(shift_ns, abs=0.2 * MS)
    assert found.match.apart == (abs(shift_ns) > 15 * MS)
    check_sums(found, overlap)
    assert found.whole.waiting_ns == pytest.approx(PLAYED.timeline()[3], rel=0.02)


def test_an_offset_is_within_its_stated_error() -> None:
    """Of 200 seeds, all are within it and none is refused; a tenth of them is tested here."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        played = PlayedTrace(steps=int(rng.integers(3, 9)), seed=seed)
        offset = int(rng.integers(-50 * MS, 50 * MS))
        events = [each for each in played.timeline()[0] if "nccl" in each["name"]]
        starts = np.array([BEGIN_NS + round(each["ts"] * 1000) for each in events])
        lengths = np.array([round(each["dur"] * 1000) for each in events])
        wire = wire_activity(record(played, shift_ns=offset), [0, 1], THRESHOLD)
        match = match_clocks(union(starts, starts + lengths), wire)
        assert not match.problem, seed
        assert abs(match.lag_ns - offset) <= match.error_ns < 5 * MS, seed


def test_clocks_that_cannot_be_aligned_have_a_reason(
    overlap: DeviceOverlap, wire: WireActivity, tmp_path: Path
) -> None:
    found = split_exposed(overlap, wire_activity(record(PLAYED, shift_ns=1700 * MS), [0, 1], THRESHOLD), 4)
    assert found.whole is None
    assert re.match(r"the correlation of communication with the wire is 0\.\d\d, below 0\.5", found.match.problem)
    busy = overlap.device.communication
    silent = replace(wire, shares=np.zeros_like(wire.shares))
    assert "no communication kernel uses the wire" in match_clocks(busy - busy, wire).problem
    assert "only 0 bursts end on the wire" in match_clocks(busy, silent).problem
    assert "less than 20 samples of the time of the trace" in match_clocks(busy.shift(10**13), wire).problem
    # every 20 ms a burst of 8 ms: shifted by 20 ms, it looks the same
    events = [compute(0, MS), *(collective(n * 20 * MS, 8 * MS) for n in range(100))]
    overlap = measure(tmp_path, events)
    covered = overlap.device.communication.lengths_ns(wire.edges_ns[:-1], wire.edges_ns[1:]) / wire.interval_ns
    regular = replace(wire, shares=covered)
    assert "not clear, communication is too regular" in match_clocks(overlap.device.communication, regular).problem


def wire_of(times: IntervalSet, count: int) -> WireActivity:
    """Samples of 10 ms, of which the active share is exact."""
    edges = BEGIN_NS + 10 * MS * np.arange(-100, count)
    covered = times.lengths_ns(edges[:-1], edges[1:]) / (10 * MS)
    return WireActivity(edges, covered, covered, EMPTY, EMPTY, EMPTY, EMPTY)


def test_steps_that_are_all_alike_are_refused_beyond_a_sample() -> None:
    """Steps of 120 ms: a clock that is 100 ms ahead cannot be distinguished from one that is 20 ms behind."""
    starts = BEGIN_NS + 120 * MS * np.arange(30)
    times = union(starts, starts + 33 * MS)
    for offset in (100 * MS, -20 * MS):
        assert (
            "not clear, communication is too regular" in match_clocks(times, wire_of(times.shift(offset), 400)).problem
        )
    assert match_clocks(times, wire_of(times.shift(3 * MS), 400)).problem == ""


def test_the_error_covers_kernels_that_end_after_their_traffic() -> None:
    rng = np.random.default_rng(1)
    starts = BEGIN_NS + np.cumsum(rng.integers(60 * MS, 140 * MS, 400))
    match = match_clocks(union(starts, starts + 33 * MS), wire_of(union(starts, starts + 33 * MS - 400_000), 4000))
    assert match.lag_ns == pytest.approx(-400_000, abs=60_000)
    assert abs(match.lag_ns) <= match.error_ns < MS


def test_missing_samples_are_not_waiting(overlap: DeviceOverlap, recording: Recording) -> None:
    half = recording.cut(0, recording.ticks // 2)
    rates = half.bytes_per_second.copy()
    rates[:, :, 40:60], seconds = np.nan, half.seconds.copy()
    seconds[:, :, 40:60] = 0.0
    found = split_exposed(
        overlap, wire_activity(replace(half, bytes_per_second=rates, seconds=seconds), [0, 1], 1e8), 4
    )
    check_sums(found, overlap)
    after = int(overlap.exposed.lengths_ns(np.array([half.end_ns - 10 * MS]), np.array([2**62]))[0])
    assert found.whole.unmeasured_ns >= after - 10 * MS > overlap.whole.exposed_ns // 3
    assert found.whole.waiting_ns < PLAYED.timeline()[3]
    # the times of waiting, as a picture shows them
    assert found.waiting.total_ns == found.whole.waiting_ns


def test_communication_inside_the_node_is_separate(tmp_path: Path, wire: WireActivity) -> None:
    """Kernels of a group on one node run while the wire is silent; they do not wait."""
    events = PLAYED.timeline()[0]
    quiet = [collective(20 * MS, 30 * MS, INSIDE, 24), collective(60 * MS, 10 * MS, INSIDE, 24)]
    overlap = measure(tmp_path, [*events, *quiet])
    found = split_exposed(overlap, wire, 4)
    check_sums(found, overlap)
    assert found.whole.inside_node_ns == 40 * MS
    assert found.whole.waiting_ns == pytest.approx(PLAYED.timeline()[3], rel=0.02)
    assert [split is None for split in found.communicators] == [False, True]
    # nobody knows that it is one node
    unknown = split_exposed(overlap, wire, None)
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


def test_edges_of_bursts_are_found_within_samples() -> None:
    found = rates_of([0, 10, 40, 40, 40, 20, 0])
    assert spans_of(found) == [(17.5, 55.0)]
    assert (found.certain.total_ns, found.possible.total_ns) == (30 * MS, 50 * MS)
    assert spans_of(rates_of([0, 40, 40, 10, 40, 40, 0])) == [(10.0, 31.25), (38.75, 60.0)]
    # a lower rate that lasts is no pause
    assert spans_of(rates_of([0, 40, 40, 20, 20, 20, 0])) == [(10.0, 60.0)]
    found = rates_of([0, 40, 40, 40, 0, 10, 0])
    assert spans_of(found) == [(10.0, 40.0), (53.75, 56.25)]
    assert found.certain.total_ns == 30 * MS


def test_missing_samples_are_neither_active_nor_silent() -> None:
    nan = float("nan")
    found = rates_of([nan, 40, 40, nan, 0, 0])
    assert spans_of(found) == [(10.0, 30.0)]
    assert found.missing.total_ns == 20 * MS
    assert np.isnan(found.shares).tolist() == [True, False, False, True, False, False]
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
