"""A recording of a ring says what the daemon's summary of the same ring says: one definition of each statistic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from ibpulse.core.jobs import Holding, JobRecord
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta
from ibpulse.core.ring import layout as at
from ibpulse.core.statistics.rates import rates
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import DENSE, MOE, Fsdp
from tests.aggregator.rings import Ring, port
from tests.reports.recordings import LINE, TICK_NS, run_of
from tests.reports.test_jobs import job

SECONDS = 60
FIRST_TICK = 301
HOLES = (1000, 2500, 2501, 4711)
DEVICES = [f"mlx5_{number}" for number in range(8)]


def fill(ring: Ring, workload: Fsdp, idle: tuple[int, ...] = (6,), holes: tuple[int, ...] = HOLES) -> None:
    """Counters of a workload in every slot, the holes left out."""
    ticks = np.array([tick for tick in range(1, FIRST_TICK + SECONDS * 100 + 150) if tick not in holes])
    counters = Schedule(workload).cumulative_bytes(ticks * TICK_NS) // 4
    counters[:, list(idle)] = 0
    words = np.frombuffer(ring.file.words, dtype=np.uint64)
    for rail, device in enumerate(DEVICES):
        begin = at.records_at(ring.file.assign(f"{device}:1", 4, 1), ring.file.capacity)
        view = words[begin : begin + ring.file.capacity * at.RECORD_WORDS].reshape(ring.file.capacity, at.RECORD_WORDS)
        stamps = np.repeat(ticks[:, None] * TICK_NS, 3, axis=1)
        view[ticks % ring.file.capacity] = np.concatenate([stamps, counters[:, rail], ticks[:, None]], axis=1).astype(
            np.uint64
        )
    ring.file.words[at.lane_at(0) + at.L_TICK] = int(ticks[-1])


def recording_of(ring: Ring) -> Recording:
    """The window as rates, as whoever records a ring computes them."""
    slots = [ring.file.slots()[f"{device}:1"] for device in DEVICES]
    block = ring.reader.read(slots, FIRST_TICK - 1, FIRST_TICK + SECONDS * 100 - 1)
    found = rates(block.time_ns(), block.counters(), block.valid(), block.scale, np.ones(8, dtype=np.int64))
    ports = tuple(RecordedPort(device, 1, LINE) for device in DEVICES)
    meta = RecordingMeta("node7", TICK_NS, ports, "record")
    start_ns = int(ring.reader.wall_ns(np.array([FIRST_TICK]))[0])
    return Recording(meta, start_ns, found.bytes_per_second[:, :, 1:], found.seconds[:, :, 1:])


def test_balance_of_jobs_equals_the_daemons(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, *(port(f"{device}:1") for device in DEVICES), seconds=90)
    fill(ring, DENSE)
    placed = [job("1", *DEVICES[:4]), job("2", *DEVICES[4:6]), job("3", *DEVICES[5:])]
    jobs = tuple(JobRecord(each, None, holdings=(Holding(each.ports),)) for each in placed)
    end_ns = int(ring.reader.wall_ns(np.array([FIRST_TICK - 1 + SECONDS * 100]))[0])
    summary = Aggregator(ring.reader, AggregatorOptions()).summarize(ring.fabric.ports, SECONDS, end_ns, jobs=jobs)
    recording = recording_of(ring)
    run = run_of(replace(recording, meta=replace(recording.meta, jobs=jobs)))
    assert [len(group.ports) for group in run.compared] == [4, 1, 1, 2]
    # the rails carry the same, but one of the last two is idle and has a single sibling
    assert run.values["fairness_ratio"] == pytest.approx(8 / (4 + 1 + 1 + 2 / 0.5), abs=1e-9)
    assert run.values["idle_rails"] == ("mlx5_6:1",)
    assert run.values["fairness_ratio"] == pytest.approx(summary.node.rail_fairness_ratio, rel=1e-9)
    assert [one.share_ratio for one in run.ports] == pytest.approx(
        [one.rail_share_ratio for one in summary.ports], abs=1e-9
    )
    assert [(one.idle, one.slow) for one in run.ports] == [(one.rail_idle, one.rail_slow) for one in summary.ports]


@pytest.mark.parametrize(("workload", "saturated"), [(MOE, True), (DENSE, False)], ids=["moe", "dense"])
@pytest.mark.parametrize("rails", [DEVICES, [device for device in DEVICES if device != "mlx5_6"]], ids=["idle", "all"])
def test_published_moe_run_is_moe_saturated(tmp_path: Path, workload: Fsdp, saturated: bool, rails: list[str]) -> None:
    ring = Ring.create(tmp_path, *(port(f"{device}:1") for device in rails), seconds=90)
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    fill(ring, workload)
    last = (FIRST_TICK - 1) // 100 + SECONDS
    # a second at a time, as in a daemon
    found = [aggregator.update(ring.fabric, ring.now_after(second)) for second in range(1, last + 1)]
    assert found[-1].traffic.moe_saturated is saturated
    # 45 and 52 % of the line rate when active are not saturation
    assert not any(one.traffic.saturated for one in found)
    assert found[-1].rails.line_rate_bytes_per_second == 2 * len(rails) * LINE
