"""Traffic statistics compared with closed forms, through the whole aggregator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot, summarize
from ibpulse.agent.aggregator.traffic import Bursts
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.summary import RailStatistics, Summary
from ibpulse.core.events import Event, PortHistory
from ibpulse.core.jobs import Claim, Holding, JobRecord, PlacedJob
from ibpulse.core.model import PortId
from ibpulse.core.ring import layout as at
from ibpulse.core.statistics.signature import Features, MoeSaturationOptions, SaturationOptions, SignatureOptions
from ibpulse.core.statistics.sums import Seconds
from tests.aggregator.rings import Player, Ring, Traffic, constant, follow, port, square, started, update

IDLE = constant(0.0)
EIGHT = [f"mlx5_{number}:1" for number in range(8)]


def played(
    ring: Ring, seconds: int, options: AggregatorOptions | None = None, **traffic: tuple[Traffic, Traffic]
) -> Snapshot:
    """A snapshot after so many seconds that were followed one by one; the keywords name devices."""
    aggregator = Aggregator(ring.reader, options or AggregatorOptions())
    for device, both in traffic.items():
        ring.write(f"{device}:1", both, 1, (seconds + 1) * ring.ticks_per_second)
    return follow(ring, aggregator, 1, seconds)


# bursts


def test_a_square_wave_has_bursts_and_gaps_of_its_lengths(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"))
    traffic = played(ring, 10, mlx5_0=(square(40e9, 20, 30), IDLE)).traffic
    # of 20 periods the first burst has no beginning, and the last gap no end; 500 ticks end in the last gap
    assert traffic.burst_durations.cumulative[-1] == 19
    assert traffic.burst_durations.total == pytest.approx(19 * 0.2)
    assert traffic.gap_durations.cumulative[-1] == 19
    assert traffic.gap_durations.total == pytest.approx(19 * 0.3)
    assert traffic.bursts == 19
    assert traffic.burst_bytes == pytest.approx(19 * 0.2 * 40e9)
    assert traffic.burst_durations.cumulative[7] - traffic.burst_durations.cumulative[6] == 19


def test_a_short_hole_does_not_join_two_ports_of_one_row() -> None:
    bursts, row = Bursts(1e8), np.array([0])
    told = np.ones(1, dtype=np.bool_)

    def add(first: float, last: float) -> None:
        rates = np.repeat([np.nan, first, last], [1, 50, 49])[None, None, None].repeat(2, axis=1)
        known = ~np.isnan(rates)
        seconds = Seconds(np.where(known, rates, 0.0), np.where(known, 0.01, 0.0), known[:, 0])
        bursts.add_ports(row, seconds, told, counting=True)

    bursts.fit_rows(1, [0])
    add(1e9, 0.0)
    add(1e9, 0.0)
    assert bursts.port_began.tolist() == [1]
    bursts.fit_rows(1, [0])
    add(1e9, 0.0)
    assert bursts.port_began.tolist() == [0]


def test_bursts_and_their_seconds_are_counted_for_each_port(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), port("mlx5_1:1", rail=False))
    found = played(ring, 10, mlx5_0=(square(40e9, 20, 30), IDLE), mlx5_1=(IDLE, square(1e9, 5, 95)))
    first, second = found.ports
    # of the first tick only the counter is known
    assert (first.bursts, first.burst_seconds) == (19, pytest.approx(20 * 0.2 - 0.01))
    assert (second.bursts, second.burst_seconds) == (9, pytest.approx(10 * 0.05 - 0.01))


def test_a_run_ends_at_skipped_seconds(tmp_path: Path) -> None:
    ring, aggregator = started(
        tmp_path,
        port("mlx5_0:1"),
        port("mlx5_1:1", rail=False),
        seconds=20,
        options=AggregatorOptions(windows_ns=(SECOND_NS,), traffic_window_ns=SECOND_NS),
    )
    # one burst from before the skipped seconds to after them, and one that begins in them
    rail = (lambda tick: 10e9 if 280 < tick <= 5200 else 0.0, IDLE)
    other = (lambda tick: 10e9 if tick > 300 else 0.0, IDLE)
    ends = [ring.write(name, flow, 1, 350) for name, flow in (("mlx5_0:1", rail), ("mlx5_1:1", other))]
    update(ring, aggregator, 3)
    for name, flow, end in (("mlx5_0:1", rail, ends[0]), ("mlx5_1:1", other, ends[1])):
        ring.write(name, flow, 351, 5400, start=end)
    found = update(ring, aggregator, 53)
    assert found.skipped_seconds > 20
    assert found.traffic.burst_durations.cumulative[-1] == 0
    assert (found.ports[1].bursts, found.ports[1].burst_seconds > 10) == (0, True)


# step


def test_the_step_is_found_in_the_sum_of_the_rails(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, *map(port, EIGHT[:2]))
    both = (square(20e9, 60, 90), square(5e9, 30, 120))
    found = played(ring, 30, mlx5_0=both, mlx5_1=both)
    assert found.traffic.concluded.step_period_seconds == pytest.approx(1.5, rel=1e-3)
    assert found.traffic.concluded.step_period_score is not None
    assert found.traffic.concluded.step_period_score > 0.9


def test_a_node_without_samples_has_no_step(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port("mlx5_0:1"))
    assert update(ring, aggregator, 1).traffic.concluded.step_period_score is None
    ring.write("mlx5_0:1", (IDLE, IDLE), 1, 300, holes=range(1, 299))
    follow(ring, aggregator, 1, 2)
    ring.change()
    assert update(ring, aggregator, 3).traffic.concluded.step_period_score == 0.0


# saturation and signature


def test_a_direction_is_saturated_when_half_of_its_time_is_near_the_line(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"))
    options = AggregatorOptions(saturation=SaturationOptions(window_seconds=6))
    found = played(ring, 10, options, mlx5_0=(square(46e9, 60, 40), square(46e9, 40, 60)))
    port_traffic = found.ports[0]
    assert port_traffic
    assert port_traffic.saturated == (True, False)
    # half of six seconds had to be seen; of the first tick only the counter is known
    assert port_traffic.saturated_seconds == (pytest.approx(7.0), 0.0)
    assert not found.traffic.saturated


def test_a_node_is_not_saturated_while_one_of_its_rails_is_idle(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), port("mlx5_1:1"))
    options = AggregatorOptions(saturation=SaturationOptions(window_seconds=6))
    found = played(ring, 10, options, mlx5_0=(constant(45e9),) * 2, mlx5_1=(IDLE, IDLE))
    assert (found.traffic.saturated, found.traffic.saturated_seconds) == (False, 0.0)
    assert found.ports[0].saturated == (True, True)
    assert found.traffic.utilization
    assert found.traffic.utilization.total == pytest.approx(0.45 * 999)


def test_a_port_of_unknown_rate_is_not_judged(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1", rate=None))
    found = played(ring, 8, mlx5_0=(constant(45e9),) * 2)
    assert found.ports[0].saturated == (None, None)
    assert not found.traffic.saturated
    assert found.traffic.utilization is None
    assert found.traffic.concluded.workload_signature == "unknown"


def test_saturation_ends_with_the_samples(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), seconds=20)
    options = AggregatorOptions(
        windows_ns=(SECOND_NS,), traffic_window_ns=SECOND_NS, saturation=SaturationOptions(window_seconds=5)
    )
    aggregator = Aggregator(ring.reader, options)
    at_end = ring.write("mlx5_0:1", (constant(48e9),) * 2, 1, 850)
    assert follow(ring, aggregator, 1, 8).traffic.saturated
    ring.write("mlx5_0:1", (IDLE, IDLE), 851, 5400, start=at_end)
    assert not update(ring, aggregator, 53).traffic.saturated


def test_the_signature_is_that_of_the_features_of_the_window(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"))
    # 30 ticks of 20, 30 and 40 GB/s by turns, 10 of silence
    levels = np.array([20e9, 30e9, 40e9])
    flow = (lambda tick: float(levels[tick % 3]) if (tick - 1) % 40 < 30 else 0.0, IDLE)
    here = Features(0.75, float(levels.std() / levels.mean()), np.nan, np.nan, 0.4, 0.3)
    options = AggregatorOptions(
        traffic_window_ns=20 * SECOND_NS, signature=SignatureOptions(dense=here, others=(), least_features=4)
    )
    found = played(ring, 20, options, mlx5_0=flow)
    assert found.traffic.concluded.workload_signature == "dense_like"
    assert found.traffic.concluded.workload_signature_confidence == pytest.approx(0.6, abs=0.02)


def moe_like(hold_seconds: float) -> tuple[tuple[Traffic, Traffic], AggregatorOptions]:
    """Traffic between 48 and 15 GB/s in both directions, and options that call it MoE-like."""
    levels = np.array([48e9, 15e9])
    here = Features(1.0, float(levels.std() / levels.mean()), np.nan, np.nan, 0.96, 0.63)
    options = AggregatorOptions(
        traffic_window_ns=10 * SECOND_NS,
        signature=SignatureOptions(moe=here, others=()),
        moe_saturation=MoeSaturationOptions(hold_seconds=hold_seconds),
    )
    return (lambda tick: float(levels[tick // 2 % 2]),) * 2, options


def test_moe_saturation_is_a_state_and_its_seconds_are_counted(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"))
    flow, options = moe_like(hold_seconds=5.0)
    aggregator = Aggregator(ring.reader, options)
    at_end = ring.write("mlx5_0:1", flow, 1, 450)
    assert not follow(ring, aggregator, 1, 4).traffic.moe_saturated
    ring.write("mlx5_0:1", flow, 451, 1300, start=at_end)
    # eight seconds at once
    found = update(ring, aggregator, 12).traffic
    assert (found.concluded.workload_signature, found.moe_saturated) == ("moe_like", True)
    assert found.moe_saturated_seconds == pytest.approx(8.0)


def test_no_time_before_the_first_sample_counts_as_moe_saturation(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), first_tick=50_001)
    flow, options = moe_like(hold_seconds=8.0)
    aggregator = Aggregator(ring.reader, options)
    ring.write("mlx5_0:1", flow, 50_001, 51_050)
    # the window of five minutes begins 300 s earlier, in a ring that was empty
    first = update(ring, aggregator, 506).traffic
    assert first.concluded.workload_signature == "moe_like"
    assert (first.moe_saturated, first.moe_saturated_seconds) == (False, 0.0)
    found = follow(ring, aggregator, 507, 510).traffic
    assert (found.moe_saturated, found.moe_saturated_seconds) == (True, 3.0)


@pytest.mark.parametrize("idle", range(4))
def test_idle_rails_hide_no_moe_saturation(tmp_path: Path, idle: int) -> None:
    names = [f"mlx5_{number}" for number in range(4)]
    ring = Ring.create(tmp_path, *(port(f"{name}:1") for name in names))
    busy, options = moe_like(hold_seconds=5.0)
    found = played(
        ring, 12, options, **{name: (IDLE, IDLE) if number < idle else busy for number, name in enumerate(names)}
    )
    assert (found.traffic.concluded.workload_signature, found.traffic.moe_saturated) == ("moe_like", True)
    assert found.traffic.concluded.workload_signature_confidence == pytest.approx(0.6, abs=0.01)
    # utilisation is that of the whole node
    assert found.traffic.utilization
    assert found.traffic.utilization.total / 1199 == pytest.approx(0.63 * (4 - idle) / 4, rel=0.01)


# what came before the process, and what a counter cannot tell


def test_history_fills_the_windows_and_counts_nothing(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"))
    ring.write("mlx5_0:1", (square(48e9, 60, 40),) * 2, 1, 2500)
    aggregator = Aggregator(ring.reader, AggregatorOptions(saturation=SaturationOptions(window_seconds=5)))
    found = update(ring, aggregator, 25)
    assert found.traffic.saturated
    assert found.traffic.concluded.rail_fairness_ratio == pytest.approx(1.0)
    assert found.traffic.concluded.step_period_seconds == pytest.approx(1.0, rel=1e-3)
    assert (found.traffic.bursts, found.traffic.saturated_seconds, found.traffic.utilization) == (0, 0.0, None)
    assert (found.ports[0].bursts, found.ports[0].burst_seconds) == (0, 0.0)


def test_a_slowly_refreshed_counter_has_no_fine_statistics(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), port("mlx5_1:1"))
    refreshed = (lambda tick: 0.0 if tick % 4 else 80e9, IDLE)
    options = AggregatorOptions(traffic_window_ns=30 * SECOND_NS)
    found = played(ring, 20, options, mlx5_0=refreshed, mlx5_1=(constant(20e9), IDLE))
    cached, direct = found.ports
    assert cached.effective_resolution_seconds == pytest.approx(0.04)
    window = cached.directions[0].windows[0]
    assert (window.peak_bytes_per_second, window.duty_cycle_ratio, window.burstiness_cv) == (None, None, None)
    assert direct.directions[0].windows[0].peak_bytes_per_second == pytest.approx(20e9)
    node = found.node[0]
    assert (node.bandwidth_peak_bytes_per_second, node.duty_cycle_ratio, node.peak_to_mean_ratio) == (None,) * 3
    assert node.transmit_bytes_per_second == pytest.approx(40e9)
    assert [value is None for value in node.burstiness_cv.values()] == [True, False, False, False]
    assert found.traffic.concluded.workload_signature == "unknown"


def test_the_summary_of_a_window_agrees_with_the_gauges_over_it(tmp_path: Path) -> None:
    ring, aggregator = started(
        tmp_path, *map(port, EIGHT[:2]), options=AggregatorOptions(traffic_window_ns=10 * SECOND_NS)
    )
    ring.write("mlx5_0:1", (square(40e9, 33, 47), square(7e9, 10, 20)), 1, 1600, holes=(700, 701, 900))
    ring.write("mlx5_1:1", (square(40e9, 33, 47), constant(0.05e9)), 1, 1600, resets=(1111,))
    gauges = follow(ring, aggregator, 11, 15)
    found = aggregator.summarize(ring.fabric.ports, 10, 15 * SECOND_NS)
    window = gauges.node[0]
    assert (found.start_ms, found.end_ms) == (5_000, 15_000)
    assert found.node.bandwidth_peak_bytes_per_second == pytest.approx(window.bandwidth_peak_bytes_per_second)
    assert found.node.duty_cycle_ratio == pytest.approx(window.duty_cycle_ratio)
    assert found.node.burstiness_cv == pytest.approx(window.burstiness_cv)
    # the gauge looks every five seconds only
    assert found.node.step_period_seconds == pytest.approx(gauges.traffic.concluded.step_period_seconds, rel=1e-3)
    assert found.node.workload_signature_confidence == pytest.approx(
        gauges.traffic.concluded.workload_signature_confidence
    )
    for one, gauge in zip(found.ports, gauges.ports, strict=True):
        for way, direction in enumerate((one.transmit, one.receive)):
            expected = gauge.directions[way].windows[0]
            assert direction.peak_bytes_per_second == pytest.approx(expected.peak_bytes_per_second)
            assert direction.duty_cycle_ratio == pytest.approx(expected.duty_cycle_ratio)
            assert direction.burstiness_cv == pytest.approx(expected.burstiness_cv)


def test_a_row_given_to_another_port_is_reset(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), seconds=12)
    options = AggregatorOptions(
        windows_ns=(10 * SECOND_NS,), traffic_window_ns=SECOND_NS, saturation=SaturationOptions(window_seconds=5)
    )
    aggregator = Aggregator(ring.reader, options)
    ring.write("mlx5_0:1", (square(48e9, 60, 40),) * 2, 1, 1000)
    before = follow(ring, aggregator, 1, 9).ports[0]
    assert before.bursts > 0
    assert before.saturated_seconds[0] > 0
    for number in range(at.SLOT_COUNT):
        ring.file.assign(f"new{number}:1", 4, 1)
    assert "mlx5_0:1" not in ring.file.slots()
    ring.change(port("new7:1"))
    ring.write("new7:1", (constant(0.05e9), IDLE), 1000, 1200)
    after = update(ring, aggregator, 11).ports[0]
    (window,) = after.directions[0].windows
    assert 1 < after.observed_seconds < 2
    assert after.directions[0].bytes_total == pytest.approx(0.05e9 * after.observed_seconds)
    assert (window.duty_cycle_ratio, window.peak_bytes_per_second) == (0.0, pytest.approx(0.05e9))
    assert (after.bursts, after.burst_seconds) == (0, 0.0)
    assert (after.saturated, after.saturated_seconds) == ((False, False), (0.0, 0.0))


QUIET, BUSY = constant(0.0), constant(20e9)
Jobs = Sequence[PlacedJob]


def job(name: str, *numbers: int) -> PlacedJob:
    return PlacedJob(Claim(name, "slurm", "file"), tuple(PortId(f"mlx5_{number}", 1) for number in numbers), "gpus")


A, B, ALL = job("a", 0, 1, 2, 3), job("b", 4, 5, 6, 7), job("c", *range(8))


def until(second: int, before: Traffic, after: Traffic) -> Traffic:
    return lambda tick: before(tick) if tick <= 100 * second else after(tick)


def traffic(first: Traffic, second: Traffic, **odd: Traffic) -> Mapping[str, Traffic]:
    """What the rails of the first and of the second job send, but for the odd ones."""
    usual = {name: first if number < 4 else second for number, name in enumerate(EIGHT)}
    return usual | {f"{name}:1": each for name, each in odd.items()}


def play(path: Path, flows: Mapping[str, Traffic], seconds: int, jobs: Callable[[int], Jobs | None]) -> list[Snapshot]:
    """The snapshots after the first second, the second one and so on."""
    player = Player(path, flows)
    return [player.play(second, jobs(second)) for second in range(1, seconds + 1)]


def last(path: Path, flows: Mapping[str, Traffic], seconds: int, jobs: Callable[[int], Jobs | None]) -> Snapshot:
    return play(path, flows, seconds, jobs)[-1]


def rails(snapshot: Snapshot) -> dict[str, RailStatistics]:
    return {str(one.port.id): one.balance for one in snapshot.ports if one.balance}


def idle(snapshot: Snapshot) -> list[str]:
    return [name for name, rail in rails(snapshot).items() if rail.rail_idle]


def slow(snapshot: Snapshot) -> list[str]:
    return [name for name, rail in rails(snapshot).items() if rail.rail_slow]


def test_a_rail_whose_link_is_down_carries_nothing_and_other_ports_are_no_rails(tmp_path: Path) -> None:
    down, storage = EIGHT[3], "mlx5_8:1"
    ring = Ring.create(tmp_path, *(port(name, active=name != down) for name in EIGHT), port(storage, rail=False))
    found = played(ring, 12, **{name.partition(":")[0]: (BUSY, BUSY) for name in (*EIGHT, storage)})
    assert found.traffic.concluded.rail_fairness_ratio == pytest.approx(7 / 8)
    assert (idle(found), slow(found), rails(found)[down].rail_share_ratio) == ([down], [], 0.0)
    assert storage not in rails(found)


def test_a_rail_of_a_busy_job_is_not_compared_with_rails_of_a_job_in_a_checkpoint(tmp_path: Path) -> None:
    checkpoint = traffic(BUSY, until(5, BUSY, QUIET))
    found = last(tmp_path / "jobs", checkpoint, 20, lambda _: [A, B])
    assert (idle(found), slow(found)) == ([], [])
    # the rails of the second job were active within the last minute
    assert (found.traffic.concluded.rail_fairness_ratio, found.rails.active_rails) == (pytest.approx(1.0), 8)
    # all rails together say something else
    alone = last(tmp_path / "none", checkpoint, 20, lambda _: None)
    assert idle(alone) == list(EIGHT[4:])
    assert alone.traffic.concluded.rail_fairness_ratio == pytest.approx(0.5)


def test_a_dead_rail_is_named_among_the_rails_of_its_job(tmp_path: Path) -> None:
    flows = traffic(BUSY, constant(2e9), mlx5_2=until(8, BUSY, QUIET), mlx5_6=constant(1e9))
    found = last(tmp_path, flows, 20, lambda _: [A, B])
    assert (idle(found), slow(found)) == (["mlx5_2:1"], ["mlx5_6:1"])
    # Jain's index of three equal rails of four, and of 2, 2, 2 and 1
    first, second = 3 / 4, 7**2 / (4 * 13)
    assert found.traffic.concluded.rail_fairness_ratio == pytest.approx(8 / (4 / first + 4 / second))
    assert rails(found)["mlx5_0:1"].rail_share_ratio == pytest.approx(1 / 3)
    assert rails(found)["mlx5_6:1"].rail_share_ratio == pytest.approx(1 / 7)
    assert found.rails.active_rails == 7


def test_rails_without_a_job_are_compared_with_each_other(tmp_path: Path) -> None:
    found = last(tmp_path, traffic(QUIET, BUSY, mlx5_7=QUIET), 12, lambda _: [A])
    assert idle(found) == ["mlx5_7:1"]
    assert found.traffic.concluded.rail_fairness_ratio == pytest.approx(3 / 4)


def test_a_rail_that_two_jobs_share_is_compared_with_none_of_their_own(tmp_path: Path) -> None:
    found = last(tmp_path, traffic(BUSY, BUSY, mlx5_3=QUIET), 12, lambda _: [A, job("b", *range(3, 8))])
    assert idle(found) == []
    assert found.traffic.concluded.rail_fairness_ratio == pytest.approx(1.0)


def test_the_end_of_one_job_moves_no_number_of_the_rails_of_the_other(tmp_path: Path) -> None:
    flows = traffic(until(8, BUSY, QUIET), constant(8e9), mlx5_6=constant(5e9))
    for found in play(tmp_path, flows, 18, lambda second: [A, B] if second < 10 else [B])[3:]:
        standings = rails(found)
        assert [standings[name].rail_share_ratio for name in EIGHT[4:]] == pytest.approx(
            [8 / 29, 8 / 29, 5 / 29, 8 / 29]
        )
        assert (idle(found), slow(found)) == ([], ["mlx5_6:1"])


def test_what_rails_carried_for_other_jobs_is_no_reason_to_judge_them(tmp_path: Path) -> None:
    """The first job was busy and the second silent until a job on all rails began, whose rail 5 never sends."""
    flows = traffic(BUSY, until(10, QUIET, BUSY), mlx5_5=QUIET)
    for second, found in enumerate(play(tmp_path, flows, 17, lambda now: [A, B] if now < 11 else [ALL]), 1):
        # the change is noticed at 11 s
        assert idle(found) == (["mlx5_5:1"] if second >= 14 else [])
        assert slow(found) == []
        if second >= 14:
            assert found.traffic.concluded.rail_fairness_ratio == pytest.approx(7 / 8)
        assert found.rails.active_rails >= 4


def ask(ring: Ring, seconds: int, end: int, *records: JobRecord) -> Summary:
    known, end_ns, now_ns = ring.fabric.ports, end * SECOND_NS, 60 * SECOND_NS
    return summarize(ring.reader, known, PortHistory(), AggregatorOptions(), seconds, end_ns, now_ns, jobs=records)


def test_a_summary_compares_the_rails_of_the_jobs_of_its_time(tmp_path: Path) -> None:
    player = Player(tmp_path, traffic(BUSY, QUIET))
    player.write(40)
    ring = player.ring
    records = JobRecord(A, None), JobRecord(B, 22 * SECOND_NS, SECOND_NS, 35 * SECOND_NS)

    def silent(seconds: int, end: int, *records: JobRecord) -> list[str]:
        return [one.port for one in ask(ring, seconds, end, *records).ports if one.rail_idle]

    assert silent(5, 30) == list(EIGHT[4:])
    for end in (10, 30, 39):
        assert silent(5, end, *records) == []
    assert ask(ring, 5, 30, *records).node.rail_fairness_ratio == pytest.approx(1.0)
    # before the first, between both and after the second, they have different jobs
    apart = JobRecord(A, 5 * SECOND_NS, 0, 20 * SECOND_NS), JobRecord(B, 22 * SECOND_NS, 0, 35 * SECOND_NS)
    assert silent(3, 5, *apart) == silent(1, 22, *apart) == silent(3, 39, *apart) == list(EIGHT[4:])
    assert silent(3, 6, *apart) == silent(3, 23, *apart) == silent(3, 37, *apart) == []


def test_a_summary_compares_the_rails_that_a_job_had_in_its_time(tmp_path: Path) -> None:
    player = Player(tmp_path, traffic(BUSY, QUIET))
    player.write(40)
    moved = JobRecord(A, 5 * SECOND_NS, 0, holdings=(Holding(A.ports),))
    moved = moved.changed(ALL, Event(20 * SECOND_NS, "job-change", "", "job a is on all rails"))
    assert [one.port for one in ask(player.ring, 5, 15, moved).ports if one.rail_idle] == []
    assert [one.port for one in ask(player.ring, 5, 30, moved).ports if one.rail_idle] == list(EIGHT[4:])


def test_a_port_that_is_not_a_rail_shifts_no_rail_into_another_group(tmp_path: Path) -> None:
    """The storage port comes first, and each job has rails that are not next to each other."""
    sent = {"mlx5_0:1": 40e9, "mlx5_1:1": 9e9, "mlx5_2:1": 20e9, "mlx5_3:1": 3e9, "mlx5_4:1": 20e9}
    ring = Ring.create(tmp_path, *(port(name, rail=name != "mlx5_0:1") for name in sent))
    for name, rate in sent.items():
        ring.write(name, (constant(rate), QUIET), 1, ring.now_after(5))
    jobs = [job("a", 3, 1), job("b", 2, 4)]
    found = Aggregator(ring.reader, AggregatorOptions()).update(ring.fabric, ring.now_after(5), jobs=jobs)
    shares = {one.port.id.device: one.balance.rail_share_ratio for one in found.ports if one.balance}
    assert shares == pytest.approx({"mlx5_1": 0.75, "mlx5_2": 0.5, "mlx5_3": 0.25, "mlx5_4": 0.5})
    assert found.traffic.concluded.rail_fairness_ratio == pytest.approx(4 / (2 / (12**2 / (2 * 90)) + 2 / 1))
