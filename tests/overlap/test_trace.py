"""Faults that traces of the field have: what is whole counts, and a note says what was left out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ibpulse.workbench.overlap import trace as reading
from ibpulse.workbench.overlap.exposed import measure_overlap
from ibpulse.workbench.overlap.kernels import CommunicationNames
from ibpulse.workbench.overlap.trace import KinetoTrace, read_traces
from tests.overlap.played_traces import BEGIN_NS, GROUP, MS, collective, compute, document, event, step
from tests.tables import for_each

BEGIN = 5_000 * MS
# three steps, in each a kernel of 60 and a collective of 40 ms that overlap by 10 ms
EVENTS = [
    one
    for number in range(3)
    for at in [BEGIN + 100 * number * MS]
    for one in (step(number, at, 100 * MS), compute(at, 60 * MS), collective(at + 50 * MS, 40 * MS))
]
SAME = (290 * MS, 120 * MS, 90 * MS)


def read(path: Path, content: bytes) -> KinetoTrace:
    file = path / "trace.json"
    file.write_bytes(content)
    return read_traces(file, CommunicationNames())[0]


def text(*more: dict[str, Any], events: list[dict[str, Any]] = EVENTS, **changes: Any) -> bytes:
    return json.dumps(document([*events, *more], **changes)).encode()


def with_argument(value: str) -> bytes:
    """The trace with a value as the profiler printed it, in the second event."""
    return text().replace(b'"stream": 7', b'"stream": 7, "est. achieved occupancy %": ' + value.encode(), 1)


def check(trace: KinetoTrace, times: tuple[int, int, int], note: str) -> None:
    (device,) = trace.devices
    whole = measure_overlap(device, trace.steps).whole
    assert (whole.length_ns, whole.communication_ns, whole.exposed_ns) == times
    assert [note in said for said in trace.notes] == [True] * bool(note), trace.notes


KERNEL = compute(BEGIN + 10 * MS, 5 * MS)
STEP = step(3, BEGIN + 300 * MS, MS)
BAD_QUOTES = (
    b'{"ph": "X", "cat": "python_function", "name": "_lib = Library("_inductor_test", "IMPL")\n(1): <module>", '
    b'"pid": 1, "tid": 1, "ts": 7, "dur": 0, "args": {}}, '
)
ODD_QUOTE = b'{"ph": "X", "cat": "python_function", "name": "5" wide", "ts": 7, "dur": 0, "args": {"a": [{}]}}, '


def inserted(broken: bytes, place: int) -> bytes:
    """The trace with a damaged event in front of another one."""
    content = text()
    at = -1
    for _ in range(place + 1):
        at = content.index(b'{"ph"', at + 1)
    return content[:at] + broken + content[at:]


FAULTS: dict[str, tuple[bytes, str]] = {
    "nothing": (text(), ""),
    # values that are no JSON: pytorch/kineto 105, 131
    "N/A": (with_argument("N/A"), "1 of 9 events mended"),
    "inf": (with_argument("inf"), "1 of 9 events mended"),
    "-inf": (with_argument("-inf"), "1 of 9 events mended"),
    "Infinity": (with_argument("Infinity"), "1 of 9 events mended"),
    "nan": (with_argument("nan"), "1 of 9 events mended"),
    "-nan": (with_argument("-nan"), "1 of 9 events mended"),
    "nan of Windows": (with_argument("-nan(ind)"), "1 of 9 events mended"),
    "None": (with_argument("None"), "1 of 9 events mended"),
    "absent": (with_argument(""), "1 of 9 events mended"),
    "comma at the end": (text().replace(b'"stream": 7', b'"stream": 7,', 1), "1 of 9 events mended"),
    "hexadecimal": (with_argument("0x7f"), "1 of 9 events mended"),
    "N/A in a string": (with_argument('"N/A, nan: inf,}"'), ""),
    "bytes that are not UTF-8": (text().replace(b"s16816", b"\xff\xfe\x80", 1), "1 of 9 events mended"),
    "control character": (text().replace(b"s16816", b"\n\x01", 1), "1 of 9 events mended"),
    "half a surrogate pair": (text().replace(b"s16816", b"\\ud800", 1), "1 of 9 events mended"),
    # quotes that are not escaped: pytorch/pytorch 113001
    "quotes in a name": (inserted(BAD_QUOTES, 1), "1 event damaged and left out, beside 9 whole ones"),
    "quotes in the first name": (inserted(BAD_QUOTES, 0), "1 event damaged and left out, beside 9 whole ones"),
    "one quote in a name": (inserted(ODD_QUOTE, 4), "1 event damaged and left out, beside 9 whole ones"),
    "one quote in many names": (inserted(ODD_QUOTE * 99, 4), "99 events damaged and left out, beside 9 whole ones"),
    "one quote in the last name": (
        text().replace(b'], "traceName"', b", " + ODD_QUOTE[:-2] + b'], "traceName"'),
        "1 event damaged and left out, beside 9 whole ones",
    ),
    # times without sense: pytorch/kineto 646, 109, pytorch/pytorch 150131, 188481
    "negative duration of a kernel": (text({**KERNEL, "dur": -1}), "1 kernel without sensible times"),
    "negative begin of a kernel": (text({**KERNEL, "ts": -120.5}), "1 kernel without sensible times"),
    "negative duration as text": (text({**KERNEL, "dur": "-1"}), "such as ts '5010000.0' and dur '-1': left out"),
    "negative duration without a sign": (text({**KERNEL, "dur": 18446744073709551.615}), "1 kernel without sensible"),
    "begin since 1970 that is lost": (text({**KERNEL, "ts": 0, "dur": 1.6e15}), "1 kernel without sensible times"),
    "no times": (text({**KERNEL, "ts": 0.0, "dur": 0.0}), "1 kernel without sensible times"),
    "no begin": (text({key: KERNEL[key] for key in KERNEL if key != "ts"}), "1 kernel without sensible times"),
    "null": (text({**KERNEL, "dur": None}), "1 kernel without sensible times"),
    "truth value": (text({**KERNEL, "dur": True}), "1 kernel without sensible times"),
    "time beyond all dates": (text({**KERNEL, "ts": 1e300}), "1 kernel without sensible times"),
    "negative duration of a step": (text({**STEP, "dur": -1}), "1 step without sensible times"),
    "step without a number": (text({**STEP, "name": "ProfilerStep#"}), "1 step without sensible times or number"),
    "negative duration of a copy": (text({**KERNEL, "cat": "gpu_memcpy", "dur": -1}), "1 transfer without sensible"),
    "negative times of the CPU": (text(event("aten::add", "cpu_op", -1, -1)), ""),
    # work that is far away: pytorch/kineto 109
    "early kernel": (text(compute(12, 5)), "1 kernel at least 5.000 s away from all others: left out"),
    "late kernels": (text(compute(10**15, 5), compute(10**15, 9)), "2 kernels at least 999,994.700 s away"),
    "stray collective": (text(collective(12, 5)), "1 kernel at least 5.000 s away from all others: left out"),
    "stray kernels on both sides": (text(compute(12, 5), compute(10**15, 9)), "2 kernels at least 5.000 s away"),
    "stray kernel of another device": (text({**compute(12, 5), "pid": 1}), "1 kernel at least 5.000 s away"),
    "stray step": (text(step(9, 12, 5)), ""),
    # the text around the events: pytorch/kineto 1184, 1336
    "quotes in the metadata": (
        text()[:-1] + b', "INFO": ["Logging CUDA event {"event_id": 3, "stream": 7}"]}',
        "is damaged behind its events: rank, groups or wall time may be missing",
    ),
    "quotes in front of the events": (
        text().replace(b'"displayTimeUnit"', b'"INFO": ["event {"event_id": 3}"], "displayTimeUnit"'),
        "is damaged in front of its events",
    ),
    "nothing behind the events": (text().partition(b', "traceName"')[0], "ends early or is damaged behind its events"),
    "cut within an event": (text(KERNEL).partition(b', "traceName"')[0][:-9], "the file ends early: only 9 events"),
    "text behind the end": (text() + b" 2026-11-27 INFO done", "is damaged behind its events"),
    "checksum of gzip": (gzip.compress(text())[:-8] + bytes(8), "cannot be decompressed to its end"),
    # forms of a trace
    "byte order mark": (b"\xef\xbb\xbf" + text(), ""),
    "two parts of gzip": (gzip.compress(text()[:900]) + gzip.compress(text()[900:]), ""),
    "key given twice": (text().replace(b'"ph": "X"', b'"ph": "X", "ph": "X"'), ""),
    "numbers as text": (
        text(events=[{**one, "ts": str(one["ts"]), "dur": str(one["dur"])} for one in EVENTS]),
        "",
    ),
    "numbers with exponents": (text(events=[{**one, "dur": f"{one['dur']:e}"} for one in EVENTS]), ""),
    "stream as a name": (text(events=[{**one, "tid": f"stream {one['tid']}"} for one in EVENTS]), ""),
}


@for_each({name: (name, *case) for name, case in FAULTS.items()})
def test_faults_of_the_profiler_leave_the_rest(name: str, content: bytes, note: str, tmp_path: Path) -> None:
    assert FAULTS[name]
    trace = read(tmp_path, content)
    check(trace, SAME, note)
    assert (trace.rank, trace.world_size, trace.gpus) == (0, 16, 4)
    assert (trace.devices[0].begin_ns, trace.devices[0].kernels) == (BEGIN_NS + BEGIN, 6)


def test_a_bare_event_list_is_a_trace(tmp_path: Path) -> None:
    for content in (json.dumps(EVENTS), json.dumps(EVENTS, indent=1) + "\n", json.dumps(EVENTS)[:-1]):
        trace = read(tmp_path, content.encode())
        check(trace, SAME, "" if content.rstrip()[-1] == "]" else "the file ends early")
        assert not trace.absolute


@pytest.mark.parametrize("base", [-1, "now", 2**62, None, [1]])
def test_an_invalid_base_gives_no_wall_time(tmp_path: Path, base: Any) -> None:
    trace = read(tmp_path, text(baseTimeNanoseconds=base))
    check(trace, SAME, f"baseTimeNanoseconds '{base}' is no time, so there is no wall time")
    assert not trace.absolute


@pytest.mark.parametrize("base", [str(BEGIN_NS), float(BEGIN_NS)])
def test_the_base_may_be_text_or_float(tmp_path: Path, base: Any) -> None:
    assert read(tmp_path, text(baseTimeNanoseconds=base)).devices[0].begin_ns == BEGIN_NS + BEGIN


def without_steps(*more: dict[str, Any]) -> bytes:
    return text(*more, events=[one for one in EVENTS if "Profiler" not in one["name"]])


FAR: dict[str, tuple[bytes, tuple[int, int, int], str]] = {
    "few work far away": (without_steps(compute(12, 5)), SAME, "1 kernel at least 5.000 s away"),
    # ten times the length of the rest, which has 290 ms
    "few work near": (without_steps(compute(BEGIN - 2000 * MS, MS)), (2290 * MS, 120 * MS, 90 * MS), ""),
    # the first phase of the program
    "much work far away": (without_steps(compute(0, 100 * MS)), (5290 * MS, 120 * MS, 90 * MS), ""),
    "much work far from the steps": (text(compute(0, 100 * MS)), SAME, "1 kernel at least 4.900 s away"),
    "work behind the steps": (text(compute(BEGIN + 800 * MS, MS)), (801 * MS, 120 * MS, 90 * MS), ""),
}


@for_each({name: (name, *case) for name, case in FAR.items()})
def test_stray_work_is_left_out(
    name: str, content: bytes, times: tuple[int, int, int], note: str, tmp_path: Path
) -> None:
    assert FAR[name]
    check(read(tmp_path, content), times, note)


def test_payloads_are_unknown_or_may_be_text(tmp_path: Path) -> None:
    (work,) = read(tmp_path, text(collective(12, 5))).devices[0].communicators
    assert (work.kernels, work.payload_bytes) == (3, None)
    group = {**GROUP, "Group size": "4", "In msg nelems": "1000", "Out msg nelems": "4000"}
    (work,) = read(tmp_path, text(events=[compute(0, MS), collective(0, MS, group)])).devices[0].communicators
    assert (work.communicator.size, work.payload_bytes) == (4, 8000)


def test_unknown_libraries_are_noted_longest_first(tmp_path: Path) -> None:
    names = [f"void lib{n}::all_to_all<float>(float*)" for n in range(5)]
    trace = read(tmp_path, text(*(event(name, "kernel", BEGIN, n * MS) for n, name in enumerate(names, 1))))
    assert [said[:32] for said in trace.notes[:3]] == [f"1 kernel lib{n}::all_to_all ({n + 1}.000" for n in (4, 3, 2)]
    assert trace.notes[3] == "2 further functions look like communication, but count as computation"


def big_groups(ranks: str) -> bytes:
    return text(
        *(
            collective(BEGIN, MS, {**GROUP, "Process Group Name": str(n), "Process Group Ranks": ranks})
            for n in range(9)
        )
    )


def test_members_of_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_RANKS", 100)
    trace = read(tmp_path, big_groups(str([*range(30)])))
    # three lists of 30 fit
    assert [len(work.communicator.ranks) for work in trace.devices[0].communicators].count(0) == 6
    assert trace.notes == ("members of 6 groups are unknown: all groups have more than 100 members",)
    # texts that are longer than any list of members are no list
    monkeypatch.setattr(reading, "MAX_RANKS_BYTES", 50)
    found = read(tmp_path, big_groups(" " * 60)).devices[0].communicators
    assert [work.communicator.ranks for work in found if work.communicator.ranks] == [(0, 4, 8, 12)]
