"""Merged traces are read by the published description of the Trace Event Format, and compared with both inputs."""

from __future__ import annotations

import gzip
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ibpulse.cli import main
from ibpulse.core.recordings import save
from ibpulse.workbench.overlap.report import PROCESS
from tests.overlap.played_traces import BEGIN_NS, MS, PlayedTrace, compute, record, write_trace

PLAYED = PlayedTrace(steps=4, seed=3)
OFFSET = 31 * MS
RECORDING = record(PLAYED, shift_ns=OFFSET)
# "Trace Event Format": members of events by their phase
REQUIRED = {
    "C": {"name", "pid", "ts", "args"},
    "X": {"name", "pid", "tid", "ts", "dur"},
    "i": {"name", "pid", "ts", "s"},
    "M": {"name", "pid", "args"},
}


def merge(folder: Path, *words: str, name: str = "merged.json.gz", **changes: Any) -> tuple[str, bytes]:
    """What is printed, and the content of the original and of the merged trace."""
    trace = write_trace(folder / "rank0.json.gz", PLAYED.timeline()[0], **changes)
    save(folder / "node7.parquet", RECORDING)
    assert (
        main(["trace", str(trace), f"--against={folder / 'node7.parquet'}", "-o", str(folder / name), *words], {}) == 0
    )
    content = (folder / name).read_bytes()
    return gzip.decompress(trace.read_bytes()), gzip.decompress(content) if name.endswith("gz") else content


def wire_events(content: bytes) -> list[dict[str, Any]]:
    events = json.loads(content, parse_float=Decimal)["traceEvents"]
    return [each for each in events if each["pid"] == PROCESS]


@pytest.mark.parametrize("name", ["merged.json.gz", "merged.json"])
def test_the_original_passes_through_unchanged(tmp_path: Path, name: str) -> None:
    original, merged = merge(tmp_path, name=name)
    before, after = (json.loads(each) for each in (original, merged))
    kept = [each for each in after.pop("traceEvents") if each["pid"] != PROCESS]
    assert kept == before.pop("traceEvents")
    assert before == after
    # byte for byte, apart from what was added
    place = original.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    assert merged.startswith(original[:place])
    assert merged.endswith(original[place:])


def test_samples_are_on_the_clock_of_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = wire_events(merge(tmp_path)[1])
    text = capsys.readouterr().out.splitlines()[-1]
    found = re.fullmatch(
        r".*merged\.json\.gz: clock of the wire \+(\S+) ± (\S+) ms, corrected \(correlation .*\)", text
    )
    assert found
    assert abs(float(found[1]) * MS - OFFSET) <= float(found[2]) * MS
    clock = next(each for each in events if each["name"] == "clock")["args"]
    assert float(clock["ahead_ms"]) == pytest.approx(float(found[1]), abs=0.005)
    assert float(clock["error_ms"]) == pytest.approx(float(found[2]), abs=0.005)
    process = next(each for each in events if each["name"] == "process_name")["args"]["name"]
    assert process == f"wire of node7: clock of the wire +{found[1]} ± {found[2]} ms, corrected"
    rates = {
        each["ts"]: each["args"]["GB/s"] for each in events if each["ph"] == "C" and each["name"] == "mlx5_1:1 receive"
    }
    ahead = round(Decimal(clock["ahead_ms"]) * MS)
    first = RECORDING.start_ns - RECORDING.meta.interval_ns - ahead - BEGIN_NS
    expected = {first + place * 10 * MS: rate for place, rate in enumerate(RECORDING.bytes_per_second[1, 1])}
    inside = {Decimal(time) / 1000: rate for time, rate in expected.items() if time >= 0}
    assert set(rates) - {max(rates)} == set(inside)
    for time, rate in inside.items():
        assert float(rates[time]) * 1e9 == pytest.approx(rate, abs=1)


def test_events_follow_the_trace_event_format(tmp_path: Path) -> None:
    events = wire_events(merge(tmp_path)[1])
    for each in events:
        assert REQUIRED[each["ph"]] <= set(each)
        assert each["ts"] >= 0
        assert each.get("dur", 1) > 0
        assert each.get("s", "t") in ("g", "p", "t")
        if each["ph"] == "C":
            assert all(isinstance(value, Decimal | int) for value in each["args"].values())
    threads = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert {"mlx5_0:1", "mlx5_1:1", "bursts"} <= set(threads.values())
    assert {each["tid"] for each in events if each["ph"] == "X"} <= set(threads)
    (index,) = [each["args"] for each in wire_events(merge(tmp_path)[1]) if each["name"] == "process_sort_index"]
    assert index == {"sort_index": 6_000_000}


def test_exposed_communication_is_split_below_the_rails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    merge(tmp_path, "--format=json")
    split = json.loads(capsys.readouterr().out)["devices"][0]["wire"]
    events = wire_events(gzip.decompress((tmp_path / "merged.json.gz").read_bytes()))
    (thread,) = [each["tid"] for each in events if each["args"].get("name") == "exposed, device 0"]
    for name in ("moving", "waiting"):
        lasted = sum(each["dur"] for each in events if each["tid"] == thread and each["name"] == name)
        assert lasted * 1000 == split[f"{name}_ns"] > 0


def test_a_shift_places_the_wire(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = wire_events(merge(tmp_path, "--shift=-30ms")[1])
    text = capsys.readouterr().out
    assert re.search(
        r"clock of the wire \+30\.00 ms, corrected \(given with --shift; the match finds \+[01]\.\d\d ±", text
    )
    assert "error_ms" not in next(each for each in events if each["name"] == "clock")["args"]


def test_an_uncertain_match_is_refused_with_a_way_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write_trace(tmp_path / "other.json", PlayedTrace(steps=4, seed=9).timeline()[0])
    save(tmp_path / "node7.parquet", RECORDING)
    words = ["trace", str(trace), f"--against={tmp_path / 'node7.parquet'}", "-o", str(tmp_path / "merged.json.gz")]
    assert main(words, {}) == 1
    assert "give the offset with --shift" in capsys.readouterr().err
    assert not (tmp_path / "merged.json.gz").exists()


def test_missing_samples_are_zero_below_a_slice(tmp_path: Path) -> None:
    rates, seconds = RECORDING.bytes_per_second.copy(), RECORDING.seconds.copy()
    rates[0, :, 100:140], seconds[0, :, 100:140] = np.nan, 0.0
    trace = write_trace(tmp_path / "rank0.json", PLAYED.timeline()[0])
    save(tmp_path / "gap.parquet", type(RECORDING)(RECORDING.meta, RECORDING.start_ns, rates, seconds))
    assert main(["trace", str(trace), f"--against={tmp_path / 'gap.parquet'}", "-o", str(tmp_path / "m.json")], {}) == 0
    events = wire_events((tmp_path / "m.json").read_bytes())
    gap = next(each for each in events if each["name"] == "missing data")
    inside = [
        each
        for each in events
        if each["name"] == "mlx5_0:1 transmit" and gap["ts"] <= each["ts"] < gap["ts"] + gap["dur"]
    ]
    assert gap["dur"] == 400_000
    assert [(each["ts"], each["args"]["GB/s"]) for each in inside] == [(gap["ts"], 0)]


def test_invalid_outputs_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(write_trace(tmp_path / "rank0.json", [compute(0, MS)]))
    for words, problem in (
        ([trace, "-o", "m.json"], "a trace is merged with one recording; give one trace, and --against"),
        ([trace, trace, "--against=x", "-o", "m.json"], "a trace is merged with one recording"),
        ([trace, "--against=x", "-o", trace], "is the trace itself; name another file"),
        ([trace, "-o", "m.txt"], "'m.txt' is neither .json nor .json.gz"),
    ):
        assert main(["trace", *words], {}) == 2
        assert problem in capsys.readouterr().err
