"""The aggregator over time: windows, restarts, clocks, ports that come and go."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.agent.aggregator.aggregator import AggregationSchedule
from ibpulse.core.answers.members import AnswerPart
from ibpulse.core.model import Fabric, Port
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.reader import GUARD_TICKS
from ibpulse.core.statistics.plausible import MAX_BEFORE
from ibpulse.workbench.simulate.timeline import Workload
from ibpulse.workbench.simulate.workloads import DENSE, MOE
from tests.aggregator.rings import MS, Ring, Traffic, constant, follow, port, square, started, update
from tests.flightrecorder.played import IDLE as SILENCE
from tests.flightrecorder.played import Act, play

A, B = "mlx5_0:1", "mlx5_1:1"
IDLE = constant(0.0)
BUSY = (constant(20e9), IDLE)


def peaks_of(found: Snapshot) -> list[float | None]:
    return [window.peak_bytes_per_second for window in found.ports[0].directions[0].windows]


def test_a_peak_stays_for_exactly_its_window(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A))
    traffic = (lambda tick: 45e9 if tick == 250 else 1e9, IDLE)
    counters = ring.write(A, traffic, 1, 500)
    follow(ring, aggregator, 1, 5)
    ring.write(A, traffic, 501, 1400, start=counters)
    # tick 250 lies in second 2, which is the tenth before second 12 and the eleventh before second 13
    follow(ring, aggregator, 6, 11)
    inside, outside = update(ring, aggregator, 12), update(ring, aggregator, 13)
    assert peaks_of(inside) == [pytest.approx(45e9)] * 3
    assert peaks_of(outside) == [pytest.approx(1e9), pytest.approx(45e9), pytest.approx(45e9)]


def test_a_second_counts_only_when_it_has_settled(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A))
    ring.write(A, BUSY, 1, 300)
    ends = [aggregator.update(ring.fabric, now).end_tick for now in (223, 224, 323, 324)]
    assert ends == [100, 200, 200, 300]


def test_a_second_waits_for_the_last_sample_of_a_strided_port(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A))
    ring.write(A, BUSY, 1, 300, stride=7)
    # 200 ms, the rest of the stride, and the four samples that may be merged with it
    ends = [aggregator.update(ring.fabric, now).end_tick for now in (253, 254)]
    assert ends == [100, 200]


def test_asking_again_changes_nothing(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A))
    ring.write(A, BUSY, 1, 400)
    assert update(ring, aggregator, 3).ports == update(ring, aggregator, 3).ports


def test_after_a_restart_the_windows_are_full_and_the_counters_at_zero(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port(A))
    counters = ring.write(A, (square(40e9, 20, 80), IDLE), 1, 2000)
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    restarted = update(ring, aggregator, 20)
    found = restarted.ports[0]
    assert found.directions[0].windows[0].duty_cycle_ratio == pytest.approx(0.2)
    assert found.directions[0].windows[0].peak_bytes_per_second == pytest.approx(40e9)
    assert restarted.node[0].duty_cycle_ratio == pytest.approx(0.2)
    assert (found.observed_seconds, found.directions[0].bytes_total, found.directions[0].active_seconds) == (0, None, 0)
    assert found.directions[0].moments is not None
    assert found.directions[0].moments.histogram.cumulative[-1] == 0
    ring.write(A, (square(40e9, 20, 80), IDLE), 2001, 2100, start=counters)
    found = update(ring, aggregator, 21).ports[0]
    assert found.observed_seconds == pytest.approx(1.0)
    # the first sample of the process, at an active tick, is where the count begins
    assert found.directions[0].bytes_total == pytest.approx(40e9 * 0.19)


def test_nothing_is_aggregated_before_the_first_sample(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port(A))
    found = update(ring, Aggregator(ring.reader, AggregatorOptions()), 1000)
    assert (found.end_tick, found.end_wall_ns) == (0, None)
    assert found.ports[0].directions == ()


def test_an_old_ring_without_a_running_sampler_is_not_aggregated(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port(A))
    ring.write(A, BUSY, 1, 500)
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    assert update(ring, aggregator, 3600).end_tick == 0


def test_windows_drain_when_sampling_stops(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A))
    ring.write(A, BUSY, 1, 300)
    assert update(ring, aggregator, 3).ports[0].directions[0].windows[0].duty_cycle_ratio == 1.0
    found = follow(ring, aggregator, 4, 13)
    assert found.end_tick == 1300
    assert found.ports[0].directions[0].windows[0].duty_cycle_ratio is None
    assert found.ports[0].directions[0].windows[1].duty_cycle_ratio == 1.0
    assert found.node[0].duty_cycle_ratio is None


def test_a_step_of_the_wall_clock_does_not_empty_the_windows(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A))
    counters = ring.write(A, BUSY, 1, 300)
    update(ring, aggregator, 3)
    # an hour too far, before the sampler has begun a segment for it; then all is well again
    assert update(ring, aggregator, 3600).end_tick == 500
    ring.write(A, BUSY, 301, 700, start=counters)
    found = follow(ring, aggregator, 4, 7)
    assert found.end_tick == 700
    assert found.ports[0].directions[0].bytes_total == pytest.approx(20e9 * 6.99)
    assert found.ports[0].directions[0].windows[0].peak_bytes_per_second == pytest.approx(20e9)
    assert found.skipped_seconds == 0


def test_the_end_is_in_the_wall_time_of_its_segment(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A))
    ring.write(A, BUSY, 1, 400)
    ring.file.begin_segment(250, -5000)
    assert update(ring, aggregator, 3).end_wall_ns == (300 + 5000) * 10_000_000


def test_a_step_of_the_clock_makes_no_false_rate(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A))
    # the monotonic clock ran 3 ms less than one interval between the last tick before the step and the first after it
    ring.write(A, BUSY, 1, 400, late_ns=lambda tick: -3_000_000 if tick >= 250 else 0)
    ring.file.begin_segment(250, -5000)
    found = update(ring, aggregator, 3).ports[0]
    assert found.directions[0].windows[0].peak_bytes_per_second == pytest.approx(20e9, rel=1e-6)
    assert found.directions[0].windows[0].burstiness_cv == pytest.approx(0, abs=1e-6)


def test_seconds_lost_from_the_ring_are_skipped_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ring, aggregator = started(tmp_path, port(A), seconds=10)
    counters = ring.write(A, (lambda tick: 45e9 if tick == 250 else 20e9, IDLE), 1, 300)
    update(ring, aggregator, 3)
    ring.write(A, BUSY, 301, 3300, start=counters)
    with caplog.at_level(logging.WARNING):
        found = update(ring, aggregator, 33)
    # the ring holds ten seconds less its guard; 24..32 are whole
    assert found.skipped_seconds == 21
    assert (
        "aggregation fell behind: 21 seconds are missing from all metrics, because the ring only holds 10s"
        in caplog.text
    )
    assert found.end_tick == 3300
    assert found.ports[0].observed_seconds == pytest.approx(2.99 + 9)
    assert found.ports[0].directions[0].bytes_total == pytest.approx(20e9 * 32.99 + 25e9 * 0.01)
    # the window passed over what was skipped
    assert found.ports[0].directions[0].windows[0].peak_bytes_per_second == pytest.approx(20e9)
    assert found.ports[0].directions[0].windows[1].duty_cycle_ratio == 1.0


def test_a_port_that_left_has_no_values_and_its_totals_continue_when_it_is_back(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A), port(B))
    counters = ring.write(A, BUSY, 1, 200)
    ring.write(B, BUSY, 1, 700)
    update(ring, aggregator, 2)
    ring.change(port(B))
    away = update(ring, aggregator, 3)
    assert [str(found.port.id) for found in away.ports] == [B]
    ring.change(port(A), port(B))
    # another life of the device: what its counter did while it was away is not known
    ring.write(A, BUSY, 501, 700, start=(10**13, counters[1]))
    found = follow(ring, aggregator, 4, 7).ports[0]
    assert found.directions[0].bytes_total == pytest.approx(20e9 * (1.99 + 1.99))
    assert found.resets == 0
    assert found.observed_seconds == pytest.approx(1.99 + 1.99)
    # the seconds in which it was away are in no window
    assert found.directions[0].windows[0].duty_cycle_ratio == 1.0


def test_another_byte_source_restarts_the_count(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A))
    ring.write(A, BUSY, 1, 200)
    update(ring, aggregator, 2)
    ring.change(port(A, source="other"))
    ring.write(A, BUSY, 201, 300, start=(10**13, 10**13))
    found = update(ring, aggregator, 3).ports[0]
    assert found.directions[0].bytes_total == pytest.approx(20e9 * (1.99 + 0.99))


def test_a_port_without_source_is_only_named(tmp_path: Path) -> None:
    mute = Port(port(B).id, port(B).identity, True, "ACTIVE", 50e9, None, problem="no counters")
    ring, aggregator = started(tmp_path, port(A), mute)
    ring.write(A, BUSY, 1, 300)
    found = update(ring, aggregator, 2)
    assert found.ports[1].directions == ()
    assert found.ports[0].directions[0].bytes_total


def test_a_node_without_ports_has_a_snapshot(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path)
    ring.write("other:1", BUSY, 1, 300)
    ring.fabric = Fabric(notices=("no device",))
    found = update(ring, aggregator, 2)
    assert (found.ports, found.rails.rails, found.end_tick) == ((), 0, 200)


def test_the_sampler_s_own_counts_are_passed_on(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port(A))
    ring.write(A, BUSY, 1, 300)
    words, lane = ring.file.words, at.lane_at(0)
    written = {
        at.L_TICKS: 290,
        at.L_MISSED: 10,
        at.L_CLOCK_STEPS: 2,
        at.L_CPU_NS: 1_500_000_000,
        at.L_LATENESS: 5,
        at.L_LATENESS + 1: 3,
        at.L_LATENESS + at.BUCKET_COUNT - 1: 1,
        at.L_LATENESS_SUM_NS: 2_000_000,
    }
    for which, word in written.items():
        words[lane + which] = word
    slot = at.slot_at(ring.file.slots()[A])
    words[slot + at.S_ERRORS], words[slot + at.S_STATUS] = 9, at.LEFT_ALONE
    found = update(ring, Aggregator(ring.reader, AggregatorOptions()), 2)
    sampler = found.sampler
    assert (sampler.ticks, sampler.missed_ticks, sampler.clock_steps, sampler.cpu_seconds) == (290, 10, 2, 1.5)
    assert sampler.lateness.cumulative == (5, *[8] * 14, 9)
    assert sampler.lateness.total == 0.002
    assert sampler.lateness.bounds[0] == 5e-05
    assert (found.ports[0].read_errors, found.ports[0].left_alone) == (9, True)


@pytest.mark.parametrize("widest", [1, 3, 10])
def test_the_oldest_second_has_the_samples_before_it_with_which_its_own_may_be_merged(widest: int) -> None:
    for latest in range(5000, 5200):
        due, _ = AggregationSchedule(10_000_000, 1000, 60).due(latest + 60, latest, widest)
        # the first sample of a second, and five before that
        needed = [100 * second + 1 - (MAX_BEFORE + 1) * widest for second in (due.start, due.start - 1)]
        oldest = latest - 1000 + GUARD_TICKS + 1
        assert needed[0] >= oldest > needed[1]


QUIET = constant(0.0)
THRESHOLD = AggregatorOptions().active_bytes_per_second


def until(tick: int, bytes_per_second: float = 10e9) -> Traffic:
    """Traffic that ends with a tick."""
    return lambda now: bytes_per_second if now <= tick else 0.0


def test_it_is_the_last_sample_above_the_threshold_of_all_rails_together(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port("mlx5_0:1"), port("mlx5_1:1"))
    ring.write("mlx5_0:1", (until(237), QUIET), 1, 500)
    ring.write("mlx5_1:1", (QUIET, until(251, THRESHOLD * 1.1)), 1, 500)
    for second in range(1, 5):
        found = update(ring, aggregator, second).last_traffic_ns
        assert found == min(second * 100, 251) * 10 * MS


def test_traffic_from_before_the_start_counts(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"))
    ring.write("mlx5_0:1", (until(333), QUIET), 1, 500)
    snapshot = update(ring, Aggregator(ring.reader, AggregatorOptions()), 4)
    assert snapshot.last_traffic_ns == 3330 * MS


def test_it_is_unknown_without_traffic_on_a_rail(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port("mlx5_0:1"), port("mlx5_1:1", rail=False))
    ring.write("mlx5_0:1", (constant(THRESHOLD * 0.9), QUIET), 1, 500)
    ring.write("mlx5_1:1", (constant(10e9), QUIET), 1, 500)
    assert update(ring, aggregator, 4).last_traffic_ns is None


def test_missing_samples_are_not_traffic(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port("mlx5_0:1"))
    ring.write("mlx5_0:1", (constant(10e9), QUIET), 1, 600, holes=range(250, 601))
    assert update(ring, aggregator, 4).last_traffic_ns == 2490 * MS


# of these, the step is searched and the resolutions are measured at other seconds
TIMED = (
    *("step_seconds", "step_period_seconds", "step_period_score"),
    *("effective_resolution_seconds", "phases", "seconds"),
)


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """The values of nested parts and sequences, by place."""
    value = vars(value) if isinstance(value, AnswerPart) else value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else None
    if items is None:
        return {name: value}
    return {
        place: found for key, each in items if key not in TIMED for place, found in flat(each, f"{name}/{key}").items()
    }


def acts(workload: Workload) -> tuple[Act, ...]:
    """Silence, a job, the job with a dead rail, and with a slow one; none of them ends with a batch."""
    return (
        Act(SILENCE, 7),
        Act(workload, 61),
        Act(workload, 12, flow={1: 0.0}),
        Act(workload, 17, flow={2: 0.4}),
        Act(SILENCE, 6),
    )


def differences(one: Any, other: Any) -> dict[str, tuple[Any, Any]]:
    """What differs by more than the last digits, which depend on the order in which samples are added."""
    ours, theirs = flat(asdict(one)), flat(asdict(other))
    assert ours.keys() == theirs.keys()
    return {
        name: (value, theirs[name])
        for name, value in ours.items()
        if value != theirs[name]
        and not (isinstance(value, float) and math.isclose(value, theirs[name], rel_tol=1e-9, abs_tol=1e-9))
    }


@pytest.fixture(scope="module", params=[DENSE, MOE], ids=["dense", "moe"])
def workload(request: pytest.FixtureRequest) -> Workload:
    found: Workload = request.param
    return found


@pytest.fixture(scope="module")
def singly(workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What is found second by second."""
    return list(play(tmp_path_factory.mktemp("one"), *acts(workload)))


@pytest.mark.parametrize("every", [2, 5, 17, 103])
def test_the_size_of_a_batch_changes_nothing(tmp_path: Path, workload: Workload, singly: list[Any], every: int) -> None:
    batches = list(play(tmp_path, *acts(workload), every=every))
    assert len(batches) == -(-103 // every)
    assert differences(batches[-1], singly[-1]) == {}
    seconds = [[second for each in snapshots for second in each.seconds] for snapshots in (batches, singly)]
    assert [len(each) for each in seconds] == [103, 103]
    assert [found for pair in zip(*seconds, strict=True) if (found := differences(*pair))] == []
