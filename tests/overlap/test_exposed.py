"""Exposed communication of traces with known overlap, exactly, whatever the traps of the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ibpulse.base.errors import TraceError
from ibpulse.workbench.overlap import trace as reading
from ibpulse.workbench.overlap.exposed import DeviceOverlap, measure_overlap
from ibpulse.workbench.overlap.kernels import CommunicationNames
from ibpulse.workbench.overlap.trace import KinetoTrace, read_trace
from tests.analysis.test_public_data import find_file
from tests.overlap.played_traces import (
    BEGIN_NS,
    GROUP,
    INSIDE,
    MS,
    PlayedTrace,
    collective,
    compute,
    event,
    step,
    write_trace,
)

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
    return read_trace(write_trace(path / "trace.json", events, **changes), CommunicationNames(added))


def measure(path: Path, events: list[dict[str, Any]], added: tuple[str, ...] = (), **changes: Any) -> DeviceOverlap:
    trace = read(path, events, added, **changes)
    (device,) = trace.devices
    return measure_overlap(device, trace.steps)


def test_parts_of_the_time_are_exact(tmp_path: Path) -> None:
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


def test_steps_cut_kernels_at_their_ends(tmp_path: Path) -> None:
    steps = measure(tmp_path, EVENTS).steps
    assert [one.number for one, _ in steps] == [5, 6]
    first, second = (time for _, time in steps)
    assert (first.length_ns, first.communication_ns, first.exposed_ns) == (20 * MS, 14 * MS, 9 * MS)
    assert (second.length_ns, second.communication_ns, second.exposed_ns) == (10 * MS, 6 * MS, 6 * MS)
    assert (first.idle_ns, second.idle_ns) == (1 * MS, 4 * MS)


def test_steps_outside_the_device_time_are_dropped(tmp_path: Path) -> None:
    others = [step(4, 2 * MS, 8 * MS), step(7, 45 * MS, 5 * MS), step(8, 60 * MS, 5 * MS)]
    assert [one.number for one, _ in measure(tmp_path, [*EVENTS, *others]).steps] == [5, 6]


def test_overlapping_steps_count_communication_once(tmp_path: Path) -> None:
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


def test_absolute_times_in_nanoseconds_are_exact(tmp_path: Path) -> None:
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
    trace = read_trace(path, CommunicationNames())
    found = measure_overlap(trace.devices[0], trace.steps)
    assert trace.absolute
    assert found.device.begin_ns == 1_712_345_678_901_234_001
    assert (found.whole.length_ns, found.whole.overlap_ns, found.whole.exposed_ns) == (1_999, 433, 1_000)


def test_old_categories_and_kernels_without_groups(tmp_path: Path) -> None:
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


def test_names_can_be_added(tmp_path: Path) -> None:
    own = [compute(0, MS), event("my_ring_exchange<float>", "kernel", MS, MS)]
    assert measure(tmp_path, own).whole.communication_ns == 0
    assert measure(tmp_path, own, ("ring_exchange",)).whole.exposed_ns == MS


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


def test_times_as_text_are_exact(tmp_path: Path) -> None:
    kernel = {**compute(0, 0), "ts": "10000.5", "dur": "4000.25"}
    device = read(tmp_path, [kernel, {**kernel, "ts": "20000", "dur": "7.0019"}]).devices[0]
    starts, ends = device.computation.starts - BEGIN_NS, device.computation.ends - BEGIN_NS
    assert starts.tolist() == [10_000_500, 20_000_000]
    assert ends.tolist() == [14_000_750, 20_007_001]


# from the events of kernels alone, counted independently of this project: communication kernels, then microseconds of
# the span, of the union of communication, of the union of computation, of the overlap, and exposed
KNOWN = {
    "kineto_two_streams.json.gz": (60, 463_441, 163_535, 281_336, 75_614, 87_921),
    "kineto_no_overlap.json.gz": (2_020, 1_732_965, 357_343, 620_516, 0, 357_343),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_public_trace_has_its_known_times(name: str) -> None:
    trace = read_trace(find_file(name), CommunicationNames())
    (device,) = trace.devices
    found = measure_overlap(device, trace.steps)
    whole = found.whole
    times = (whole.length_ns, whole.communication_ns, whole.computation_ns, whole.overlap_ns, whole.exposed_ns)
    assert times == tuple(1000 * known for known in KNOWN[name][1:])
    assert sum(one.work.kernels for one in found.communicators) == KNOWN[name][0]
    inside = sum(time.communication_ns for _, time in found.steps)
    # consecutive steps are a few microseconds apart
    assert inside + found.outside_ns == whole.communication_ns
