"""A public trace of a job of 2 × 4 ranks whose last pipeline stage is too long, as the counters of eight nodes.

The trace has times and no bytes: a collective has the plateau over its duration, and a message passes in the last
0.4 ms of its operation, because what is before is waiting.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ibpulse.core.arrays import Floats
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta, save
from ibpulse.core.statistics.lateness import ClockOffset
from ibpulse.workbench.fleet.dataset import RAW, DatasetStore, Part
from ibpulse.workbench.fleet.findings import find_sentences
from ibpulse.workbench.fleet.report import FleetReport, describe_dataset
from ibpulse.workbench.fleet.source import DatasetChoice
from ibpulse.workbench.fleet.tiers import PartOrigin, finish_part
from tests.statistics.test_public_data import find_file

TICK_NS, START_NS, LINE, LEVEL = 10_000_000, 1_763_683_200_000_000_000, 50e9, 40e9
MESSAGE_SECONDS, BETWEEN_STEPS = 0.0004, 0.02
BOTH = ("params-all-gather", "grads-reduce-scatter")
MESSAGES = {"forward-send": 0, "backward-send": 0, "forward-recv": 1, "backward-recv": 1}


def counters(operations: pd.DataFrame, samples: int) -> Floats:
    """The rates (2, samples) of a rank."""
    busy = np.zeros((2, samples + 1))
    edges = np.arange(samples + 1) * TICK_NS / 1e9
    for name, begin, end in zip(operations.optype, operations.begin, operations.end, strict=True):
        if name in BOTH:
            ways, first = [0, 1], begin
        elif name in MESSAGES:
            ways, first = [MESSAGES[name]], max(begin, end - MESSAGE_SECONDS)
        else:
            continue
        busy[ways] += np.clip(edges, first, end) - first
    return np.asarray(np.diff(busy, axis=1) / (TICK_NS / 1e9) * LEVEL)


def write_trace(folder: Path, stages: bool) -> FleetReport:
    trace = pd.read_parquet(find_file("straggler_trace_ST.parquet")).astype({"start_ts": float, "duration": float})
    trace["end"] = trace.start_ts + trace.duration
    lengths = trace.groupby("step").end.max() + BETWEEN_STEPS
    begins = lengths.cumsum() - lengths + 0.5
    trace["begin"] = trace.start_ts + trace.step.map(begins)
    trace["end"] += trace.step.map(begins)
    samples = int((lengths.sum() + 1.0) * 100)
    DatasetStore(str(folder)).begin()
    for rank, mine in trace.groupby("rank"):
        name = f"node{int(rank)}"
        port = RecordedPort("mlx5_0", 1, LINE, state="ACTIVE")
        rates = counters(mine, samples)[np.newaxis]
        meta = RecordingMeta(name, TICK_NS, (port,), "import")
        recording = Recording(meta, START_NS + TICK_NS, rates, np.full(rates.shape, TICK_NS / 1e9))
        part = Part("st", name, recording.start_ns)
        path = DatasetStore(str(folder)).local_path(RAW, part)
        path.parent.mkdir(parents=True)
        save(path, recording)
        labels = {"stage": str(int(mine.stage.iloc[0]))} if stages else {}
        finish_part(str(folder), part, PartOrigin("trace", labels, ClockOffset(0, 100_000), True, START_NS))
    return describe_dataset(folder, DatasetChoice())


@pytest.mark.parametrize("stages", [True, False])
def test_longer_stages_make_no_straggler(stages: bool, tmp_path: Path) -> None:
    report = write_trace(tmp_path / "trace", stages)
    found = find_sentences(report)
    assert [finding.sentence for finding in found if finding.kind == "late"] == []
    assert all(row.lateness is None or not row.lateness.late for row in report.steps)
    # messages of micro-batches divide the steps of most ranks; where they do not, the step is that of the trace
    longest = max(row.step_ms or 0.0 for row in report.steps)
    assert longest == pytest.approx(2234, rel=0.02)
    rhythm = next(finding for finding in found if finding.kind == "rhythm")
    assert "do not say which stage is too long" in rhythm.limit
    # every rank makes all steps; without labels, a rank whose traffic ends with that of another stage shows
    assert {finding.kind for finding in found} - {"ends-apart", "unknown-late", "nobody-late"} == {"rhythm", "clocks"}
    assert any(finding.kind == "ends-apart" for finding in found) != stages
